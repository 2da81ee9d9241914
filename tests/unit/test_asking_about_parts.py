"""A camera that asks about the parts of a frame that are in doubt, and an edge that answers about these alone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from edge_agent.case_keeping import CaseKeeping
from edge_agent.escalation import Ended, Errand, Escalation
from edge_agent.observing import ErrandEnding
from edge_server.escalation import ONLY_PARTS, EscalationSettings
from edge_server.escalation import Escalation as EdgeEscalation
from edge_server.outcomes import Escalated
from edge_server.second_gate import SecondGate
from fovea.core.budget import Budget
from fovea.core.detections import Candidates, Detections, Inference, ScoreKind
from fovea.core.errors import Incompatible, Malformed
from fovea.core.features import FrameFeatures
from fovea.core.frame import Frame, ImageSize
from fovea.core.gate import Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.merging import MergeSettings
from fovea.core.mosaic import Mosaic, Tile
from fovea.core.regions import RegionSettings
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from fovea.link.upstream import Upstream
from fovea.link.upstreams import Upstreams
from fovea.runtime.images import decode_image, encode_jpeg
from fovea.serving.answerer import all_answers, merged_answer
from fovea.serving.worker import Looked
from protos.calls import DetectAnswer, DetectQuestion, ServiceLimits
from tests import fake_link
from tests.agent_fakes import FakeLink, FakeObserver, FakeShelf, frame
from tests.builders import model_ref, scene
from tests.fakes import FakeClock
from tests.unit.link_server import LinkServer
from tests.unit.test_agent_escalation import until

SIZE = ImageSize(320, 240)
LABELS = LabelSet.from_names(["person", "car"])
LIVENESS_S = 20.0


def said(by: str, *boxes: tuple[float, float, float, float, float]) -> Detections:
    rows = np.array(boxes, np.float32).reshape(-1, 5)
    return Detections(rows[:, :4], rows[:, 4], np.zeros(len(rows), np.int32), SIZE, model_ref(by))


def looked(by: str, *boxes: tuple[float, float, float, float, float]) -> Looked:
    own = said(by, *boxes)
    pairs = np.stack([own.scores, np.zeros_like(own.scores)], axis=1)
    candidates = Candidates(own.boxes_xyxy, pairs, ScoreKind.PER_CLASS, LABELS, SIZE)
    return Looked(Inference(own, candidates), own.model, LABELS, 0.0, 0.0)


DOUBTFUL, SURE = (40.0, 40.0, 70.0, 70.0, 0.4), (250.0, 150.0, 300.0, 220.0, 0.9)


def edge_says(question: DetectQuestion) -> DetectAnswer:
    seen = looked("edge", (41.0, 41.0, 70.0, 70.0, 0.8))
    return merged_answer(question, seen, all_answers(question, seen, Tier.EDGE), MergeSettings())


class Camera:
    """An agent's escalation with a fake link that takes mosaics; regions are on."""

    def __init__(self, regions: RegionSettings | None = RegionSettings()) -> None:
        self.clock, self.shelf = FakeClock(), FakeShelf()
        self.link = FakeLink(edge_says)
        self.link.takes_mosaics = True
        self.keeping = CaseKeeping(self.shelf, jpeg_quality=90)
        self.ended: list[Ended] = []
        self.escalation = Escalation(
            self.link, self.keeping, 1, self.clock, self.ended.append, FakeObserver(), regions
        )
        self.keeping.start()
        self.escalation.start()
        self.pixels = scene(240, 320)

    def asks(self, own: Detections, *reasons: Reason, places: np.ndarray | None = None) -> DetectQuestion:
        seen: Frame = replace(frame(self.clock, 0), pixels=self.pixels)
        errand = Errand(
            seen,
            TierAnswer(Tier.AGENT, own, LABELS),
            RouteDecision(Route.EDGE, reasons or (Reason.WEAK_BOXES,), send_probability=1.0),
            self.clock.monotonic_s() + 1,
        )
        if places is not None:
            errand = replace(errand, places_xyxy=places)
        assert self.escalation.offer(errand)
        until(lambda: len(self.ended) == 1)
        assert self.escalation.stop(LIVENESS_S)
        assert self.keeping.stop(LIVENESS_S)
        return self.link.asked[0]


def test_only_the_doubtful_part_travels_and_the_answer_keeps_what_the_camera_saw_elsewhere() -> None:
    camera = Camera()
    question = camera.asks(said("student", SURE, DOUBTFUL))
    assert question.mosaic is not None and isinstance(question.image, np.ndarray)
    [tile] = question.mosaic.tiles
    assert np.array_equal(
        question.image, camera.pixels[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width]
    )
    [ended] = camera.ended
    assert ended.ending is ErrandEnding.ANSWERED and ended.answer is not None
    assert ended.sent_bytes == question.image.nbytes < camera.pixels.nbytes
    scores = ended.answer.detections.scores.tolist()
    assert scores == [pytest.approx(0.9), pytest.approx((0.4 + 3 * 0.8) / 4)]


def test_a_case_of_such_a_question_is_the_whole_frame_without_the_answer_about_parts() -> None:
    camera = Camera()
    camera.asks(said("student", DOUBTFUL))
    [case] = camera.shelf.cases
    assert decode_image(case.jpeg).shape == camera.pixels.shape
    assert case.jpeg == encode_jpeg(camera.pixels, 90)
    assert [answer.tier for answer in case.answers] == [Tier.AGENT]


def test_where_a_track_was_lost_is_looked_at() -> None:
    question = Camera().asks(said("student", SURE), places=np.array([[32, 160, 64, 192]], np.float32))
    assert question.mosaic is not None
    [(x1, y1, x2, y2)] = question.mosaic.regions_xyxy.tolist()
    assert x1 <= 32 and y1 <= 160 and x2 >= 64 and y2 >= 192


def test_audits_are_whole_frames() -> None:
    assert Camera().asks(said("student", DOUBTFUL), Reason.AUDIT).mosaic is None


def test_a_tier_that_takes_no_mosaics_and_a_camera_that_is_not_told_to_send_them_get_whole_frames() -> None:
    old = Camera()
    old.link.takes_mosaics = False
    assert old.asks(said("student", DOUBTFUL)).mosaic is None
    assert Camera(regions=None).asks(said("student", DOUBTFUL)).mosaic is None


# The link

MOSAIC = Mosaic(SIZE, ImageSize(64, 64), (Tile(32, 32, 64, 64, 0, 0),))
PARTS = DetectQuestion(scene(64, 64), mosaic=MOSAIC)


@pytest.mark.parametrize("takes_mosaics", [False, True])
def test_a_link_sends_mosaics_only_where_the_server_says_that_it_takes_them(takes_mosaics: bool) -> None:
    server = LinkServer(limits=ServiceLimits(takes_mosaics=takes_mosaics))
    upstream = Upstream(server.address)
    try:
        assert not upstream.takes_mosaics or upstream.description is not None
        until(lambda: upstream.may_ask)
        assert upstream.takes_mosaics is takes_mosaics
        if takes_mosaics:
            upstream.ask(PARTS, LIVENESS_S)
            assert server.questions[0].mosaic == MOSAIC
        else:
            with pytest.raises(Incompatible, match="expected a question about a whole frame"):
                upstream.ask(PARTS, LIVENESS_S)
            assert server.questions == []
    finally:
        upstream.close()
        server.stop()


def test_of_several_the_one_that_takes_mosaics_is_asked_about_one() -> None:
    first, second = fake_link.FakeLink(), fake_link.FakeLink()
    second.takes_mosaics = True
    both = Upstreams([first, second])
    assert not both.takes_mosaics, "the first would be asked"
    both.ask(PARTS, 1.0)
    assert (len(first.questions), len(second.questions)) == (0, 1)
    first.may_ask_now = False
    assert both.takes_mosaics


# The edge


class Gate:
    def __init__(self, p_ask: float) -> None:
        self._p_ask = p_ask

    def judge(self, features: FrameFeatures) -> Opinion:
        return Opinion(self._p_ask, None, (Reason.UNCERTAIN_BOXES,))


class Counting:
    def __init__(self) -> None:
        self.ended: list[tuple[Escalated, str]] = []

    def frame_ended(self, outcome: Escalated, reason: str, asked_s: float | None) -> None:
        self.ended.append((outcome, reason))


@pytest.mark.parametrize(("p_ask", "outcome"), [(0.0, Escalated.KEPT), (1.0, Escalated.HINDERED)])
def test_an_edge_never_hands_a_mosaic_on_and_says_when_the_frame_is_still_hard(
    p_ask: float, outcome: Escalated
) -> None:
    link, counting = fake_link.FakeLink(), Counting()
    question = replace(PARTS, answers=(TierAnswer(Tier.AGENT, said("student", SURE, DOUBTFUL), LABELS),))
    escalation = EdgeEscalation(
        link, SecondGate(Gate(p_ask)), Budget(10.0), EscalationSettings(), observer=counting
    )
    with escalation:
        seen = looked("edge", (41.0, 41.0, 70.0, 70.0, 0.8))
        answer = asyncio.run(escalation.answer(question, scene(64, 64), seen, time.monotonic() + LIVENESS_S))
    assert link.questions == []
    assert [each.is_whole for each in answer.answers] == [True, False]
    assert answer.is_degraded is (outcome is Escalated.HINDERED)
    assert counting.ended == [(outcome, ONLY_PARTS if p_ask else "sure")]
    assert (answer.revision, answer.detections.image_size) == (1, SIZE)
    assert answer.detections.scores[0] == pytest.approx(0.9), "nobody looked there"


def test_a_question_whose_picture_is_not_its_mosaic_is_malformed() -> None:
    with pytest.raises(Malformed, match="expected a mosaic of 64x64 px, got 320x240"):
        DetectQuestion(scene(240, 320), mosaic=MOSAIC)
