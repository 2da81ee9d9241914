"""The camera side: runs on a board for its own camera, or on the edge box for many."""
