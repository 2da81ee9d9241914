"""On an NVIDIA GPU: the bundled models answer as they do on the CPU. Run by fovea/bench/gpu_check.sh."""

from __future__ import annotations

import numpy as np
import pytest

from fovea import zoo
from fovea.core.geometry import iou_matrix
from fovea.runtime.golden import check_golden
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.ort import load_ort
from fovea.sim.suite import CONDITIONS, load_suite
from tests.builders import tiny_bundle

pytestmark = pytest.mark.skipif(
    "CUDAExecutionProvider" not in load_ort().get_available_providers(),
    reason="this onnxruntime has no CUDA: install deploy/locks/gpu.txt on a machine with an NVIDIA GPU",
)


@pytest.mark.parametrize("name", ["street-edge", "street-cloud"])
def test_a_bundled_model_answers_on_cuda_as_on_the_cpu(name: str) -> None:
    suite = load_suite("street-v1")
    frames = [suite.clip("val", condition, 3).frame(150).pixels for condition in CONDITIONS]
    on_cpu = OnnxDetector.open(zoo.path_of(name), "cpu")
    on_gpu = OnnxDetector.open(zoo.path_of(name), "cuda:0")
    assert on_gpu.device == "cuda:0"
    for expected, got in zip(on_cpu.detect(frames), on_gpu.detect(frames), strict=True):
        sure = expected.detections.scores >= 0.4
        overlaps = iou_matrix(expected.detections.boxes_xyxy[sure], got.detections.boxes_xyxy)
        same = expected.detections.class_ids[sure][:, None] == got.detections.class_ids[None, :]
        assert (np.where(same, overlaps, 0).max(axis=1, initial=0) >= 0.9).all()


@pytest.mark.parametrize("name", ["street-edge", "street-cloud"])
def test_golden_frames_are_seen_as_expected_on_cuda(name: str) -> None:
    from fovea.runtime.bundle import Bundle

    bundle = Bundle.open(zoo.path_of(name))
    verdict = check_golden(bundle.parts, OnnxDetector.open(bundle, "cuda:0"))
    assert verdict.is_same, verdict.reason


def test_auto_takes_the_gpu_where_there_is_one() -> None:
    from fovea.core.yolo import Layout

    assert OnnxDetector.open(tiny_bundle(Layout.CUT), device="auto").device == "cuda:0"
