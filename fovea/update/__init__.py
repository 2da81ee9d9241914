"""How a device gets another model: signed metadata, download, trial, switch, probation, way back. No torch."""
