"""The `fovea` command; a tier is imported only when its command runs."""
