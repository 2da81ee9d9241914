"""Packs freshly trained street models into the bundles of the zoo: quantized, calibrated, with golden frames.

Every fitted value comes from train and val clips. Published figures are written in afterwards, from the JSON of
`fovea bench zoo`, which is the first to look at the test split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fovea.bench.street_frames import Wanted
from fovea.bench.street_quantization import (
    StreetSplits,
    fit_scores_on_street,
    quantize_on_street,
    search_table,
)
from fovea.core.arrays import ImageArray
from fovea.core.errors import NotFound
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.golden import make_golden
from fovea.runtime.manifest import (
    BatchMode,
    InputSpec,
    NmsSpec,
    OutputSpec,
    ParentRef,
    Precision,
    View,
    new_manifest,
)
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.suite import CONDITIONS, load_suite

# Of the pairs of box and class over a score of 0.001 a camera looks at the best 300: on val frames that cost the
# student 0.0001 AP against 1000, and took 1 ms in place of 4.
CAMERA_NMS = NmsSpec(max_pairs=300)
GOLDEN_SIZE_PX = (480, 270)
GOLDEN_CONDITIONS = ("day", "night", "rain")
LICENCE = "AGPL-3.0-or-later"


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One trained model: its folder under the trainings, the name of its bundle, the conditions it knows, and what
    it is. A student is published as FP32 and as INT8 (`quantized_name`); the others with 16-bit weights."""

    run: str
    name: str
    description: str
    conditions: tuple[str, ...] = CONDITIONS
    quantized_name: str | None = None
    tta: tuple[View, ...] = ()


ZOO = (
    ZooModel(
        "street-student",
        "street-student-fp32",
        "Camera model: plain ReLU YOLO, 320x192, all conditions",
        quantized_name="street-student-int8",
    ),
    ZooModel(
        "street-student-day",
        "street-student-day-fp32",
        "Camera model that has only ever seen day, 320x192",
        conditions=("day",),
        quantized_name="street-student-day-int8",
    ),
    ZooModel("street-edge", "street-edge", "Edge model: bottleneck ResNet with a YOLO head, 480x288"),
    ZooModel(
        "street-cloud",
        "street-cloud",
        "Cloud model: deeper ResNet with a YOLO head, 960x544, frame and mirror image",
        tta=(View.HFLIP,),
    ),
)


ANSWER_FROM = 0.05
"""Far below what people are told (`fovea.core.detections.TOLD_FROM`): tiers merge the weak boxes, too."""


def build_zoo(
    trained: Path,
    out: Path,
    version: str,
    work: Path,
    note: Callable[[str], None],
    only: Collection[str] = (),
    workers: int = 2,
) -> list[Path]:
    """Writes the bundles of the models in `trained/<run>/` (facts.json and ONNX exports); returns their paths.

    `only` names runs, all of ZOO if empty. `work` keeps rendered frames for the next run. Raises NotFound for an
    unknown run, or one that has no facts.
    """
    unknown = set(only) - {model.run for model in ZOO}
    if unknown:
        raise NotFound(f"run {sorted(unknown)[0]!r}: there are {', '.join(model.run for model in ZOO)}")
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for model in ZOO:
        if only and model.run not in only:
            continue
        note(f"{model.name}: packing and fitting scores")
        packed = _pack(trained / model.run, model, version)
        frames, splits = _frames_for(model, work)
        fitted = _with_golden(fit_scores_on_street(packed, frames, splits, workers).bundle)
        written.append(fitted.write(out))
        if model.quantized_name is not None:
            note(f"{model.quantized_name}: searching the INT8 recipe")
            scores, quantized = quantize_on_street(
                fitted, frames, splits, name=model.quantized_name, workers=workers
            )
            (work / f"{model.quantized_name}.md").write_text(search_table(quantized) + "\n", encoding="utf-8")
            written.append(_with_golden(scores.bundle).write(out))
    return written


def write_figures(bundles: list[Path], figures: Mapping[str, float], names: Mapping[str, str]) -> list[Path]:
    """Puts the figures of `fovea bench zoo` into the reports; `names` maps bundle names to figure names.

    A report is part of the manifest, so the bundle gets a new digest; a bundle that names a changed one as its
    parent is changed with it.
    """
    renamed: dict[str, ParentRef] = {}
    changed = []
    for path in sorted(bundles, key=lambda file: Bundle.open(file).manifest.precision is Precision.INT8):
        bundle = Bundle.open(path)
        figure_name = names.get(bundle.manifest.name)
        report = dict(bundle.manifest.report)
        for key, value in figures.items():
            kind, _, rest = key.partition(".")
            model, _, condition = rest.rpartition(".")
            if model == figure_name and kind in ("ap", "ap50", "ap_low", "ap_high"):
                report[f"{kind}.{condition}"] = value
        parent = bundle.manifest.parent
        if parent is not None:
            parent = renamed.get(parent.sha256, parent)
        new = bundle.with_parts({}, report=report, parent=parent)
        renamed[bundle.ref.sha256] = ParentRef.of(new.ref)
        changed.append(new.write(path.parent))
    return changed


def _pack(folder: Path, model: ZooModel, version: str) -> Bundle:
    facts_file = folder / "facts.json"
    if not facts_file.is_file():
        raise NotFound(f"no {facts_file}: train the model with cloud.pretrain first")
    facts = json.loads(facts_file.read_text(encoding="utf-8"))
    is_student = model.quantized_name is not None
    file = f"{model.run}.onnx" if is_student else f"{model.run}.fp16.onnx"
    export: dict[str, Any] = facts["exports"][file]
    height, width = export["input_hw"]
    manifest = new_manifest(
        name=model.name,
        version=version,
        created_at=datetime.now(UTC),
        description=model.description,
        licence=LICENCE,
        dataset=_dataset_text(facts),
        labels=tuple(export["labels"]),
        input=InputSpec(width=width, height=height, batch=BatchMode.DYNAMIC),
        output=OutputSpec(
            layout=Layout.CUT,
            tensors=("boxes", "logits"),
            strides=tuple(export["strides"]),
            reg_max=export["reg_max"],
        ),
        precision=Precision.FP32 if is_student else Precision.FP16,
        nms=CAMERA_NMS if is_student else NmsSpec(),
        tta=model.tta,
        answer_min_score=ANSWER_FROM,
        parameters=facts["parameters"],
        report={
            "train.images_seen": facts["images_seen"],
            "train.minutes": facts["train_minutes"],
            "train.seed": facts["seed"],
        },
    )
    return Bundle.build(manifest, {MODEL: (folder / file).read_bytes()})


def _dataset_text(facts: Mapping[str, Any]) -> str:
    dataset = facts["dataset"]
    if not isinstance(dataset, dict):
        return str(dataset)
    conditions = ", ".join(dataset["conditions"])
    images, view = dataset["train_images"], dataset["view"]["name"]
    return f"{dataset['suite']}/train, {images} images of {conditions}; view {view}"


def _frames_for(model: ZooModel, work: Path) -> tuple[Path, StreetSplits]:
    """Calibration sees the conditions that the model was trained for: a day camera has no night to fit on."""
    clips = 30 // len(model.conditions)
    splits = StreetSplits(
        ranges=Wanted("train", per_clip=3, clips=clips, conditions=model.conditions),
        validation=Wanted(
            "val", per_clip=6 if len(model.conditions) == 1 else 3, conditions=model.conditions
        ),
    )
    return work / ("day" if len(model.conditions) == 1 else "all"), splits


def _with_golden(bundle: Bundle) -> Bundle:
    detector = OnnxDetector.open(bundle, "cpu")
    golden = make_golden(detector, _golden_frames(), bundle.manifest.answer_min_score)
    detector.close()
    return bundle.with_parts({**golden})


def _golden_frames() -> list[ImageArray]:
    """Validation frames at half size: small files, and every model still sees something in them."""
    suite = load_suite("street-v1")
    frames = [suite.clip("val", condition, 2).frame(120).pixels for condition in GOLDEN_CONDITIONS]
    return [
        np.asarray(cv2.resize(pixels, GOLDEN_SIZE_PX, interpolation=cv2.INTER_AREA), np.uint8)
        for pixels in frames
    ]
