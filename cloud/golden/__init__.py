"""The golden set: frames of each site that people labelled, by which every new model is judged."""
