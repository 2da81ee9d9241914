"""Following things from frame to frame."""
