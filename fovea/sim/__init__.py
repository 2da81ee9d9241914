"""A street with ground truth: the footage Fovea is trained, tested and shown on."""
