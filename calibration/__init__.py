"""Fits and measures offline; what it fits travels in the bundle and is applied by `fovea.core`."""
