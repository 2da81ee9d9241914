"""Loads Ultralytics as a quiet library: no network, no installer, no usage reports, no pickled code."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from pathlib import Path
from types import ModuleType

_REPORTERS = (
    "sync",
    "mlflow",
    "wandb",
    "tensorboard",
    "clearml",
    "comet",
    "dvc",
    "raytune",
    "neptune",
    "hub",
)


@lru_cache(maxsize=1)
def load_ultralytics(config_folder: Path | None = None) -> ModuleType:
    """The ultralytics module; call it before any other import from that package.

    Its settings live in `config_folder` (default: ~/.cache/fovea/ultralytics). The variables are read while it is
    imported, which is why this function writes to the environment.
    """
    config_folder = config_folder or Path.home() / ".cache" / "fovea" / "ultralytics"
    config_folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        YOLO_OFFLINE="1",
        YOLO_AUTOINSTALL="False",
        YOLO_CONFIG_DIR=str(config_folder),
        YOLO_VERBOSE="False",
        ULTRALYTICS_SAFE_LOAD="1",
    )
    module = importlib.import_module("ultralytics")
    settings = importlib.import_module("ultralytics.utils").SETTINGS
    switched_on = {name: False for name in _REPORTERS if settings.get(name)}
    if switched_on:
        settings.update(switched_on)
    return module
