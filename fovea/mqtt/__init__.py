"""The connection to a broker, as agents and the cloud have it."""
