"""One file for each published number."""
