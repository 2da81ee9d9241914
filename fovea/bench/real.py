"""AP of public detectors on real photographs, alone and as tiers: does our import, preprocessing, decode and
evaluation hold for models that were made elsewhere, and is it worth merging them? Needs the evaluation data (COCO
images and four ONNX files), which are not part of this project; see docs/experiments.md for what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from calibration.evaluate import evaluate
from calibration.predict import LabelledFrame, see
from calibration.truth import EvaluatedFrame
from fovea.bench.real_tiers import CAMERA, CLOUD, EDGE, TIER_MODELS, SeenImages, tier_figures
from fovea.bench.result import BenchResult, Setting
from fovea.bench.yolo_folder import labelled_images
from fovea.core.detections import Candidates
from fovea.core.errors import NotFound
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
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
    """Evaluates `models` on the COCO val images under `data` (`images` of them, 0 for all); with all the models that
    the tiers need among them, also the tiers and what they are merged (`fovea.bench.real_tiers`).

    Raises NotFound when the data or a model is not there.
    """
    frames = load_coco_val(data, images)
    has_tiers = set(models) >= set(TIER_MODELS)
    train_frames = load_coco_train(data, 2 * images) if has_tiers else []
    figures: dict[str, float] = {}
    settings: dict[str, Setting] = {"models": ", ".join(models), "threads": threads}
    with ExitStack() as open_now:
        detectors: dict[str, Detector] = {}
        on_val, on_train = dict[str, list[Candidates]](), dict[str, list[Candidates]]()
        for name in models:
            detector = detectors[name] = open_model(data, name, threads)
            open_now.callback(detector.close)
            progress(f"{name} looks at {len(frames)} val images")
            evaluated = list(see(detector, frames))
            ap = evaluate(evaluated, _class_ids(frames))
            figures |= {f"coco.ap.{name}": ap.ap, f"coco.ap50.{name}": ap.ap50}
            if name in TIER_MODELS and has_tiers:
                progress(f"{name} looks at {len(train_frames)} train images")
                on_val[name] = [_candidates(each) for each in evaluated]
                on_train[name] = [_candidates(each) for each in see(detector, train_frames)]
        if has_tiers:
            progress("merging")
            val, train = SeenImages(frames, on_val), SeenImages(train_frames, on_train)
            of_tiers, way = tier_figures(val, train, detectors)
            figures |= of_tiers
            settings |= {
                "tier.camera": CAMERA,
                "tier.edge": EDGE,
                "tier.cloud": " + ".join(CLOUD),
                "scores": f"{way}: better on held-out train images, which all models have seen in training",
                "train_images": len(train_frames),
            }
    figures |= {
        "coco.images": float(len(frames)),
        "coco.boxes": float(sum(len(frame.truth) for frame in frames)),
    }
    return BenchResult.now("real", settings, figures)


def load_coco_val(data: Path, limit: int = 0) -> list[LabelledFrame]:
    """The COCO val2017 images under `data` with their truth."""
    return _load_coco(data, "val2017", limit)


def load_coco_train(data: Path, limit: int = 0) -> list[LabelledFrame]:
    """The COCO train2017 images under `data` with their truth."""
    return _load_coco(data, "train2017", limit)


def _load_coco(data: Path, split: str, limit: int) -> list[LabelledFrame]:
    folder = data / "coco"
    labels = folder / "object_detection" / "labels" / split
    return list(labelled_images(folder / "images" / split, labels, LabelSet.coco(), limit))


def open_model(data: Path, name: str, threads: int = 1) -> OnnxDetector:
    """One of MODELS, imported as a user would import it, and opened. Raises NotFound for an unknown name."""
    if name not in MODELS:
        raise NotFound(f"model {name!r}: there are {', '.join(MODELS)}")
    facts = Facts(name, "1", datetime.now(UTC), licence="see its source", answer_min_score=0.25)
    bundle = import_model(data / "models" / MODELS[name], LabelSet.coco(), facts)
    return OnnxDetector.open(bundle, "cpu", threads, EVALUATION_NMS)


def _class_ids(frames: Sequence[LabelledFrame]) -> list[int]:
    return sorted({int(class_id) for frame in frames for class_id in frame.truth.class_ids})


def _candidates(frame: EvaluatedFrame) -> Candidates:
    assert isinstance(frame.seen, Candidates)
    return frame.seen
