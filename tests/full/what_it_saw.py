"""Run on the machine under test: `what_it_saw.py BUNDLE FRAMES_DIR OUT.npz` keeps what a model sees, by stage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.ort import open_session
from fovea.runtime.preprocess import Preprocessor


def look(bundle: Bundle, frames: list[Path]) -> dict[str, Any]:
    """For each frame the pixels, the input tensor, the raw outputs and the answer, as `FRAME/STAGE` arrays."""
    spec = bundle.manifest
    session = open_session(bundle.model, "cpu")
    preprocessor = Preprocessor(spec.input)
    detector = OnnxDetector.open(bundle, "cpu")
    seen: dict[str, Any] = {}
    for path in frames:
        pixels = decode_image(path.read_bytes())
        tensor = preprocessor.fill([pixels])[0].copy()
        outputs = session.run({spec.input.tensor: tensor}, spec.output.tensors)
        answer = detector.detect([pixels])[0].detections
        stages = {
            "pixels": pixels,
            "tensor": tensor,
            "boxes_xyxy": answer.boxes_xyxy,
            "scores": answer.scores,
        }
        stages |= {
            f"output {name}": output for name, output in zip(spec.output.tensors, outputs, strict=True)
        }
        stages |= {"class_ids": answer.class_ids}
        seen |= {f"{path.stem}/{stage}": array for stage, array in stages.items()}
    return seen


if __name__ == "__main__":
    bundle_file, frames_dir, out = map(Path, sys.argv[1:])
    np.savez(out, **look(Bundle.open(bundle_file), sorted(frames_dir.glob("*.png"))))
