"""The gRPC client side that agent and edge share."""
