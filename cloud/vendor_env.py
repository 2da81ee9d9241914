"""Loads Ultralytics with its network, installer and usage reporting switched off, in one place."""

import importlib
import os
from pathlib import Path
from types import ModuleType

SWITCHED_OFF_SETTINGS = {"sync": False, "mlflow": False, "wandb": False, "tensorboard": False, "clearml": False,
                         "comet": False, "dvc": False, "raytune": False}


def vendor_environment(config_dir: Path) -> dict[str, str]:
    """Environment variables that Ultralytics reads while it is imported."""
    return {
        "YOLO_OFFLINE": "1",
        "YOLO_AUTOINSTALL": "False",
        "YOLO_CONFIG_DIR": str(config_dir),
        "ULTRALYTICS_SAFE_LOAD": "1",
    }


def load_ultralytics(config_dir: Path | None = None) -> ModuleType:
    """Import and return `ultralytics`; call it before any other import from that package.

    Variables that the operator has set already are kept, except those that would open the network.
    `config_dir` holds the settings file of Ultralytics (default: the user's cache folder).
    """
    folder = config_dir or Path.home() / ".cache" / "fovea" / "ultralytics"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(vendor_environment(folder))
    ultralytics = importlib.import_module("ultralytics")
    settings = importlib.import_module("ultralytics.utils").SETTINGS
    wanted = {key: value for key, value in SWITCHED_OFF_SETTINGS.items() if settings.get(key) != value}
    if wanted:
        settings.update(wanted)
    return ultralytics
