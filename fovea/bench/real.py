"""AP of public detectors on real photographs: does our import, preprocessing, decode and evaluation hold for models
that were made elsewhere? Needs the evaluation data (COCO val images and four ONNX files), which are not part of this
project; see docs/experiments.md for what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from calibration.evaluate import evaluate
from calibration.predict import LabelledFrame, see
from fovea.bench.result import BenchResult
from fovea.bench.yolo_folder import labelled_images
from fovea.core.errors import NotFound
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.runtime.import_onnx import Facts, import_model
from fovea.runtime.onnx_detector import OnnxDetector

MODELS = {
    "yolox_nano": "yolox_nano.onnx",
    "yolov8n_int8": "yolov8n_int8.onnx",
    "yolo26n_int8": "yolo26n_int8.onnx",
    "yolov10n": "yolov10n_int8_640_patched.onnx",
}
# More pairs than a board looks at in one frame: an evaluation has no deadline.
EVALUATION_NMS = NmsSettings(max_pairs=4000)


def run(
    data: Path, models: Sequence[str], images: int, threads: int, progress: Callable[[str], None]
) -> BenchResult:
    """Evaluates `models` on the COCO val images under `data` (`images` of them, 0 for all).

    Raises NotFound when the data or a model is not there.
    """
    frames = load_coco_val(data, images)
    figures: dict[str, float] = {}
    for name in models:
        progress(f"{name} looks at {len(frames)} images")
        report = evaluate(
            list(see(open_model(data, name, threads), frames)),
            sorted({int(class_id) for frame in frames for class_id in frame.truth.class_ids}),
        )
        figures |= {f"coco.ap.{name}": report.ap, f"coco.ap50.{name}": report.ap50}
    figures |= {
        "coco.images": float(len(frames)),
        "coco.boxes": float(sum(len(frame.truth) for frame in frames)),
    }
    return BenchResult.now("real", {"models": ", ".join(models), "threads": threads}, figures)


def load_coco_val(data: Path, limit: int = 0) -> list[LabelledFrame]:
    """The COCO val2017 images under `data` with their truth."""
    folder = data / "coco"
    return list(
        labelled_images(
            folder / "images" / "val2017",
            folder / "object_detection" / "labels" / "val2017",
            LabelSet.coco(),
            limit,
        )
    )


def open_model(data: Path, name: str, threads: int = 1) -> OnnxDetector:
    """One of MODELS, imported as a user would import it, and opened. Raises NotFound for an unknown name."""
    if name not in MODELS:
        raise NotFound(f"model {name!r}: there are {', '.join(MODELS)}")
    facts = Facts(name, "1", datetime.now(UTC), licence="see its source", answer_min_score=0.25)
    bundle = import_model(data / "models" / MODELS[name], LabelSet.coco(), facts)
    return OnnxDetector.open(bundle, "cpu", threads, EVALUATION_NMS)
