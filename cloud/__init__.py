"""The cloud: the strongest look, and everything that learns from it."""
