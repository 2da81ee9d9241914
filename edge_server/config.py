"""The configuration of an edge server: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

from pathlib import Path

from fovea.process.config_parts import resolved_bundle
from fovea.runtime.config_file import read_config
from fovea.serving.serving_config import ServingConfig


class EdgeConfig(ServingConfig):
    """Everything an edge server is told. Relative paths are relative to the folder of the file."""

    def resolved(self, folder: Path) -> EdgeConfig:
        """The same with paths that do not depend on the current folder."""
        return self.model_copy(
            update={
                "bundle": resolved_bundle(self.bundle, folder),
                "tls": self.tls and self.tls.resolved(folder),
            }
        )


def load_config(path: Path) -> EdgeConfig:
    """Raises NotFound, and Malformed with every mistake, its line and what was allowed."""
    return read_config(path, EdgeConfig).resolved(path.absolute().parent)
