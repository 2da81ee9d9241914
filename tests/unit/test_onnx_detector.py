"""The ONNX detector: pixels reach the network as the manifest says, and wrong graphs are found when it opens."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.errors import DetectorFailed, FoveaError, Incompatible
from fovea.core.frame import ImageSize, size_of
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox, Placement
from fovea.core.scores import PlattCurve, ScoreCalibration
from fovea.core.yolo import Layout
from fovea.runtime.bundle import CALIBRATION
from fovea.runtime.calibration_file import calibration_to_json
from fovea.runtime.manifest import BatchMode, ColorOrder, InputDtype, InputSpec, TensorLayout, View
from fovea.runtime.onnx_detector import LARGEST_BATCH, OnnxDetector, nms_for_answers
from fovea.runtime.preprocess import Preprocessor, resize
from fovea.runtime.two_views import merge_views
from tests.builders import TINY_LABELS, scene, tiny_bundle, tiny_onnx

LAYOUTS = list(Layout)
TINY_IDS = LabelSet.from_names(TINY_LABELS).ids
UINT8: dict[str, Any] = {"dtype": InputDtype.UINT8, "scale": 1.0}


def by_definition(pixels: ImageArray, spec: InputSpec) -> np.ndarray:
    """The input tensor of one frame in float64, straight from the definition."""
    box = Letterbox.fit(size_of(pixels), spec.size, spec.placement)
    canvas = np.full((spec.height, spec.width, 3), spec.pad_value, np.uint8)
    target = canvas[box.top : box.top + box.resized.height, box.left : box.left + box.resized.width]
    while all(
        side % 2 == 0 and side >= 2 * to for side, to in zip(pixels.shape, target.shape[:2], strict=False)
    ):
        blocks = pixels.astype(np.uint32).reshape(pixels.shape[0] // 2, 2, pixels.shape[1] // 2, 2, 3)
        pixels = ((blocks.sum(axis=(1, 3)) + 2) // 4).astype(np.uint8)
    target[...] = cv2.resize(
        pixels, (box.resized.width, box.resized.height), interpolation=cv2.INTER_LINEAR_EXACT
    ).reshape(target.shape)
    ordered = canvas[..., ::-1] if spec.color is ColorOrder.RGB else canvas
    values = (ordered.astype(np.float64) * spec.scale - spec.mean) / spec.std
    return values.transpose(2, 0, 1) if spec.layout is TensorLayout.NCHW else values


@settings(max_examples=120, deadline=None)
@given(
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    layout=st.sampled_from(TensorLayout),
    dtype=st.sampled_from(InputDtype),
    color=st.sampled_from(ColorOrder),
    placement=st.sampled_from(Placement),
    pad=st.integers(0, 255),
)
def test_every_frame_reaches_the_network_as_the_manifest_defines_it(
    height: int,
    width: int,
    layout: TensorLayout,
    dtype: InputDtype,
    color: ColorOrder,
    placement: Placement,
    pad: int,
) -> None:
    plain = dtype is InputDtype.UINT8
    spec = InputSpec(
        width=64,
        height=48,
        layout=layout,
        dtype=dtype,
        color=color,
        placement=placement,
        pad_value=pad,
        scale=1.0 if plain else 1 / 255,
        mean=(0.0, 0.0, 0.0) if plain else (0.485, 0.456, 0.406),
        std=(1.0, 1.0, 1.0) if plain else (0.229, 0.224, 0.225),
    )
    frames = [scene(height, width), scene(seed=3)]
    tensor, _ = Preprocessor(spec).fill(frames)
    assert tensor.dtype == np.dtype(dtype.value)
    tolerance = 2e-3 if dtype is InputDtype.FLOAT16 else 1e-5
    for row, pixels in enumerate(frames):
        assert np.abs(tensor[row] - by_definition(pixels, spec)).max() <= tolerance


def test_fine_noise_is_averaged_away_before_a_strong_shrink() -> None:
    noisy = np.clip(128 + np.random.default_rng(0).normal(0, 40, (640, 640, 3)), 0, 255).astype(np.uint8)
    size = ImageSize(160, 160)
    plain = cv2.resize(noisy, (160, 160), interpolation=cv2.INTER_LINEAR_EXACT)
    assert resize(noisy, size).std() < 0.6 * plain.std()
    odd = cv2.resize(noisy[1:], (160, 160), interpolation=cv2.INTER_LINEAR_EXACT)
    np.testing.assert_array_equal(resize(noisy[1:], size), odd)


def test_the_reused_buffer_keeps_no_trace_of_the_frame_before() -> None:
    spec = InputSpec(width=64, height=64, batch=BatchMode.DYNAMIC)
    preprocessor = Preprocessor(spec)
    shapes = [(20, 64), (64, 20), (20, 64), (1, 500), (64, 64), (500, 1)]
    for seed, (height, width) in enumerate(shapes):
        pixels = scene(height, width, seed)
        tensor, _ = preprocessor.fill([pixels])
        assert np.abs(tensor[0] - by_definition(pixels, spec)).max() <= 1e-5


def test_a_flipped_fill_mirrors_the_frame_and_not_its_padding() -> None:
    spec = InputSpec(width=64, height=64, placement=Placement.TOP_LEFT)
    pixels = scene(64, 30)
    tensor, _ = Preprocessor(spec).fill([pixels], flipped=True)
    assert np.abs(tensor[0] - by_definition(np.ascontiguousarray(pixels[:, ::-1]), spec)).max() <= 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [InputDtype.FLOAT32, InputDtype.UINT8])
def test_channel_order_and_number_type_of_the_graph_do_not_change_the_answer(
    layout: Layout, dtype: InputDtype
) -> None:
    frame = scene(90, 120)
    reference = OnnxDetector.open(tiny_bundle(layout), device="cpu").detect([frame])[0].detections
    spec: dict[str, Any] = {"layout": TensorLayout.NHWC} | (UINT8 if dtype is InputDtype.UINT8 else {})
    model = tiny_onnx(layout, tensor_layout=TensorLayout.NHWC, dtype=dtype)
    seen = (
        OnnxDetector.open(tiny_bundle(layout, model, input=spec), device="cpu").detect([frame])[0].detections
    )
    assert len(seen) == len(reference) > 0
    np.testing.assert_allclose(seen.scores, reference.scores, atol=1e-5)
    # Boxes of the same score may stand in another order.
    apart_px = np.abs(seen.boxes_xyxy[:, None] - reference.boxes_xyxy[None]).max(axis=2)
    assert apart_px.min(axis=1).max() < 1e-2 and apart_px.min(axis=0).max() < 1e-2


def test_a_graph_with_a_fixed_batch_of_one_looks_at_many_frames_one_by_one() -> None:
    frames = [scene(seed=seed) for seed in range(3)]
    fixed = tiny_bundle(model=tiny_onnx(batch=BatchMode.FIXED), input={"batch": BatchMode.FIXED})
    free = OnnxDetector.open(tiny_bundle(), device="cpu").detect(frames)
    for one, other in zip(OnnxDetector.open(fixed, device="cpu").detect(frames), free, strict=True):
        np.testing.assert_allclose(one.detections.scores, other.detections.scores, atol=1e-5)


def test_more_frames_than_the_largest_batch_are_all_answered() -> None:
    frames = [scene(seed=seed) for seed in range(LARGEST_BATCH + 3)]
    detector = OnnxDetector.open(tiny_bundle(), device="cpu")
    answers = detector.detect(frames)
    assert len(answers) == len(frames)
    last = detector.detect(frames[-1:])[0]
    np.testing.assert_allclose(answers[-1].detections.scores, last.detections.scores, atol=1e-5)


def test_answers_are_calibrated_and_candidates_stay_raw() -> None:
    bundle = tiny_bundle(answer_min_score=0.0)
    halved = bundle.with_calibration(ScoreCalibration(PlattCurve(1.0, -2.0)))
    raw = OnnxDetector.open(bundle, device="cpu").detect([scene()])[0]
    calibrated = OnnxDetector.open(halved, device="cpu").detect([scene()])[0]
    np.testing.assert_array_equal(raw.candidates.class_scores, calibrated.candidates.class_scores)
    assert (calibrated.detections.scores < raw.detections.scores).all()
    assert calibrated.detections.model == halved.ref


def test_suppression_settings_can_be_given_at_open() -> None:
    few = OnnxDetector.open(tiny_bundle(), device="cpu", nms=NmsSettings(max_boxes=5)).detect([scene()])[0]
    assert len(few.candidates) == 5


def test_timings_cover_the_call() -> None:
    detector = OnnxDetector.open(tiny_bundle(), device="cpu")
    inferences, timings = detector.detect_timed([scene(), scene(seed=1)])
    assert len(inferences) == 2
    assert min(timings.preprocess_ms, timings.run_ms, timings.decode_ms) > 0
    assert timings.total_ms == pytest.approx(timings.preprocess_ms + timings.run_ms + timings.decode_ms)
    assert detector.detect_timed([])[1].total_ms == 0


@pytest.mark.parametrize(
    ("layout", "model", "changes", "word"),
    [
        (Layout.CUT, {}, {"labels": TINY_LABELS[:2]}, "2 labels"),
        (Layout.CUT, {}, {"labels": (*TINY_LABELS, "bus")}, "4 labels"),
        (Layout.ONE_TO_MANY, {}, {"labels": TINY_LABELS[:2]}, "2 labels"),
        (Layout.YOLOX, {}, {"labels": (*TINY_LABELS, "bus")}, "4 labels"),
        (Layout.CUT, {"input_hw": (96, 96)}, {}, "images float32"),
        (Layout.CUT, {"input_hw": (64, 96)}, {}, "images float32"),
        (Layout.CUT, {"tensor_layout": TensorLayout.NHWC}, {}, "expected shape"),
        (Layout.CUT, {"dtype": InputDtype.UINT8}, {}, "uint8"),
        (Layout.CUT, {"batch": BatchMode.FIXED}, {}, "expected shape"),
        (Layout.CUT, {"reg_max": 2}, {}, "output boxes"),
        (Layout.CUT, {}, {"output": {"strides": (8, 16)}}, "strides"),
        (Layout.CUT, {}, {"output": {"tensors": ("logits", "boxes")}}, "output logits"),
        (Layout.CUT, {}, {"output": {"tensors": ("boxes", "scores")}}, "expected scores"),
        (Layout.CUT, {}, {"input": {"tensor": "image"}}, "expected image"),
        (Layout.ONE_TO_MANY, {}, {"output": {"layout": Layout.END_TO_END}}, "end_to_end"),
        (Layout.END_TO_END, {}, {"output": {"layout": Layout.ONE_TO_MANY}}, "one_to_many"),
    ],
)  # fmt: skip
def test_a_graph_that_is_not_what_its_manifest_says_is_refused_when_it_opens(
    layout: Layout, model: dict[str, Any], changes: dict[str, Any], word: str
) -> None:
    bundle = tiny_bundle(layout, tiny_onnx(layout, **model), **changes)
    with pytest.raises(Incompatible, match=word):
        OnnxDetector.open(bundle, device="cpu")


def test_a_class_beyond_the_label_list_of_an_end_to_end_model_fails_and_is_not_answered() -> None:
    bundle = tiny_bundle(Layout.END_TO_END, tiny_onnx(Layout.END_TO_END, classes=9))
    detector = OnnxDetector.open(bundle, device="cpu")
    with pytest.raises(DetectorFailed, match="0 to 2"):
        detector.detect([scene()])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_flipped_bit_in_a_bundle_with_a_real_model_never_reaches_the_runtime(data: st.DataObject) -> None:
    damaged = bytearray(REAL_BYTES)
    position = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[position // 8] ^= 1 << position % 8
    try:
        opened = type(REAL).from_bytes(bytes(damaged))
    except FoveaError:
        return
    assert opened.model == REAL.model


REAL = tiny_bundle()
REAL_BYTES = REAL.to_bytes()


def candidates(boxes: list[list[float]], scores: list[list[float]]) -> Candidates:
    return Candidates(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32).reshape(-1, 3),
        ScoreKind.PER_CLASS,
        LabelSet.from_names(TINY_LABELS),
        ImageSize(100, 50),
    )


def test_two_views_of_one_thing_become_one_box_with_the_mean_score() -> None:
    plain = candidates([[10, 10, 30, 30]], [[0.8, 0.2, 0.0]])
    mirrored = candidates([[70, 10, 90, 30]], [[0.6, 0.4, 0.0]])
    merged = merge_views(plain, mirrored, 300)
    np.testing.assert_allclose(merged.boxes_xyxy, [[10, 10, 30, 30]], atol=1e-4)
    np.testing.assert_allclose(merged.class_scores, [[0.7, 0.3, 0.0]], atol=1e-6)


def test_a_thing_that_one_view_missed_keeps_half_its_score() -> None:
    merged = merge_views(candidates([[10, 10, 30, 30]], [[0.8, 0.2, 0.0]]), candidates([], []), 300)
    np.testing.assert_allclose(merged.class_scores, [[0.4, 0.1, 0.0]], atol=1e-6)
    turned = merge_views(candidates([], []), candidates([[70, 10, 90, 30]], [[0.0, 0.0, 0.8]]), 300)
    np.testing.assert_allclose(turned.boxes_xyxy, [[10, 10, 30, 30]], atol=1e-4)
    assert len(merge_views(candidates([], []), candidates([], []), 300)) == 0


def test_the_mirrored_view_makes_the_answer_to_a_mirrored_frame_the_mirrored_answer() -> None:
    detector = OnnxDetector.open(tiny_bundle(tta=(View.HFLIP,)), device="cpu")
    frame = scene(64, 64)
    seen = detector.detect([frame])[0].detections
    turned = detector.detect([np.ascontiguousarray(frame[:, ::-1])])[0].detections
    assert len(seen) == len(turned) > 0
    np.testing.assert_allclose(np.sort(seen.scores), np.sort(turned.scores), atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("answer_min_score", [0.0, 0.05, 0.3])
def test_without_the_candidates_that_are_in_no_answer_every_answer_stays_the_same(
    layout: Layout, answer_min_score: float
) -> None:
    calibration = calibration_to_json(
        ScoreCalibration(PlattCurve(1.3, 0.4), {TINY_IDS[0]: PlattCurve(0.6, -1.0)})
    )
    bundle = tiny_bundle(
        layout,
        parts={CALIBRATION: calibration},
        answer_min_score=answer_min_score,
    )
    whole, lean = (
        OnnxDetector.open(bundle, "cpu"),
        OnnxDetector.open(bundle, "cpu", nms=nms_for_answers(bundle)),
    )
    frames = [scene(90, 120, seed) for seed in range(6)]
    left_out = 0
    for frame in frames:
        [wanted], [got] = whole.detect([frame]), lean.detect([frame])
        for name in ("boxes_xyxy", "scores", "class_ids"):
            np.testing.assert_array_equal(getattr(got.detections, name), getattr(wanted.detections, name))
        left_out += np.count_nonzero(wanted.candidates.class_scores)
        left_out -= np.count_nonzero(got.candidates.class_scores)
    assert left_out >= 0 and (left_out > 0 or answer_min_score < 0.3)
    whole.close()
    lean.close()


def test_candidates_that_somebody_looks_at_stay() -> None:
    bundle = tiny_bundle(answer_min_score=0.5)
    lowest = bundle.manifest.nms.settings().min_score
    assert nms_for_answers(bundle).min_score == pytest.approx(0.5, rel=0.01)
    assert nms_for_answers(bundle, looked_at_from=0.2).min_score == pytest.approx(0.2, rel=0.01)
    assert nms_for_answers(bundle, looked_at_from=0.0).min_score == lowest
    # A box that two views are weakly sure of is one that is in the answer.
    assert nms_for_answers(tiny_bundle(answer_min_score=0.5, tta=(View.HFLIP,))).min_score == lowest
