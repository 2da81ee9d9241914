"""Fovea: a camera looks at everything cheaply and asks for a sharper look where it pays."""

__version__ = "0.1.0"
