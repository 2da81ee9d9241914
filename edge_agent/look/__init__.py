"""Looking through pictures and videos by hand: `fovea detect`."""
