"""Decoders against slow loops written from the papers, and against networks that put out nonsense."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fovea.core.arrays import FloatArray
from fovea.core.detections import ScoreKind
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox
from fovea.core.yolo import (
    RawBoxes,
    candidates_of,
    decode_cut,
    decode_end_to_end,
    decode_one_to_many,
    decode_yolox,
    sigmoid,
)

INPUT = ImageSize(64, 32)
STRIDES = (8, 16, 32)
ANCHORS = 8 * 4 + 4 * 2 + 2 * 1
CLASSES = 3
LABELS = LabelSet.from_names(["person", "car", "forklift"])
LETTERBOX = Letterbox.fit(ImageSize(128, 64), INPUT)


@pytest.fixture(autouse=True)
def _a_warning_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def cells() -> Iterator[tuple[int, float, float, int]]:
    """Anchor number, cell column and row, stride: level by level, each row by row."""
    anchor = 0
    for stride in STRIDES:
        for row in range(INPUT.height // stride):
            for column in range(INPUT.width // stride):
                yield anchor, column, row, stride
                anchor += 1


def plain_sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


def plain_cut(
    boxes: Any, logits: Any, bins: int, min_score: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Ultralytics' Detect head: softmax over the bins, its mean, left, top, right, bottom from the centre."""
    corners, scores = [], []
    for anchor, column, row, stride in cells():
        chances = [plain_sigmoid(float(logit)) for logit in logits[:, anchor]]
        if max(chances) < min_score:
            continue
        sides = []
        for side in range(4):
            values = [float(value) for value in boxes[side * bins : (side + 1) * bins, anchor]]
            powers = [math.exp(value - max(values)) for value in values]
            mean = sum(index * power for index, power in enumerate(powers)) / sum(powers)
            sides.append(mean if bins > 1 else values[0])
        left, top, right, bottom = sides
        x, y = column + 0.5, row + 0.5
        corners.append([(x - left) * stride, (y - top) * stride, (x + right) * stride, (y + bottom) * stride])
        scores.append(chances)
    return corners, scores


def plain_yolox(output: Any, min_score: float) -> tuple[list[list[float]], list[list[float]]]:
    corners, scores = [], []
    for anchor, column, row, stride in cells():
        dx, dy, log_width, log_height, objectness, *classes = (float(value) for value in output[anchor])
        chances = [objectness * chance for chance in classes]
        if max(chances) < min_score:
            continue
        x, y = (column + dx) * stride, (row + dy) * stride
        width, height = math.exp(log_width) * stride, math.exp(log_height) * stride
        corners.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        scores.append(chances)
    return corners, scores


def same(raw: RawBoxes, expected: tuple[list[list[float]], list[list[float]]]) -> None:
    corners, scores = expected
    assert raw.boxes_xyxy.dtype == raw.class_scores.dtype == np.float32
    assert raw.boxes_xyxy.shape == (len(corners), 4)
    assert np.allclose(raw.boxes_xyxy, np.reshape(corners, (-1, 4)), atol=1e-3)
    assert np.allclose(raw.class_scores, np.reshape(scores, (-1, CLASSES)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bins", [1, 16])
@pytest.mark.parametrize("min_score", [0.001, 0.3, 0.999])
def test_cut_graph_is_decoded_as_ultralytics_does(bins: int, min_score: float) -> None:
    random = np.random.default_rng(bins)
    boxes = random.uniform(0, 6, (4 * bins, ANCHORS)).astype(np.float32)
    logits = random.normal(-4, 4, (CLASSES, ANCHORS)).astype(np.float32)
    raw = decode_cut(boxes, logits, INPUT, STRIDES, min_score)
    assert raw.kind is ScoreKind.PER_CLASS
    same(raw, plain_cut(boxes, logits, bins, min_score))


def test_one_to_many_is_centre_and_size() -> None:
    output = np.array([[10, 30], [20, 5], [4, 8], [6, 2], [0.9, 0.0005], [0.1, 0.0004]], np.float32)
    raw = decode_one_to_many(output, 0.001)
    assert raw.boxes_xyxy.tolist() == [[8, 17, 12, 23]]
    assert raw.class_scores.tolist() == [pytest.approx([0.9, 0.1])]
    assert raw.kind is ScoreKind.PER_CLASS


def test_end_to_end_gives_one_score_in_the_channel_of_its_class() -> None:
    output = np.array([[1, 2, 3, 4, 0.9, 2], [5, 6, 7, 8, 0.5, 0], [0, 0, 0, 0, 0, -1]], np.float32)
    raw = decode_end_to_end(output, CLASSES, 0.001)
    assert raw.boxes_xyxy.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert raw.class_scores.tolist() == [pytest.approx([0, 0, 0.9]), pytest.approx([0.5, 0, 0])]
    assert raw.kind is ScoreKind.ONE_PER_BOX


@pytest.mark.parametrize("channel", [-1, 3, 80, 1e9])
def test_end_to_end_class_out_of_range_is_refused(channel: float) -> None:
    output = np.array([[1, 2, 3, 4, 0.9, channel]], np.float32)
    with pytest.raises(Malformed, match=r"^end-to-end output: expected classes 0 to 2, got "):
        decode_end_to_end(output, CLASSES, 0.001)


def test_end_to_end_class_that_is_a_hair_off_its_number_is_still_that_class() -> None:
    output = np.array([[1, 2, 3, 4, 0.9, 1.9999]], np.float32)
    assert decode_end_to_end(output, CLASSES, 0.001).class_scores[0].argmax() == 2


def test_yolox_is_decoded_as_the_plain_loop_does() -> None:
    random = np.random.default_rng(5)
    output = random.normal(0, 1, (ANCHORS, 5 + CLASSES)).astype(np.float32)
    output[:, 4:] = random.uniform(0, 1, (ANCHORS, 1 + CLASSES))
    raw = decode_yolox(output, INPUT, STRIDES, 0.3)
    assert 0 < len(raw.boxes_xyxy) < ANCHORS
    same(raw, plain_yolox(output, 0.3))


def test_a_negative_size_is_turned_the_right_way_round() -> None:
    raw = decode_one_to_many(np.array([[10], [20], [-4], [6], [0.9]], np.float32), 0.001)
    assert raw.boxes_xyxy.tolist() == [[8, 17, 12, 23]]


@pytest.mark.parametrize(
    ("decode", "shapes", "told"),
    [
        (
            decode_cut,
            [(4, 41), (3, 42)],
            r"boxes \(4R, 42\) and logits \(C, 42\) .*, got \(4, 41\) and \(3, 42\)",
        ),
        (decode_cut, [(4, 42), (3, 41)], r"got \(4, 42\) and \(3, 41\)"),
        (decode_cut, [(6, 42), (3, 42)], r"got \(6, 42\) and \(3, 42\)"),
        (decode_cut, [(0, 42), (3, 42)], r"got \(0, 42\) and \(3, 42\)"),
        (decode_cut, [(4, 42), (0, 42)], r"got \(4, 42\) and \(0, 42\)"),
        (decode_cut, [(1, 4, 42), (1, 3, 42)], r"got \(1, 4, 42\) and \(1, 3, 42\)"),
        (decode_cut, [(4, 42), (1, 3, 42)], r"got \(4, 42\) and \(1, 3, 42\)"),
        (decode_yolox, [(41, 8)], r"yolox output: expected \(42, 5 \+ C\) .*, got \(41, 8\)"),
        (decode_yolox, [(42, 5)], r"yolox output: expected \(42, 5 \+ C\) .*, got \(42, 5\)"),
        (decode_yolox, [(1, 42, 8)], r"yolox output: expected \(42, 5 \+ C\) .*, got \(1, 42, 8\)"),
    ],
)
def test_an_output_that_does_not_follow_from_the_input_is_malformed(
    decode: Callable[..., RawBoxes], shapes: list[tuple[int, ...]], told: str
) -> None:
    with pytest.raises(Malformed, match=told):
        decode(*(np.zeros(shape, np.float32) for shape in shapes), INPUT, STRIDES, 0.001)


@pytest.mark.parametrize("shape", [(4, 10), (1, 7, 10), (7,)])
def test_a_one_to_many_output_of_another_shape_is_malformed(shape: tuple[int, ...]) -> None:
    with pytest.raises(Malformed, match=r"^one-to-many output: expected \(4 \+ C, A\), got "):
        decode_one_to_many(np.zeros(shape, np.float32), 0.001)


@pytest.mark.parametrize("shape", [(10, 5), (10, 7), (1, 10, 6)])
def test_an_end_to_end_output_of_another_shape_is_malformed(shape: tuple[int, ...]) -> None:
    with pytest.raises(Malformed, match=r"^end-to-end output: expected \(N, 6\), got "):
        decode_end_to_end(np.zeros(shape, np.float32), CLASSES, 0.001)


def test_labels_that_do_not_go_with_the_channels_are_malformed() -> None:
    raw = decode_one_to_many(np.array([[10], [20], [4], [6], [0.9]], np.float32), 0.001)
    with pytest.raises(Malformed, match=r"^candidates class_scores: expected shape \(1, 3\), got \(1, 1\)"):
        candidates_of(raw, LETTERBOX, LABELS, NmsSettings())


WILD = st.one_of(
    st.floats(-10, 10, width=32),
    st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -1e30, 1e-40, 89.0, -89.0, 0.0]),
)


def wild(shape: tuple[int, ...]) -> st.SearchStrategy[FloatArray]:
    return hnp.arrays(
        np.float32, shape, elements=WILD, fill=st.sampled_from([-8.0, 0.5, np.nan]).map(np.float32)
    )


@st.composite
def wild_boxes(draw: st.DrawFn) -> RawBoxes:
    layout = draw(st.sampled_from(["cut-1", "cut-16", "one-to-many", "end-to-end", "yolox"]))
    if layout.startswith("cut"):
        bins = int(layout[4:])
        outputs = draw(wild((4 * bins, ANCHORS))), draw(wild((CLASSES, ANCHORS)))
        return decode_cut(*outputs, INPUT, STRIDES, 0.001)
    if layout == "one-to-many":
        return decode_one_to_many(draw(wild((4 + CLASSES, 20))), 0.001)
    if layout == "end-to-end":
        output = draw(wild((20, 6)))
        numbers = np.isfinite(output[:, 5])
        output[numbers, 5] = np.abs(output[numbers, 5]) % CLASSES // 1
        return decode_end_to_end(output, CLASSES, 0.001)
    return decode_yolox(draw(wild((ANCHORS, 5 + CLASSES))), INPUT, STRIDES, 0.001)


@settings(max_examples=300)
@given(wild_boxes())
def test_whatever_a_network_puts_out_candidates_are_finite_boxes_in_the_frame(raw: RawBoxes) -> None:
    seen = candidates_of(raw, LETTERBOX, LABELS, NmsSettings())
    boxes = seen.boxes_xyxy
    assert np.isfinite(boxes).all() and np.isfinite(seen.class_scores).all()
    assert (boxes >= 0).all() and (boxes <= [128, 64, 128, 64]).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    assert (seen.best_scores >= 0.001).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["boxes", "logits"])
@pytest.mark.parametrize("bins", [1, 16])
def test_one_broken_anchor_is_dropped_and_its_neighbours_stay(poison: float, place: str, bins: int) -> None:
    boxes = np.ones((4 * bins, ANCHORS), np.float32)
    boxes[1::16] = 1 if bins == 1 else 20  # a distance of one stride on every side
    logits = np.full((CLASSES, ANCHORS), -9, np.float32)
    logits[0, [3, 9, 30]] = 2
    whole = candidates_of(decode_cut(boxes, logits, INPUT, STRIDES, 0.001), LETTERBOX, LABELS, NmsSettings())
    (boxes if place == "boxes" else logits)[0, 9] = poison
    rest = candidates_of(decode_cut(boxes, logits, INPUT, STRIDES, 0.001), LETTERBOX, LABELS, NmsSettings())
    assert (len(whole), len(rest)) == (3, 2)
    assert {tuple(box) for box in rest.boxes_xyxy.tolist()} < {
        tuple(box) for box in whole.boxes_xyxy.tolist()
    }


def test_boxes_come_back_in_px_of_the_frame_and_those_in_the_padding_are_dropped() -> None:
    tall = Letterbox.fit(ImageSize(32, 64), INPUT)  # shown 16 px wide, 24 px of padding on each side
    raw = RawBoxes(
        np.array([[24, 0, 32, 16], [0, 0, 20, 20], [40, 0, 64, 32]], np.float32),
        np.array([[0.9, 0, 0], [0.8, 0, 0], [0.7, 0, 0]], np.float32),
        ScoreKind.PER_CLASS,
    )
    seen = candidates_of(raw, tall, LABELS, NmsSettings())
    assert seen.boxes_xyxy.tolist() == [[0, 0, 16, 32]]
    assert seen.image_size == ImageSize(32, 64)


def test_sigmoid_keeps_its_digits_where_it_is_small_and_never_overflows() -> None:
    logits = np.linspace(-60, 60, 501).astype(np.float32)
    expected = [plain_sigmoid(float(logit)) for logit in logits]
    assert sigmoid(logits) == pytest.approx(expected, rel=1e-6)
    ends = sigmoid(np.array([-np.inf, -3e38, 3e38, np.inf, np.nan], np.float32))
    assert ends[:2].max() < 1e-37 and ends[2:4].tolist() == [1, 1] and np.isnan(ends[4])
