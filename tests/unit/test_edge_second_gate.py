"""What makes a frame hard after the edge has looked."""

from __future__ import annotations

import numpy as np
import pytest

from edge_server.second_gate import (
    FittedSecondGate,
    SecondGate,
    SecondGateSettings,
    contradictions,
    second_features,
)
from fovea.core.detections import Candidates, Detections, Inference, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.features import FeatureSettings
from fovea.core.frame import ImageSize
from fovea.core.gate import RuleGate, RuleGateSettings
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import LearnedGate
from fovea.core.routing import Reason, Tier
from fovea.core.scores import PlattCurve
from fovea.serving.worker import Looked
from tests.builders import model_ref, scene

PIXELS = scene(360, 640)
SIZE = ImageSize(640, 360)
LABELS = LabelSet.from_names(["person", "bicycle", "car"])
PERSON, BICYCLE, CAR = 0, 1, 2
HERE, ALMOST_HERE, THERE = (10, 10, 110, 110), (20, 10, 120, 110), (300, 200, 400, 300)
Row = tuple[tuple[float, float, float, float], float, int]


def detections(rows: tuple[Row, ...]) -> Detections:
    return Detections(
        np.array([box for box, _, _ in rows], np.float32).reshape(-1, 4),
        np.array([score for _, score, _ in rows], np.float32),
        np.array([class_id for _, _, class_id in rows], np.int32),
        SIZE,
        model_ref(),
    )


def told(*rows: Row) -> Detections:
    return detections(rows)


def looked(*rows: Row, labels: LabelSet = LABELS) -> Looked:
    seen = detections(rows)
    scores = np.zeros((len(seen), len(labels)), np.float32)
    scores[np.arange(len(seen)), [labels.ids.index(number) for number in seen.class_ids]] = seen.scores
    candidates = Candidates(seen.boxes_xyxy, scores, ScoreKind.PER_CLASS, labels, SIZE)
    return Looked(Inference(seen, candidates), model_ref(), labels, 0.0, 0.0)


def saw(*rows: Row, tier: Tier = Tier.AGENT) -> TierAnswer:
    return TierAnswer(tier, detections(rows), LABELS)


def test_agreement_of_sure_tiers_is_no_reason_to_ask() -> None:
    opinion = SecondGate(RuleGate()).judge(looked((HERE, 0.95, CAR)), [saw((ALMOST_HERE, 0.9, CAR))], PIXELS)
    assert (opinion.p_ask, opinion.reasons) == (0.0, (Reason.SURE,))


def test_an_empty_frame_that_nobody_contradicts_is_no_reason_to_ask() -> None:
    assert SecondGate(RuleGate()).judge(looked(), [], PIXELS).reasons == (Reason.SURE,)


def test_what_the_edge_is_unsure_of_is_a_reason_to_ask() -> None:
    unsure = looked(*[((60.0 * n, 10.0, 60.0 * n + 50, 60.0), 0.5, CAR) for n in range(4)])
    gate = SecondGate(RuleGate(RuleGateSettings(uncertain_boxes=1)))
    opinion = gate.judge(unsure, [], PIXELS)
    assert opinion.p_ask > 0.7 and opinion.reasons == (Reason.UNCERTAIN_BOXES,)


def test_what_the_camera_is_sure_of_and_the_edge_does_not_see_is_a_reason_to_ask() -> None:
    camera = saw((HERE, 0.9, CAR), (THERE, 0.9, PERSON))
    gate = SecondGate(RuleGate(), SecondGateSettings(contradictions=0.5))
    opinion = gate.judge(looked(), [camera], PIXELS)
    assert opinion.p_ask == pytest.approx(1 - 0.3 ** (0.5 * 2**0.5))
    assert opinion.reasons == (Reason.TIERS_DISAGREE,)
    assert 0 < gate.judge(looked((HERE, 0.9, CAR)), [camera], PIXELS).p_ask < opinion.p_ask
    off = SecondGate(RuleGate(), SecondGateSettings(contradictions=0))
    assert off.judge(looked(), [camera], PIXELS).reasons == (Reason.SURE,)


def test_doubts_add_up() -> None:
    gate = SecondGate(RuleGate(), SecondGateSettings(contradictions=0.5))
    unsure = looked((THERE, 0.5, CAR))
    alone, both = gate.judge(unsure, [], PIXELS), gate.judge(unsure, [saw((HERE, 0.9, CAR))], PIXELS)
    assert both.p_ask > alone.p_ask > 0
    assert both.reasons == (Reason.UNCERTAIN_BOXES, Reason.TIERS_DISAGREE)


@pytest.mark.parametrize(
    ("camera", "edge", "found"),
    [
        ((HERE, 0.9, CAR), (HERE, 0.4, CAR), 0),
        ((HERE, 0.9, CAR), (HERE, 0.9, PERSON), 1),
        ((HERE, 0.9, CAR), (THERE, 0.9, CAR), 1),
        ((HERE, 0.6, CAR), (THERE, 0.9, CAR), 0),
    ],
)
def test_a_contradiction_is_a_sure_box_that_the_other_has_nothing_of_the_kind_for(
    camera: Row, edge: Row, found: int
) -> None:
    assert contradictions(told(edge), LABELS, [saw(camera)], sure_from=0.65) == found


def test_what_the_edge_cannot_know_is_no_contradiction() -> None:
    only_cars = LabelSet.from_names(["car"])
    assert contradictions(told((HERE, 0.9, CAR)), only_cars, [saw((THERE, 0.9, PERSON))], sure_from=0.65) == 0


def test_two_tiers_that_see_the_same_thing_are_one_contradiction() -> None:
    below = [saw((HERE, 0.9, CAR)), saw((HERE, 0.8, CAR), tier=Tier.CLOUD)]
    assert contradictions(told(), LABELS, below, sure_from=0.65) == 1
    assert contradictions(told(), LABELS, [], sure_from=0.65) == 0


def test_an_amount_of_nothing_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"^second gate contradictions: expected 0 or more"):
        SecondGateSettings(contradictions=-1)


class Flat:
    """A head that says the same of every frame."""

    def __init__(self, value: float) -> None:
        self.value = value

    def apply(self, x: np.ndarray) -> float:
        return self.value


def fitted(logit: float = 2.0) -> FittedSecondGate:
    return FittedSecondGate(
        LearnedGate(Flat(logit), PlattCurve(1.0, 0.0), Flat(0.05), class_weights={CAR: 2.0})
    )


def test_a_fitted_gate_has_its_own_opinion_and_names_a_contradiction() -> None:
    opinion = fitted().judge(looked(), [saw((HERE, 0.9, CAR))], PIXELS)
    assert opinion.p_ask == pytest.approx(1 / (1 + np.exp(-2)))
    assert opinion.expected_gain == 0.05
    assert opinion.reasons[-1] is Reason.TIERS_DISAGREE and Reason.VANISHED_TRACK not in opinion.reasons
    assert Reason.TIERS_DISAGREE not in fitted().judge(looked(), [], PIXELS).reasons


def test_a_fitted_gate_sees_contradictions_as_vanished_and_nothing_of_time() -> None:
    own = looked((HERE, 0.5, CAR))
    features = second_features(own.inference, LABELS, [saw((THERE, 0.9, PERSON))], PIXELS)
    assert (features.vanished_count, features.unexplained_motion, features.change) == (1, 0, 0)
    assert features.contrast > 0
    weighed = second_features(own.inference, LABELS, [], PIXELS, FeatureSettings(class_weights={CAR: 2.0}))
    assert weighed.entropy_sum == pytest.approx(2)
