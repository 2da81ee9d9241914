"""What ships beside the weights: a gate fitted on this very artefact, and measurements as it would run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibration.class_weights import class_weights_of
from calibration.truth import GroundTruth
from cloud.cases.stored_case import StoredCase
from cloud.learn.gate_fitting import AskedFrame, fit_gate_on, upper_answer
from cloud.learn.looked_at import KnownFrame, Seen, gate_of, is_asked, look
from cloud.learn.measure import figures_of, measure_pair
from cloud.learn.shipping import as_version, with_fitted_gate
from fovea.core.detections import Candidates, Detections, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.features import SceneFacts, frame_features
from fovea.core.frame import ImageSize
from fovea.core.gate import Opinion, RuleGate
from fovea.core.hard_case import TierAnswer
from fovea.core.learned_gate import LearnedGate
from fovea.core.routing import Reason, Tier
from fovea.runtime.bundle import GATE, Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from tests.builders import model_ref
from tests.learning_images import STREET, image, zoo
from tests.unit.hard_cases import hard_case
from tests.unit.labelled_cases import stores_in

SIZE = ImageSize(160, 90)
CAR = STREET.ids[2]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredCase]:
    with stores_in(tmp_path_factory.mktemp("kept")) as stores:
        [case_id] = stores.add(hard_case(1))
        yield stores.case(case_id)


@cache
def frames(case: StoredCase, count: int = 6) -> tuple[KnownFrame, ...]:
    """Frames with two cars each, and one that is empty."""
    made = []
    for number in range(count):
        one = image(number, boxes=2 if number else 0)
        truth = GroundTruth(one.boxes_xyxy, one.class_ids, np.zeros(len(one.class_ids), bool))
        made.append(KnownFrame(f"block-{number % 3}", one.jpeg, truth, case))
    return tuple(made)


def detections(boxes: list[list[float]], scores: list[float]) -> Detections:
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32),
        np.full(len(boxes), CAR, np.int32), SIZE, model_ref("camera"),
    )  # fmt: skip


def asked_frame(number: int, case: StoredCase) -> AskedFrame:
    """The student is sure of one car, and sees something where a second one is near."""
    rng = np.random.default_rng(number)
    is_hard = bool(number % 2)
    first, second = [10.0, 10.0, 50.0, 40.0], [80.0, 20.0, 130.0, 70.0]
    doubt = float(rng.uniform(0.1, 0.3))
    astray = [70.0, 0.0, 110.0, 30.0]
    weak = detections([first, astray] if is_hard else [first], [0.9, doubt] if is_hard else [0.9])
    there = [first, second] if is_hard else [first]
    truth = GroundTruth(
        np.array(there, np.float32), np.full(len(there), CAR, np.int32), np.zeros(len(there), bool)
    )
    told = weak.above(0.5)
    scores = np.array([[0, 0, score, 0, 0] for score in weak.scores.tolist()], np.float32)
    candidates = Candidates(weak.boxes_xyxy, scores, ScoreKind.PER_CLASS, STREET, SIZE)
    features = frame_features(candidates, told, SceneFacts(), weak=weak)
    known = KnownFrame(f"clip-{number // 4}", b"x" * 1000, truth, case)
    seen = Seen(known, candidates, weak, told, features, Opinion(0.0, None, (Reason.SURE,)))
    return AskedFrame(seen, TierAnswer(Tier.EDGE, detections(there, [0.95] * len(there)), STREET))


def test_a_gate_asks_where_the_tier_above_sees_more(case: StoredCase) -> None:
    fitted = fit_gate_on([asked_frame(number, case) for number in range(80)], STREET, asked_before=0.6)
    assert fitted.frames == 80
    assert fitted.share == pytest.approx(0.25)
    assert fitted.mean_gain > 0
    hard, easy = (fitted.gate.judge(asked_frame(number, case).seen.features) for number in (1, 0))
    assert (hard.expected_gain or 0) > (easy.expected_gain or 0)


def test_a_new_gate_asks_no_more_than_the_old_one(case: StoredCase) -> None:
    asked = [asked_frame(number, case) for number in range(80)]
    thrifty = fit_gate_on(asked, STREET, asked_before=0.1)
    usual = fit_gate_on(asked, STREET, asked_before=0.9)
    assert thrifty.share == pytest.approx(0.1)
    assert thrifty.gate.price.gain_per_byte >= usual.gate.price.gain_per_byte


def test_too_few_frames_are_no_gate(case: StoredCase) -> None:
    with pytest.raises(Malformed, match="60"):
        fit_gate_on([asked_frame(number, case) for number in range(20)], STREET, asked_before=0.2)


def test_rare_classes_weigh_more() -> None:
    ids = np.array([0] * 9 + [5], np.int32)
    weights = class_weights_of([GroundTruth(np.zeros((10, 4), np.float32), ids, np.zeros(10, bool))])
    assert weights[5] > weights[0]
    assert class_weights_of([GroundTruth.empty()]) == {}


def test_where_too_little_is_known_the_hand_set_gate_runs_and_says_why(case: StoredCase) -> None:
    champion = zoo("street-student-day-int8")
    made = with_fitted_gate(champion, champion, frames(case), {}, STREET)
    assert made.facts["form"] == "rules"
    assert "frame" in made.facts["why"]
    assert GATE not in made.bundle.parts
    assert isinstance(gate_of(made.bundle), RuleGate)


def test_a_new_model_carries_the_champions_golden_pictures_with_its_own_answers(case: StoredCase) -> None:
    champion, other = zoo("street-student-day-int8"), zoo("street-student-int8")
    made = with_fitted_gate(other.with_parts({GATE: None}), champion, frames(case), {}, STREET).bundle
    assert made.parts["golden/00.png"] == champion.parts["golden/00.png"]
    assert made.parts["golden/expected.json"] != champion.parts["golden/expected.json"]


def test_the_same_model_measured_twice_differs_in_nothing_but_time(case: StoredCase) -> None:
    champion = zoo("street-student-day-int8")
    pair = measure_pair(champion, champion, frames(case))
    one, other = figures_of(pair.candidate), figures_of(pair.champion)
    assert {**one, "latency_ms": 0} == {**other, "latency_ms": 0}
    assert one["golden_frames"] == 6
    assert one["bundle_bytes"] == len(champion.to_bytes())
    assert pair.candidate.golden.groups == ("block-0", "block-1", "block-2")


def test_false_boxes_are_counted_on_empty_frames_alone(case: StoredCase) -> None:
    champion = zoo("street-student-day-int8")
    crowded = [frame for frame in frames(case) if len(frame.truth)]
    assert measure_pair(champion, champion, crowded).champion.false_boxes_per_frame == 0.0


def test_models_of_other_classes_are_not_compared(case: StoredCase) -> None:
    champion = zoo("street-student-day-int8")
    names = tuple("truck" if name == "dog" else name for name in champion.manifest.labels)
    other = champion.with_parts({}, labels=("dog", *names[1:]))
    with pytest.raises(Malformed, match="classes"):
        measure_pair(other, champion, frames(case))


def test_nothing_is_measured_without_frames() -> None:
    champion = zoo("street-student-day-int8")
    with pytest.raises(Malformed, match="golden"):
        measure_pair(champion, champion, [])


def test_the_gate_of_a_model_sees_what_the_model_answers(case: StoredCase) -> None:
    bundle = zoo("street-student-int8")
    detector = OnnxDetector.open(bundle, "cpu", threads=1)
    try:
        seen = list(look(detector, bundle, frames(case, 3)))
    finally:
        detector.close()
    assert [each.features.box_count for each in seen] == [float(len(each.told)) for each in seen]
    assert isinstance(gate_of(bundle), LearnedGate)


def test_a_question_has_to_be_worth_its_price() -> None:
    gate = gate_of(zoo("street-student-int8"))
    assert isinstance(gate, LearnedGate)
    dear = replace(gate, price=replace(gate.price, gain_per_byte=1.0))
    opinion = Opinion(0.9, 0.2, (Reason.EXPECTED_GAIN,))
    assert not is_asked(opinion, dear, 1000)
    assert is_asked(opinion, replace(gate, price=replace(gate.price, gain_per_byte=1e-12)), 1000)
    assert not is_asked(replace(opinion, p_ask=0.5), gate, 1000)
    assert is_asked(Opinion(0.8, None, (Reason.WEAK_BOXES,)), RuleGate(), 1000)


def test_the_edge_is_asked_before_the_cloud_and_the_teacher_stands_in(case: StoredCase) -> None:
    seen = asked_frame(1, case).seen
    edge = TierAnswer(Tier.EDGE, detections([], []), STREET)
    cloud = TierAnswer(Tier.CLOUD, detections([], []), STREET)
    asked = replace(case, answers=(edge, cloud))
    frame = replace(seen, frame=replace(seen.frame, case=asked))
    assert upper_answer(frame, None, STREET) is edge
    teacher = detections([[1, 1, 5, 5]], [0.8])
    nobody = replace(seen, frame=replace(seen.frame, case=replace(case, answers=())))
    found = upper_answer(nobody, teacher, STREET)
    assert found is not None and found.detections is teacher
    assert upper_answer(nobody, None, STREET) is None


def test_a_trained_student_gets_a_version_of_its_own_and_keeps_its_parent(tmp_path: Path) -> None:
    parent = zoo("street-student-day-fp32")
    made = as_version(parent, parent, "7.0.0")
    path = made.write(tmp_path)
    assert Bundle.open(path).manifest.version == "7.0.0"
    assert made.manifest.parent is not None and made.manifest.parent.sha256 == parent.ref.sha256
