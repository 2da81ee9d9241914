"""Messages generated from protos/*.proto by `python -m protos.generate`: not written by hand, not edited."""
