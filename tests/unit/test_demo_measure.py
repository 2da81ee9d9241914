"""The measurement of the demo: who is asked about what, what it costs, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from calibration.truth import GroundTruth
from edge_agent.frame_walk import FrameWalk, Judging
from edge_agent.purse import RULES_PRICE, Purse
from edge_agent.track.tracker import Tracker
from fovea.cli.demo_findings import Mode
from fovea.cli.demo_frames import FULL, SMALL, DemoFrame, street_subset
from fovea.cli.demo_measure import ModeRun, Tiers, measure
from fovea.cli.demo_pictures import picture_rows
from fovea.cli.demo_scores import agreement, latency_of, mode_findings, work_of
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.detections import Detections
from fovea.core.energy import EnergyConstants
from fovea.core.errors import Incompatible, Unavailable
from fovea.core.features import FrameFeatures
from fovea.core.frame import ImageSize
from fovea.core.gate import Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet, label_named
from fovea.core.merging import merge_answers, merged_ref
from fovea.core.price import AskPrice
from fovea.core.routing import Reason, Tier
from fovea.process.clock import SystemClock
from fovea.runtime.images import decode_image
from protos.calls import DetectAnswer, DetectQuestion
from tests.builders import model_ref, scene
from tests.fakes import FakeDetector

LABELS = LabelSet.from_names(["person", "car", "bicycle"])
PERSON = label_named("person").id
TRUE_BOX = (8.0, 8.0, 40.0, 40.0)
WEAK_BOX = (8.0, 8.0, 40.0, 60.0)
"""What the camera sees of it: IoU 0.62."""


def detections(*boxes: tuple[float, ...], score: float = 0.9, size: tuple[int, int] = (96, 64)) -> Detections:
    count = len(boxes)
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.full(count, score, np.float32),
        np.full(count, PERSON, np.int32),
        ImageSize(*size),
        model_ref(),
    )


def frames(clips: int = 2, per_clip: int = 3, has_truth: bool = True) -> list[DemoFrame]:
    truth = GroundTruth(np.array([TRUE_BOX], np.float32), np.array([PERSON], np.int32), np.array([False]))
    return [
        DemoFrame(
            f"clip {clip}",
            "day" if clip % 2 else "night",
            0.5 * number,
            scene(64, 96, seed=10 * clip + number),
            truth if has_truth else None,
        )
        for clip in range(clips)
        for number in range(per_clip)
    ]


class AlwaysAsk:
    def judge(self, features: FrameFeatures) -> Opinion:
        return Opinion(0.99, None, (Reason.UNCERTAIN_BOXES,))


class NeverAsk:
    def judge(self, features: FrameFeatures) -> Opinion:
        return Opinion(0.0, None, (Reason.SURE,))


@dataclass
class Server:
    """An edge or a cloud: says what it would see, merged with what it is told."""

    tier: Tier
    sees: Detections
    asked: list[DetectQuestion] = field(default_factory=list)
    fails: bool = False

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        assert timeout_s > 0
        self.asked.append(question)
        if self.fails:
            raise Unavailable("gone")
        assert isinstance(question.image, bytes)
        assert decode_image(question.image).shape == (64, 96, 3)
        answers = (*question.answers, TierAnswer(self.tier, self.sees, LABELS))
        merged = merge_answers(answers, merged_ref([each.detections.model for each in answers]))
        return DetectAnswer(merged, model_ref(), LABELS, revision=int(self.tier), answers=answers)


@dataclass
class World:
    """Tiers that are all fakes."""

    edge: Server = field(default_factory=lambda: Server(Tier.EDGE, detections(TRUE_BOX)))
    alone: Server = field(default_factory=lambda: Server(Tier.EDGE, detections(TRUE_BOX)))
    cloud: Server = field(default_factory=lambda: Server(Tier.CLOUD, detections(TRUE_BOX)))
    gate: AlwaysAsk | NeverAsk = field(default_factory=AlwaysAsk)
    asks_per_s: float = 1e6
    cpu_s: Callable[[], dict[Tier, float]] = lambda: {Tier.EDGE: 0.0, Tier.CLOUD: 0.0}

    def tiers(self) -> Tiers:
        detector = FakeDetector(lambda pixels: [(WEAK_BOX, 0.8, 0)], LABELS)
        judging = Judging(self.gate, DecideSettings(audit_share=0.0))
        return Tiers(
            new_walk=lambda: FrameWalk(detector, None, Tracker(), judging, SystemClock()),
            purse=Purse(Budget(self.asks_per_s), AskPrice(RULES_PRICE)),
            draw=lambda: 0.5,
            ask_edge=self.edge.ask,
            ask_edge_alone=self.alone.ask,
            ask_cloud=self.cloud.ask,
            cpu_s=self.cpu_s,
        )

    def run(self, mode: Mode, shots: list[DemoFrame]) -> ModeRun:
        return measure(shots, mode, self.tiers(), lambda *_: None)


def test_agent_only_asks_nobody_and_sends_nothing() -> None:
    world = World()
    run = world.run(Mode.AGENT, frames())
    assert not world.edge.asked + world.alone.asked + world.cloud.asked
    assert all(answer.sent_bytes == 0 and not answer.is_asked for answer in run.answers)
    assert all(len(answer.detections) == 1 for answer in run.answers)


def test_edge_only_and_cloud_only_send_every_frame_and_tell_nothing_that_others_saw() -> None:
    world, shots = World(), frames()
    for mode, server in ((Mode.EDGE, world.alone), (Mode.CLOUD, world.cloud)):
        run = world.run(mode, shots)
        assert len(server.asked) == len(shots)
        assert all(question.answers == () for question in server.asked)
        assert all(
            answer.sent_bytes == len(question.image)
            for answer, question in zip(run.answers, server.asked, strict=True)
        )
        assert all(answer.is_from_cloud is (mode is Mode.CLOUD) for answer in run.answers)
    assert not world.edge.asked


def test_hybrid_asks_the_edge_about_what_the_gate_picks_and_takes_the_merged_answer() -> None:
    world = World()
    run = world.run(Mode.HYBRID, frames())
    assert len(world.edge.asked) == 6
    for answer, question in zip(run.answers, world.edge.asked, strict=True):
        assert [each.tier for each in question.answers] == [Tier.AGENT]
        assert question.reasons == (Reason.UNCERTAIN_BOXES,)
        assert answer.is_asked
        assert not answer.is_from_cloud
        assert answer.first_ms <= answer.latency_ms


def test_hybrid_asks_nobody_when_the_gate_is_sure() -> None:
    world = World(gate=NeverAsk())
    run = world.run(Mode.HYBRID, frames())
    assert not world.edge.asked
    assert not any(answer.is_asked for answer in run.answers)


def test_hybrid_keeps_to_the_budget_on_the_time_of_the_frames_not_of_this_machine() -> None:
    world = World(asks_per_s=0.5)  # a quarter of 2 frames a second, and a burst of 2.5 to begin with
    run = world.run(Mode.HYBRID, frames(clips=10, per_clip=4))
    asked = sum(answer.is_asked for answer in run.answers)
    assert 0 < asked <= 0.5 * 20 + 2.5


def test_a_question_that_fails_leaves_the_cameras_answer_and_is_told() -> None:
    world = World()
    world.edge.fails = True
    run = world.run(Mode.HYBRID, frames())
    assert all(answer.is_unanswered and len(answer.detections) == 1 for answer in run.answers)
    found = mode_findings(frames(), {Mode.HYBRID: run}, EnergyConstants())
    assert found[0].unanswered == 6


def test_edge_only_without_an_edge_is_an_error_not_a_figure() -> None:
    world = World()
    world.alone.fails = True
    with pytest.raises(Unavailable):
        world.run(Mode.EDGE, frames())
    confused = World(alone=Server(Tier.CLOUD, detections(TRUE_BOX)))
    with pytest.raises(Incompatible, match="edge only"):
        confused.run(Mode.EDGE, frames())


def test_work_is_what_was_spent_for_each_frame_on_each_link_and_tier() -> None:
    spent = iter([{Tier.EDGE: 1.0, Tier.CLOUD: 5.0}, {Tier.EDGE: 1.6, Tier.CLOUD: 6.2}])
    run = World(cpu_s=lambda: next(spent)).run(Mode.CLOUD, frames())
    work = work_of(run)
    assert work.edge_cpu_s == 0  # the cloud was asked directly
    assert work.cloud_cpu_s == pytest.approx(0.2)
    assert work.local_bytes == work.wide_bytes > 0
    assert work.camera_cpu_s > 0


def test_scores_are_paired_with_hybrid_and_given_for_each_condition() -> None:
    world, shots = World(), frames()
    runs = {mode: world.run(mode, shots) for mode in Mode}
    found = {each.mode: each for each in mode_findings(shots, runs, EnergyConstants())}
    cloud, agent, hybrid = found[Mode.CLOUD], found[Mode.AGENT], found[Mode.HYBRID]
    assert cloud.ap is not None
    assert agent.ap is not None
    assert cloud.ap.value == pytest.approx(1.0)
    assert agent.ap.value < 0.5
    assert agent.ap50 == pytest.approx(1.0)
    assert agent.hybrid_gain is not None
    assert agent.hybrid_gain.value > 0
    assert hybrid.hybrid_gain is None
    assert set(cloud.ap_by_condition) == {"day", "night"}
    assert cloud.agreement is None


def test_without_truth_there_is_agreement_with_the_cloud_and_no_ap() -> None:
    world, shots = World(), frames(has_truth=False)
    world.alone.sees = detections((60.0, 8.0, 90.0, 40.0))
    runs = {mode: world.run(mode, shots) for mode in Mode}
    found = {each.mode: each for each in mode_findings(shots, runs, EnergyConstants())}
    assert found[Mode.CLOUD].agreement == 1.0
    assert found[Mode.EDGE].agreement == 0.0
    assert found[Mode.AGENT].agreement == 1.0  # an IoU of 0.62 is the same thing
    assert all(each.ap is None and each.hybrid_gain is None for each in found.values())


def test_agreement_pairs_each_box_once_and_only_with_its_own_class() -> None:
    two = detections(TRUE_BOX, TRUE_BOX)
    assert agreement(two, detections(TRUE_BOX)) == (1, 3)
    other = replace(detections(TRUE_BOX), class_ids=np.array([PERSON + 1], np.int32))
    assert agreement(detections(TRUE_BOX), other) == (0, 2)
    assert agreement(detections(), detections()) == (0, 0)


def test_latency_is_mean_median_and_95th_percentile() -> None:
    latency = latency_of([float(value) for value in range(1, 102)])
    assert (latency.mean_ms, latency.p50_ms, latency.p95_ms) == (51.0, 51.0, 96.0)


@pytest.mark.parametrize("has_truth", [True, False])
def test_pictures_show_one_frame_of_each_condition_as_each_tier_sees_it(has_truth: bool) -> None:
    world, shots = World(), frames(has_truth=has_truth)
    runs = {mode: world.run(mode, shots) for mode in Mode}
    rows = picture_rows(shots, runs, LABELS, most=2)
    assert [row.title.split(",")[0] for row in rows] == ["night", "day"]
    for row in rows:
        captions = [cell.caption.split(":")[0] for cell in row.cells]
        assert captions == [
            *(["truth"] if has_truth else []),
            "camera",
            "edge",
            "cloud",
            "hybrid (with edge)",
        ]
        assert all(decode_image(cell.jpeg).shape[1] == 720 for cell in row.cells)


def test_pictures_of_footage_without_conditions_are_spread_over_it() -> None:
    world = World()
    shots = [replace(frame, condition="") for frame in frames(has_truth=False)]
    runs = {mode: world.run(mode, shots) for mode in Mode}
    assert len(picture_rows(shots, runs, LABELS, most=3)) == 3


def test_the_street_subset_is_fixed_stratified_and_half_a_second_apart() -> None:
    assert FULL.frames == 216
    first = street_subset(replace(SMALL, per_clip=2), 1, lambda done, every: None)
    assert [frame.at_s for frame in first[:2]] == [0.0, 0.5]
    assert len({frame.condition for frame in first}) == 6
    assert all("/test/" in frame.group and frame.truth is not None for frame in first)
