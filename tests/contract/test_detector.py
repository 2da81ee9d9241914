"""One contract for everything that looks at frames: every Detector passes the same tests.

A further kind of detector (one that runs elsewhere, say) is a further entry in `MAKERS`: a function of an empty
folder that gives a detector which is ready to run, and is closed by the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fovea.core.arrays import ImageArray
from fovea.core.detections import LOWEST_SCORE, Inference, ScoreKind
from fovea.core.errors import DetectorFailed, Malformed
from fovea.core.frame import ImageSize, size_of
from fovea.core.ports import Detector
from fovea.core.scores import ScoreCalibration
from fovea.core.yolo import Layout
from fovea.runtime.ensemble import EnsembleDetector, EnsembleSettings, Member
from fovea.runtime.manifest import BatchMode, View
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.ort import load_ort
from fovea.update.slot import ModelSlot
from tests.builders import scene, tiny_bundle, tiny_onnx
from tests.contract.serving_thread import RemoteWithItsServer
from tests.fakes import FakeDetector

TINY_YOLO = """
nc: 3
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [[2, 3], 1, Detect, [nc]]
"""


def onnx_maker(layout: Layout, **changes: Any) -> Callable[[Path], Detector]:
    return lambda _folder: OnnxDetector.open(tiny_bundle(layout, **changes), device="cpu")


def onnx_with_fixed_batch(_folder: Path) -> Detector:
    model = tiny_onnx(Layout.CUT, batch=BatchMode.FIXED)
    return OnnxDetector.open(tiny_bundle(Layout.CUT, model, input={"batch": BatchMode.FIXED}), device="cpu")


def onnx_on_cuda(_folder: Path) -> Detector:
    if "CUDAExecutionProvider" not in load_ort().get_available_providers():
        pytest.skip("this onnxruntime has no CUDA")
    return OnnxDetector.open(tiny_bundle(Layout.CUT), device="cuda:0")


def ensemble_of_three(_folder: Path) -> Detector:
    """Two that know the same, and one that knows something else."""
    other = tiny_bundle(Layout.YOLOX, name="other", labels=("car", "dog", "person"))
    opened = [
        OnnxDetector.open(bundle, device="cpu")
        for bundle in (tiny_bundle(Layout.CUT), tiny_bundle(Layout.END_TO_END), other)
    ]
    members = [Member(one, ScoreCalibration.identity()) for one in opened]
    return EnsembleDetector(members, EnsembleSettings(answer_min_score=0.1))


def torchvision_ssdlite(folder: Path) -> Detector:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed here")
    from fovea.serving.torch_detector import TorchDetector

    torch.manual_seed(0)
    name, path = "ssdlite320_mobilenet_v3_large", folder / "ssdlite.pth"
    network = models.get_model(name, weights=None, weights_backbone=None, num_classes=4)
    torch.save(network.state_dict(), path)
    categories = ("__background__", "person", "N/A", "car")
    return TorchDetector.torchvision(name, path, categories, "cpu", ImageSize(128, 96), answer_min_score=0.1)


def ultralytics_yolo(folder: Path) -> Detector:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    pytest.importorskip("ultralytics", reason="ultralytics is not installed here")
    from fovea.serving.torch_detector import TorchDetector
    from fovea.serving.vendor_env import load_ultralytics

    settings = folder / "settings"
    yolo = load_ultralytics(settings).YOLO
    torch.manual_seed(0)
    (folder / "tiny.yaml").write_text(TINY_YOLO)
    model = yolo(str(folder / "tiny.yaml"), task="detect", verbose=False)
    for branch in model.model.model[-1].cv3:
        # An untrained head says about 0.01 everywhere; this one has opinions.
        torch.nn.init.normal_(branch[-1].weight, std=3.0)
        torch.nn.init.zeros_(branch[-1].bias)
    model.save(str(folder / "tiny.pt"))
    return TorchDetector.ultralytics(
        folder / "tiny.pt", "cpu", ImageSize(96, 64), answer_min_score=0.1, config_folder=settings
    )


MAKERS: dict[str, Callable[[Path], Detector]] = {
    "fake": lambda _folder: FakeDetector(),
    "onnx cut": onnx_maker(Layout.CUT),
    "onnx one-to-many": onnx_maker(Layout.ONE_TO_MANY),
    "onnx end-to-end": onnx_maker(Layout.END_TO_END),
    "onnx yolox": onnx_maker(Layout.YOLOX),
    "onnx two views": onnx_maker(Layout.CUT, tta=(View.HFLIP,)),
    "onnx fixed batch": onnx_with_fixed_batch,
    "onnx cuda": onnx_on_cuda,
    "ensemble": ensemble_of_three,
    "torchvision": torchvision_ssdlite,
    "ultralytics": ultralytics_yolo,
    "remote": lambda _folder: RemoteWithItsServer.around(FakeDetector()),
    "slot": lambda _folder: ModelSlot(OnnxDetector.open(tiny_bundle(Layout.CUT), device="cpu")),
}


@pytest.fixture(scope="module", params=MAKERS)
def detector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detector]:
    made = MAKERS[request.param](tmp_path_factory.mktemp("detector"))
    yield made
    made.close()


ODD_SIZES = [(1, 1), (1, 4000), (4000, 1), (300, 90), (2, 3), (97, 131)]
MIXED = [
    scene(height, width, seed) for seed, (height, width) in enumerate([(48, 64), (200, 90), (60, 61), (1, 7)])
]


def assert_same(one: Inference, other: Inference) -> None:
    """Equal but for the rounding that a batch of another size brings."""
    a, b = one.detections, other.detections
    assert a.image_size == b.image_size
    assert a.model == b.model
    assert len(a) == len(b)
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-4)
    np.testing.assert_array_equal(a.class_ids, b.class_ids)
    np.testing.assert_allclose(a.boxes_xyxy, b.boxes_xyxy, atol=0.05)
    assert len(one.candidates) == len(other.candidates)


def assert_sound(inference: Inference, pixels: ImageArray, detector: Detector) -> None:
    """What every answer promises, beyond what the types check by themselves."""
    size = size_of(pixels)
    seen, candidates = inference.detections, inference.candidates
    assert seen.image_size == candidates.image_size == size
    assert seen.model == detector.ref
    assert candidates.labels == detector.labels
    for boxes in (seen.boxes_xyxy, candidates.boxes_xyxy):
        assert (boxes >= 0).all()
        assert (boxes <= [size.width, size.height, size.width, size.height]).all()
    assert ((seen.scores >= 0) & (seen.scores <= 1)).all()
    assert (np.diff(seen.scores) <= 0).all(), "best first"
    assert set(seen.class_ids.tolist()) <= set(detector.labels.ids)
    if len(candidates):
        assert candidates.best_scores.min() >= LOWEST_SCORE
    if candidates.kind is ScoreKind.ONE_PER_BOX:
        assert (np.count_nonzero(candidates.class_scores, axis=1) == 1).all()


def test_it_sees_something_in_a_picture_so_that_the_other_tests_mean_something(detector: Detector) -> None:
    (inference,) = detector.detect([scene(96, 128)])
    assert len(inference.candidates) > 0
    assert len(inference.detections) > 0
    assert_sound(inference, scene(96, 128), detector)


def test_frames_of_mixed_sizes_are_answered_in_order_and_each_in_its_own_pixels(detector: Detector) -> None:
    answers = detector.detect(MIXED)
    assert len(answers) == len(MIXED)
    for pixels, inference in zip(MIXED, answers, strict=True):
        assert_sound(inference, pixels, detector)


def test_a_batch_is_answered_as_its_frames_are_alone(detector: Detector) -> None:
    for pixels, together in zip(MIXED, detector.detect(MIXED), strict=True):
        assert_same(detector.detect([pixels])[0], together)


def test_the_answer_does_not_depend_on_the_neighbours_or_on_what_came_before(detector: Detector) -> None:
    frame = scene(70, 50, seed=9)
    (alone,) = detector.detect([frame])
    white, black = np.full((500, 40, 3), 255, np.uint8), np.zeros((40, 500, 3), np.uint8)
    assert_same(detector.detect([white, frame, black])[1], alone)
    assert_same(detector.detect([frame])[0], alone)


def test_the_same_frame_gets_the_same_answer(detector: Detector) -> None:
    first, second = detector.detect([MIXED[0]])[0], detector.detect([MIXED[0]])[0]
    np.testing.assert_array_equal(first.detections.boxes_xyxy, second.detections.boxes_xyxy)
    np.testing.assert_array_equal(first.detections.scores, second.detections.scores)
    np.testing.assert_array_equal(first.candidates.class_scores, second.candidates.class_scores)


@pytest.mark.parametrize(("height", "width"), ODD_SIZES)
def test_odd_sizes_are_answered_inside_the_frame(detector: Detector, height: int, width: int) -> None:
    pixels = scene(height, width)
    (inference,) = detector.detect([pixels])
    assert_sound(inference, pixels, detector)


def test_no_frames_give_no_answers(detector: Detector) -> None:
    assert detector.detect([]) == []


def test_read_only_and_strided_frames_are_fine_and_no_frame_is_written_to(detector: Detector) -> None:
    plain = scene(60, 80)
    (expected,) = detector.detect([plain])
    read_only = plain.copy()
    read_only.flags.writeable = False
    wide = np.zeros((60, 160, 3), np.uint8)
    wide[:, ::2] = plain
    turned = np.ascontiguousarray(plain[::-1, ::-1])
    before = wide.copy()
    for view in (read_only, wide[:, ::2], turned[::-1, ::-1], np.asfortranarray(plain)):
        assert_same(detector.detect([view])[0], expected)
    np.testing.assert_array_equal(wide, before)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 3), np.uint16),
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((1, 4, 4, 3), np.uint8),
        [[[0, 0, 0]]],
        None,
    ],
    ids=["float", "uint16", "grey", "BGRA", "empty", "batch", "list", "none"],
)
def test_what_is_no_frame_is_refused_and_the_detector_goes_on(detector: Detector, pixels: Any) -> None:
    with pytest.raises(Malformed, match="pixels: expected a uint8 array"):
        detector.detect([scene(), pixels])
    assert len(detector.detect([scene()])) == 1


@pytest.mark.parametrize("maker", MAKERS)
def test_closing_twice_is_fine_and_detecting_afterwards_fails(maker: str, tmp_path: Path) -> None:
    detector = MAKERS[maker](tmp_path)
    ref = detector.ref
    detector.close()
    detector.close()
    for frames in ([scene()], []):
        with pytest.raises(DetectorFailed, match="close"):
            detector.detect(frames)
    assert detector.ref == ref
    assert len(detector.labels) > 0
