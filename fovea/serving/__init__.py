"""What the edge server and the cloud both serve with."""
