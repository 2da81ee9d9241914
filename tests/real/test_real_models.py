"""Public detectors on COCO val images: our import, detector and evaluator against a path that shares none of them.

Needs FOVEA_REALDATA: a folder with `coco/` and `models/`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibration.evaluate import evaluate
from calibration.predict import see
from fovea.bench.real import MODELS, load_coco_val, open_model
from fovea.bench.yolo_folder import image_files
from tests.real.plain_detector import plain_ap

DATA = Path(os.environ.get("FOVEA_REALDATA", "/nonexistent"))
# The 8-bit files take about a second an image on one thread.
IMAGES = {"yolox_nano": 64, "yolov8n_int8": 20, "yolo26n_int8": 12, "yolov10n": 12}

pytestmark = pytest.mark.skipif(not (DATA / "models").is_dir(), reason="FOVEA_REALDATA is not set")


@pytest.mark.parametrize("name", MODELS)
def test_ap_is_within_half_a_point_of_an_independent_evaluation(name: str) -> None:
    frames = load_coco_val(DATA, IMAGES[name])
    detector = open_model(DATA, name)
    ours = evaluate(list(see(detector, frames)), detector.labels.ids).ap
    images = image_files(DATA / "coco/images/val2017")[: IMAGES[name]]
    independent = plain_ap(
        DATA / "models" / MODELS[name], images, DATA / "coco/object_detection/labels/val2017"
    )
    assert ours > 0.2
    assert ours == pytest.approx(independent, abs=0.005)
