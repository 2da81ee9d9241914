"""A new model on its way to every camera: in shadow, on a few, on a quarter, on all, or back."""
