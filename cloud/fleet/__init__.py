"""The cloud's side of the broker: what devices report comes in, a hint that there is news goes out."""
