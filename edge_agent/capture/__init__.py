"""From a camera to frames: sources, their thread, masks, motion, and the commands that try them."""
