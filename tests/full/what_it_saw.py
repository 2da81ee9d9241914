"""Run on the machine under test: `what_it_saw.py BUNDLE FRAMES_DIR OUT.npz` keeps what a model sees, by stage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.ort import load_ort
from fovea.runtime.preprocess import Preprocessor


def look(bundle: Bundle, frames: list[Path]) -> dict[str, Any]:
    """For each frame the pixels, the input tensor and the raw outputs, as `FRAME/STAGE` arrays.

    The graph is optimised as far as that does not depend on the processor: beyond this level a convolution in
    floating point adds up in another order on x86, and its last bit may tip a value that is quantized next.
    """
    spec = bundle.manifest
    ort = load_ort()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(bundle.model, options, providers=["CPUExecutionProvider"])
    preprocessor = Preprocessor(spec.input)
    seen: dict[str, Any] = {}
    for path in frames:
        pixels = decode_image(path.read_bytes())
        tensor = preprocessor.fill([pixels])[0].copy()
        outputs = session.run(list(spec.output.tensors), {spec.input.tensor: tensor})
        seen |= {f"{path.stem}/pixels": pixels, f"{path.stem}/tensor": tensor}
        seen |= {
            f"{path.stem}/{name}": output for name, output in zip(spec.output.tensors, outputs, strict=True)
        }
    return seen


if __name__ == "__main__":
    bundle_file, frames_dir, out = map(Path, sys.argv[1:])
    np.savez(out, **look(Bundle.open(bundle_file), sorted(frames_dir.glob("*.png"))))
