"""How models and orders reach the fleet: keys, the signed repository, the registry, and the files that are served."""
