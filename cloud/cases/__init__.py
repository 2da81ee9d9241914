"""The hard cases: what cameras were unsure of, kept with every answer."""
