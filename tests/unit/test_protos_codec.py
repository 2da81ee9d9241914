"""What is written is read back as it was, and whatever else comes in is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fovea.core.arrays import FloatArray
from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed, RejectedError, TooLarge
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import Label, LabelSet
from fovea.core.mosaic import Mosaic, Tile
from fovea.core.routing import Tier
from protos.calls import (
    Delivery,
    DeliveryReceipt,
    Description,
    DetectAnswer,
    DetectQuestion,
    Priority,
    ServiceLimits,
    Timings,
)
from protos.codec import (
    answer_from_bytes,
    answer_to_bytes,
    delivery_from_bytes,
    delivery_to_bytes,
    description_from_bytes,
    description_to_bytes,
    question_from_bytes,
    question_to_bytes,
    receipt_from_bytes,
    receipt_to_bytes,
)
from protos.gen import cases_pb2 as wire_cases
from protos.gen import detect_pb2 as wire
from protos.message_parts import candidates_from_message, candidates_to_message, detections_from_message

REF = ModelRef("street", "1.2", "ab" * 32)
LABELS = LabelSet.from_names(["person", "car", "forklift"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SHARES = st.floats(0, 1, width=32)
SIZES = st.builds(ImageSize, st.integers(1, 2**24), st.integers(1, 2**24))
REFS = st.builds(ModelRef, NAMES, NAMES, st.binary(min_size=32, max_size=32).map(bytes.hex))
FRAME_IDS = st.builds(FrameId, NAMES, NAMES, st.integers(0, 2**63 - 1))
INSTANTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))
LABEL_SETS = (
    st.dictionaries(st.integers(0, 2**31 - 1), NAMES, min_size=1, max_size=5)
    .filter(lambda names: len(set(names.values())) == len(names))
    .map(lambda names: LabelSet(tuple(Label(*item) for item in names.items())))
)


def boxes_of(count: int) -> st.SearchStrategy[FloatArray]:
    numbers = st.floats(-(2.0**20), 2.0**20, width=32)
    return hnp.arrays(np.float32, (count, 2, 2), elements=numbers).map(
        lambda corners: np.sort(corners, axis=1).reshape(-1, 4)
    )


@st.composite
def detections_of(draw: st.DrawFn, sizes: st.SearchStrategy[ImageSize] = SIZES) -> Detections:
    count = draw(st.integers(0, 5))
    return Detections(
        draw(boxes_of(count)),
        draw(hnp.arrays(np.float32, count, elements=SHARES)),
        draw(hnp.arrays(np.int32, count, elements=st.integers(0, 2**31 - 1))),
        draw(sizes),
        draw(REFS),
    )


@st.composite
def candidates_of(draw: st.DrawFn, sizes: st.SearchStrategy[ImageSize] = SIZES) -> Candidates:
    count, labels, kind = draw(st.integers(0, 5)), draw(LABEL_SETS), draw(st.sampled_from(ScoreKind))
    scores = draw(hnp.arrays(np.float32, (count, len(labels)), elements=SHARES))
    if kind is ScoreKind.ONE_PER_BOX:
        scores[:, 1:] = 0
    return Candidates(draw(boxes_of(count)), scores, kind, labels, draw(sizes))


@st.composite
def tier_answers(draw: st.DrawFn, sizes: st.SearchStrategy[ImageSize] = SIZES) -> tuple[TierAnswer, ...]:
    size = st.just(draw(sizes))
    tiers = draw(st.lists(st.sampled_from(Tier), unique=True, max_size=3))
    return tuple(TierAnswer(tier, draw(detections_of(size)), draw(LABEL_SETS)) for tier in tiers)


PICTURES = st.binary(min_size=1, max_size=40) | hnp.arrays(
    np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(3))
)
PROBABILITIES = st.floats(0, 1, exclude_min=True)
REASONS = st.lists(NAMES, max_size=3).map(tuple)


def size_of_picture(picture: Any) -> st.SearchStrategy[ImageSize]:
    return SIZES if isinstance(picture, bytes) else st.just(ImageSize(picture.shape[1], picture.shape[0]))


QUESTIONS = PICTURES.flatmap(
    lambda picture: st.builds(
        DetectQuestion,
        image=st.just(picture),
        frame_id=st.none() | FRAME_IDS,
        captured_at=st.none() | INSTANTS,
        captured_mono_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        wants_candidates=st.booleans(),
        priority=st.sampled_from(Priority),
        answers=tier_answers(size_of_picture(picture)),
        reasons=REASONS,
        send_probability=st.none() | PROBABILITIES,
    )
)
MOSAIC = Mosaic(
    ImageSize(200, 100), ImageSize(112, 64), (Tile(0, 0, 48, 64, 0, 0), Tile(100, 36, 48, 64, 64, 0))
)
CASES = st.builds(
    HardCase,
    jpeg=st.binary(min_size=1, max_size=40),
    frame_id=FRAME_IDS,
    captured_at=INSTANTS,
    answers=tier_answers(),
    reasons=st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    send_probability=PROBABILITIES,
)
MILLISECONDS = st.floats(0, 2.0**20, width=32)


@st.composite
def answers(draw: st.DrawFn) -> DetectAnswer:
    size = st.just(draw(SIZES))
    return DetectAnswer(
        detections=draw(detections_of(size)),
        model=draw(REFS),
        labels=draw(LABEL_SETS),
        candidates=draw(st.none() | candidates_of(size)),
        revision=draw(st.integers(0, 2**32 - 1)),
        is_degraded=draw(st.booleans()),
        timings=draw(st.builds(Timings, *[MILLISECONDS] * 4)),
        answers=draw(tier_answers(size)),
    )


ARRAY_CARRIERS = Detections | Candidates | DetectQuestion | DetectAnswer | TierAnswer | HardCase | Delivery


def same(one: Any, other: Any) -> bool:
    """Equality to the bit, through dataclasses, for the types that carry arrays."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and (one == other).all())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, ARRAY_CARRIERS):
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in type(one).__dataclass_fields__
        )
    return bool(one == other)


@given(QUESTIONS)
def test_a_question_is_read_as_it_was_written(question: DetectQuestion) -> None:
    assert same(question_from_bytes(question_to_bytes(question)), question)


def test_a_question_about_parts_keeps_their_layout_and_its_answers_are_about_the_frame() -> None:
    own = TierAnswer(
        Tier.AGENT, Detections.empty(MOSAIC.frame_size, REF), LabelSet.coco(), MOSAIC.regions_xyxy
    )
    asked = DetectQuestion(np.zeros((64, 112, 3), np.uint8), mosaic=MOSAIC, answers=(own,))
    read = question_from_bytes(question_to_bytes(asked))
    assert same(read, asked) and read.mosaic == MOSAIC
    assert not read.answers[0].is_whole
    of_the_picture = TierAnswer(Tier.AGENT, Detections.empty(MOSAIC.size, REF), LabelSet.coco())
    with pytest.raises(Malformed, match="one image size"):
        DetectQuestion(np.zeros((64, 112, 3), np.uint8), mosaic=MOSAIC, answers=(of_the_picture,))


@given(answers())
def test_an_answer_is_read_as_it_was_written(answer: DetectAnswer) -> None:
    assert same(answer_from_bytes(answer_to_bytes(answer)), answer)


@given(CASES.map(Delivery))
def test_a_case_is_read_as_it_was_written_and_keeps_its_id(delivery: Delivery) -> None:
    read = delivery_from_bytes(delivery_to_bytes(delivery))
    assert same(read, delivery)
    assert read.case.id == delivery.case.id


@given(st.builds(DeliveryReceipt, st.binary(min_size=32, max_size=32).map(bytes.hex), st.booleans()))
def test_a_receipt_is_read_as_it_was_written(receipt: DeliveryReceipt) -> None:
    assert receipt_from_bytes(receipt_to_bytes(receipt)) == receipt


@given(st.builds(Description, REFS, LABEL_SETS, st.builds(ServiceLimits, st.integers(1, 2**31 - 1))))
def test_a_description_is_read_as_it_was_written(description: Description) -> None:
    assert description_from_bytes(description_to_bytes(description)) == description


def test_weak_scores_cost_nothing_on_the_wire() -> None:
    scores = np.zeros((300, 80), np.float32)
    scores[np.arange(300), np.arange(300) % 80] = 0.5
    boxes = np.zeros((300, 4), np.float32)
    seen = Candidates(boxes, scores, ScoreKind.PER_CLASS, LabelSet.coco(), ImageSize(1280, 720))
    assert candidates_to_message(seen).ByteSize() < 10_000 < scores.nbytes


def test_pixels_that_were_read_are_read_only_and_hold_no_copy_of_more_than_themselves() -> None:
    question = question_from_bytes(question_to_bytes(DetectQuestion(np.full((2, 3, 3), 7, np.uint8))))
    assert isinstance(question.image, np.ndarray) and not question.image.flags.writeable
    assert question.image.shape == (2, 3, 3)


def detections(**changes: Any) -> wire.Detections:
    fields: dict[str, Any] = {
        "boxes_xyxy": [0, 0, 9, 9],
        "scores": [0.5],
        "class_ids": [2],
        "image_size": wire.ImageSize(width=10, height=10),
        "model": wire.ModelRef(name="m", version="1", sha256="ab" * 32),
    }
    return wire.Detections(**fields | changes)


def candidates(**changes: Any) -> wire.Candidates:
    fields: dict[str, Any] = {
        "boxes_xyxy": [0, 0, 9, 9, 1, 1, 5, 5],
        "pair_boxes": [0, 1],
        "pair_channels": [1, 0],
        "pair_scores": [0.5, 0.25],
        "kind": wire.SCORE_KIND_PER_CLASS,
        "labels": [wire.Label(id=0, name="person"), wire.Label(id=2, name="car")],
        "image_size": wire.ImageSize(width=10, height=10),
    }
    return wire.Candidates(**fields | changes)


NAN = float("nan")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"boxes_xyxy": [0, 0, 9]}, "detections boxes_xyxy: expected 4 numbers for each box, got 3 in all"),
        ({"boxes_xyxy": [0, 0, 9, NAN]}, "detections boxes_xyxy: expected finite values, got nan"),
        ({"boxes_xyxy": [9, 0, 0, 9]}, "detections boxes_xyxy: expected x1 <= x2"),
        ({"boxes_xyxy": []}, r"detections scores: expected shape \(0\), got \(1,\)"),
        ({"scores": [NAN]}, "detections scores: expected finite values, got nan"),
        ({"scores": [1.5]}, "detections scores: expected 0 to 1"),
        ({"scores": []}, r"detections scores: expected shape \(1\), got \(0,\)"),
        ({"class_ids": [-1]}, "detections class_ids: expected 0 or more"),
        ({"class_ids": []}, r"detections class_ids: expected shape \(1\), got \(0,\)"),
        ({"image_size": None}, "image size width: expected 1 to 16777216 whole px, got 0"),
        (
            {"image_size": wire.ImageSize(width=2**32 - 1, height=1)},
            "image size width: expected 1 to 16777216",
        ),
        ({"model": None}, "model ref: expected a name and a version"),
        ({"model": wire.ModelRef(name="m", version="1", sha256="x")}, "model ref: expected a sha256"),
    ],
)
def test_malformed_detections_are_refused_and_the_field_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        detections_from_message(detections(**changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": 0}, r"candidates kind: expected one of \[1, 2\], got 0"),
        ({"kind": 99}, r"candidates kind: expected one of \[1, 2\], got 99"),
        ({"kind": 2, "pair_boxes": [0, 0]}, "candidates class_scores: expected one score per box"),
        (
            {"pair_boxes": [0, 2]},
            "candidates pairs: expected boxes below 2 and channels below 2, got 2 and 1",
        ),
        ({"pair_channels": [0, 2**32 - 1]}, "candidates pairs: expected boxes below 2 and channels below 2"),
        (
            {"pair_scores": [0.5]},
            "candidates pairs: expected as many boxes as channels and scores, got 2, 2 and 1",
        ),
        (
            {"pair_boxes": [0, 0], "pair_channels": [1, 1]},
            "candidates pairs: expected each pair of box and channel",
        ),
        ({"pair_scores": [0.5, NAN]}, "candidates class_scores: expected finite values, got nan"),
        ({"pair_scores": [0.5, -1]}, "candidates class_scores: expected 0 to 1"),
        ({"boxes_xyxy": []}, "candidates pairs: expected boxes below 0"),
        ({"boxes_xyxy": [1]}, "candidates boxes_xyxy: expected 4 numbers for each box"),
        ({"labels": []}, "labels: expected at least one"),
        (
            {"labels": [wire.Label(id=1, name="a"), wire.Label(id=1, name="b")]},
            "labels: 'b' and 'a' share the id 1",
        ),
        ({"labels": [wire.Label(id=-1, name="a")]}, "label: expected a name and an id"),
        ({"labels": [wire.Label(id=1)]}, "label: expected a name and an id"),
        ({"image_size": None}, "image size width: expected 1"),
    ],
)
def test_malformed_candidates_are_refused_and_the_field_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        candidates_from_message(candidates(**changes))


def test_a_few_bytes_cannot_ask_for_gigabytes() -> None:
    many = [wire.Label(id=index, name=f"label {index}") for index in range(50_000)]
    with pytest.raises(TooLarge, match="expected at most 4000000 scores, got 100 x 50000"):
        candidates_from_message(candidates(boxes_xyxy=[0] * 400, labels=many))


def tier_answer(**changes: Any) -> wire.TierAnswer:
    fields: dict[str, Any] = {
        "tier": 0,
        "detections": detections(),
        "labels": [wire.Label(id=2, name="car")],
    }
    return wire.TierAnswer(**fields | changes)


def test_a_tier_answers_with_a_thousand_boxes_at_most() -> None:
    def question(boxes: int) -> bytes:
        seen = detections(boxes_xyxy=[1, 1, 2, 2] * boxes, scores=[0.5] * boxes, class_ids=[2] * boxes)
        return wire.DetectRequest(encoded=b"x", answers=[tier_answer(detections=seen)]).SerializeToString()

    assert len(question_from_bytes(question(1000)).answers[0].detections) == 1000
    with pytest.raises(TooLarge, match="expected at most 1000 boxes, got 1001"):
        question_from_bytes(question(1001))


def mosaic(**changes: Any) -> wire.Mosaic:
    """Of a frame of 20x10 px; one tile, which is all of the picture."""
    fields: dict[str, Any] = {
        "frame_size": wire.ImageSize(width=20, height=10),
        "size": wire.ImageSize(width=8, height=8),
        "tiles": [wire.Tile(width=8, height=8)],
    }
    return wire.Mosaic(**fields | changes)


def elsewhere() -> wire.Detections:
    """Detections in a picture of another size."""
    return detections(image_size=wire.ImageSize(width=11, height=10))


def delivery(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "jpeg": b"x",
        "frame_id": wire.FrameId(camera="c", boot_id="b"),
        "captured_at": {"seconds": 1},
        "reasons": ["audit"],
        "send_probability": 0.5,
    }
    return wire_cases.DeliverRequest(case=wire_cases.HardCase(**fields | changes)).SerializeToString()


def question(**changes: Any) -> bytes:
    return wire.DetectRequest(**{"encoded": b"x"} | changes).SerializeToString()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "question: expected an image, got none"),
        (b"\xff\xff\xff", "question: expected a fovea.v1.DetectRequest message"),
        (b"\x0a\x05\x0a\x03\xff\xfe\xfd", "question: expected a fovea.v1.DetectRequest message"),  # not UTF-8
        (question(encoded=b""), "question image: expected an image file, got no bytes"),
        (question(frame_id=wire.FrameId()), "frame id: expected a camera and a boot id"),
        (
            question(frame_id=wire.FrameId(camera="c", boot_id="b", sequence=2**64 - 1)),
            r"frame id sequence: expected 0 to 2\*\*63 - 1",
        ),
        (question(captured_mono_s=NAN), "question captured_mono_s: expected a finite number, got nan"),
        (
            question(captured_at={"seconds": 2**62}),
            "question captured_at: expected a time between years 1 and 9999",
        ),
        (question(captured_at={"seconds": -(2**62)}), "question captured_at: expected a time between years"),
        (question(captured_at={"nanos": -1}), "question captured_at: expected a time between years"),
        (question(mosaic=wire.Mosaic()), "image size width: expected 1 to"),
        (question(mosaic=mosaic(tiles=[])), "mosaic: expected 1 to 32 tiles, got 0"),
        (question(mosaic=mosaic(tiles=[wire.Tile()] * 33)), "mosaic: expected at most 32 tiles, got 33"),
        (question(mosaic=mosaic(tiles=[wire.Tile(width=9)])), "tile: expected sides of 1 px or more"),
        (
            question(mosaic=mosaic(tiles=[wire.Tile(width=99, height=9)])),
            "mosaic: expected tiles within the frame of 20x10 px",
        ),
        (
            wire.DetectRequest(
                mosaic=mosaic(), raw=wire.RawImage(size=wire.ImageSize(width=1, height=1), bgr=b"xxx")
            ).SerializeToString(),
            "question image: expected a mosaic of 8x8 px, got 1x1",
        ),
        (
            question(answers=[tier_answer(looked=[wire.Box(x1=5)])]),
            "tier answer looked_xyxy: expected x1 <= x2",
        ),
        (
            question(answers=[tier_answer(looked=[wire.Box(x2=NAN)])]),
            "tier answer looked_xyxy: expected finite values",
        ),
        (question(answers=[tier_answer(tier=3)]), r"tier: expected one of \[0, 1, 2\], got 3"),
        (question(answers=[tier_answer(detections=None)]), "image size width"),
        (question(answers=[tier_answer(labels=[])]), "labels: expected at least one"),
        (question(answers=[tier_answer()] * 2), "question answers: expected one of each tier at most"),
        (
            question(answers=[tier_answer(), tier_answer(tier=1, detections=elsewhere())]),
            "question answers: expected one image size, got ",
        ),
        (question(reasons=[""]), "question reasons: expected words, got an empty one"),
        (question(send_probability=0), "question send_probability: expected more than 0 up to 1, got 0"),
        (question(send_probability=NAN), "question send_probability: expected more than 0 up to 1, got nan"),
        (question(raw=wire.RawImage(bgr=b"abc")), "image size width: expected 1"),
        (
            question(raw=wire.RawImage(size=wire.ImageSize(width=2, height=2), bgr=b"abc")),
            "question raw image: expected 2x2 px of 3 bytes, got 3 bytes",
        ),
    ],
)
def test_malformed_questions_are_refused_and_the_field_is_named(data: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        question_from_bytes(data)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "hard case captured_at: expected a time, got none"),
        (b"\xff\xff\xff", "delivery: expected a fovea.v1.DeliverRequest message"),
        (delivery(jpeg=b""), "hard case: expected an image file, got no bytes"),
        (delivery(frame_id=None), "frame id: expected a camera and a boot id"),
        (delivery(captured_at={"seconds": 2**62}), "hard case captured_at: expected a time between years 1"),
        (delivery(answers=[tier_answer(), tier_answer()]), "hard case answers: expected one of each tier"),
        (delivery(reasons=[]), "hard case: expected at least one reason, got none"),
        (delivery(send_probability=None), "hard case send_probability: expected more than 0 up to 1, got 0"),
    ],
)
def test_malformed_cases_are_refused_and_the_field_is_named(data: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        delivery_from_bytes(data)


@pytest.mark.parametrize("case_id", ["", "../../etc/passwd", "AB" * 32, "ab" * 31])
def test_a_receipt_for_what_is_no_digest_is_malformed(case_id: str) -> None:
    with pytest.raises(Malformed, match=r"^delivery receipt id: expected 64 hex digits, got "):
        receipt_from_bytes(wire_cases.DeliverResponse(id=case_id).SerializeToString())


def test_what_the_camera_saw_in_the_field_of_an_older_version_is_passed_over() -> None:
    of_older = b"\x3a\x02\x0a\x00"  # field 7, that is reserved now
    assert question_from_bytes(question() + of_older).answers == ()


def test_a_priority_of_a_newer_client_is_a_normal_one() -> None:
    assert question_from_bytes(question(priority=99)).priority is Priority.NORMAL
    assert question_from_bytes(question()).priority is Priority.NORMAL


def test_fields_of_a_newer_version_do_not_hurt() -> None:
    unknown = b"\xfa\x3e\x03abc"  # field 1007
    assert question_from_bytes(question() + unknown).image == b"x"


READERS: dict[Callable[[bytes], Any], type] = {
    question_from_bytes: DetectQuestion,
    answer_from_bytes: DetectAnswer,
    description_from_bytes: Description,
    delivery_from_bytes: Delivery,
    receipt_from_bytes: DeliveryReceipt,
}
WRITTEN = (
    QUESTIONS.map(question_to_bytes)
    | answers().map(answer_to_bytes)
    | CASES.map(lambda case: delivery_to_bytes(Delivery(case)))
)


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes_are_a_value_or_a_refusal(data: bytes) -> None:
    for read, kind in READERS.items():
        try:
            assert isinstance(read(data), kind)
        except RejectedError:
            continue


@given(WRITTEN, st.data())
def test_a_damaged_message_is_a_value_or_a_refusal(message: bytes, data: st.DataObject) -> None:
    damaged = bytearray(message)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for read, kind in READERS.items():
        try:
            assert isinstance(read(bytes(damaged[: data.draw(st.integers(0, len(damaged)))])), kind)
        except RejectedError:
            continue


def test_half_a_character_in_a_name_cannot_be_written_and_that_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"^question: not to be written as a message: "):
        question_to_bytes(DetectQuestion(b"x", frame_id=FrameId("\ud800", "b", 1)))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: DetectQuestion(b""), "question image: expected an image file"),
        (lambda: DetectQuestion(np.zeros((2, 2), np.uint8)), "pixels: expected a uint8 array"),
        (
            lambda: DetectQuestion(b"x", captured_at=datetime(2030, 1, 1)),
            "question captured_at: expected a time with",
        ),
        (lambda: Timings(queue_ms=-1), "timings: expected finite milliseconds"),
        (lambda: Timings(infer_ms=NAN), "timings: expected finite milliseconds"),
        (lambda: ServiceLimits(max_pixels=0), "service limits: expected numbers above 0"),
        (lambda: answered(revision=-1), "answer revision: expected 0 or more, got -1"),
        (
            lambda: answered(answers=(seen_by(Tier.EDGE), seen_by(Tier.EDGE))),
            r"answer answers: expected one of each tier at most, got tiers \[1, 1\]",
        ),
        (
            lambda: answered(answers=(seen_by(Tier.EDGE, ImageSize(9, 8)),)),
            "answer answers: expected one image size, got ",
        ),
        (
            lambda: DetectQuestion(np.zeros((2, 3, 3), np.uint8), answers=(seen_by(Tier.AGENT),)),
            "question answers: expected one image size, got ",
        ),
        (
            lambda: answered(candidates=nothing(ImageSize(9, 8))),
            "answer candidates: expected the image size of",
        ),
    ],
)
def test_values_that_make_no_sense_are_malformed(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        make()


def nothing(size: ImageSize) -> Candidates:
    return Candidates(np.empty((0, 4)), np.empty((0, 3)), ScoreKind.PER_CLASS, LABELS, size)  # type: ignore[arg-type]


def answered(**changes: Any) -> DetectAnswer:
    return DetectAnswer(Detections.empty(ImageSize(8, 8), REF), REF, LABELS, **changes)


def seen_by(tier: Tier, size: ImageSize = ImageSize(8, 8)) -> TierAnswer:
    return TierAnswer(tier, Detections.empty(size, REF), LABELS)
