"""A model as a file that runs: bundle, ONNX detector, store. No torch, ever: this goes onto devices."""
