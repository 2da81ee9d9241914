"""The steps, each named by what it follows."""
