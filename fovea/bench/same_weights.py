"""The weights of one of our bundles as Ultralytics would run them: its own model, its own ONNX export."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Incompatible
from fovea.runtime.bundle import Bundle
from fovea.runtime.import_onnx import Facts, import_model
from fovea.runtime.onnx_detector import OnnxDetector

_PREFIX = "detector."
"""What `cloud.export_cut` puts before the names of Ultralytics' own parameters."""
_LARGEST_DIFFERENCE_PX = 0.5
_COMPARED_SCORE = 0.05


def why_not() -> str | None:
    """Why Ultralytics cannot be measured here; None where it can."""
    missing = [name for name in ("torch", "ultralytics", "onnx") if find_spec(name) is None]
    return f"{', '.join(missing)} not installed" if missing else None


def ultralytics_onnx(bundle: Bundle, architecture: Path, folder: Path) -> Path:
    """Builds the architecture with the weights of a cut bundle and lets Ultralytics export it to ONNX, in `folder`.

    Raises Incompatible when bundle and architecture do not belong together.
    """
    from fovea.serving.vendor_env import load_ultralytics

    load_ultralytics()
    import onnx
    import torch
    from onnx import numpy_helper
    from ultralytics import YOLO

    folder.mkdir(parents=True, exist_ok=True)
    # Ultralytics takes the scale of a model from the name of its file, and writes the export beside it.
    local = folder / architecture.name
    local.write_bytes(architecture.read_bytes())
    yolo = YOLO(str(local), task="detect", verbose=False)
    model: Any = yolo.model
    model.float().eval().fuse(verbose=False)
    graph = onnx.load_from_string(bundle.model).graph
    weights = {
        each.name.removeprefix(_PREFIX): torch.from_numpy(numpy_helper.to_array(each).copy())
        for each in graph.initializer
        if each.name.startswith(_PREFIX)
    }
    try:
        left_out = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise Incompatible(f"{bundle.ref} does not fit {architecture.name}: {error}") from error
    missing = [name for name in left_out.missing_keys if "dfl" not in name]
    if missing or left_out.unexpected_keys:
        raise Incompatible(
            f"{bundle.ref} does not fit {architecture.name}: no weights for {missing[:3]}, "
            f"no place for {left_out.unexpected_keys[:3]}"
        )
    model.names = dict(enumerate(bundle.manifest.labels))
    spec = bundle.manifest.input
    yolo.ckpt_path = str(local.with_suffix(".pt"))
    model.pt_path = yolo.ckpt_path
    exported = yolo.export(
        format="onnx", imgsz=(spec.height, spec.width), opset=17, simplify=False, device="cpu", verbose=False
    )
    return Path(str(exported))


def check_same(bundle: Bundle, theirs: Path, frame: ImageArray) -> int:
    """Both see the same boxes in `frame`, how many. Raises Incompatible when they do not."""
    manifest = bundle.manifest
    facts = Facts("ultralytics", "1", datetime.now(UTC), licence=manifest.licence)
    imported = import_model(theirs, manifest.label_set, facts)
    seen = []
    for each in (bundle, imported):
        detector = OnnxDetector.open(each, "cpu", 1, manifest.nms.settings())
        candidates = detector.detect([frame])[0].candidates
        detector.close()
        strong = candidates.best_scores >= _COMPARED_SCORE
        seen.append(np.sort(candidates.boxes_xyxy[strong], axis=0))
    if seen[0].shape != seen[1].shape or np.abs(seen[0] - seen[1]).max(initial=0) > _LARGEST_DIFFERENCE_PX:
        raise Incompatible(
            f"{bundle.ref} and its export by Ultralytics see different boxes: {len(seen[0])} and {len(seen[1])}"
        )
    return len(seen[0])
