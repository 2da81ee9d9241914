"""The history of the case store's tables, one file for each step."""
