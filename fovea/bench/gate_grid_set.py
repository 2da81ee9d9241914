"""Recorded frames of which any policy can be measured: who is asked, and what comes of it in AP, time, bytes, energy.

A frame stands three times in one match table: as the camera alone answers, merged with the edge, and merged with edge
and cloud. A policy is a choice among the three for each frame, made by the agent's own purse and the edge's own
budget; its AP is then a weighting of the table. Nothing is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibration.cascade import Floats, mean_ap, regrouped
from calibration.evaluate import MatchTable, match
from calibration.matching import BoxSize
from calibration.truth import EvaluatedFrame
from fovea.bench.cascade_recording import RecordedFrame
from fovea.bench.gate_replay import Offer, replay, start_price
from fovea.bench.tiers_link import LAN, WAN, LinkSpec
from fovea.bench.tiers_outcome import TierTimes
from fovea.bench.tiers_policy import Gates, as_seen
from fovea.bench.tiers_scores import told_f1
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.detections import Detections
from fovea.core.energy import EnergyConstants, FrameWork, energy_of
from fovea.core.errors import Malformed
from fovea.core.gate import Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.merging import MergeSettings, merge_answers
from fovea.core.qoe import QoeWeights, RouteOption, choose_route
from fovea.core.routing import Route, Tier

CAMERA, EDGE, CLOUD = 0, 1, 2
"""How far a frame went; the rows of a frame in the match table."""
_WAYS = ((Tier.AGENT,), (Tier.AGENT, Tier.EDGE), (Tier.AGENT, Tier.EDGE, Tier.CLOUD))
_BURST_S = 5.0

Ways = NDArray[np.int64]
"""i64[F]: CAMERA, EDGE or CLOUD for each frame."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a look takes on each tier, and the links between them."""

    times: TierTimes
    site: LinkSpec = LAN
    wide: LinkSpec = WAN
    constants: EnergyConstants = field(default_factory=EnergyConstants)

    def latency_s(self, way: int, jpeg_bytes: float) -> float:
        """From capture to the final answer on a quiet site, links with room and no queue."""
        times, question = self.times, jpeg_bytes + self.times.question_bytes
        spent_s = float(np.mean(times.camera_s))
        if way >= EDGE:
            spent_s += float(np.mean(times.encode_s)) + float(np.mean(times.edge_s)) + _trip_s(
                self.site, question, times.answer_bytes
            )  # fmt: skip
        if way >= CLOUD:
            spent_s += float(np.mean(times.cloud_s)) + _trip_s(self.wide, question, times.answer_bytes)
        return spent_s

    def sent_bytes(self, way: int, jpeg_bytes: float) -> float:
        """Of pictures and what goes with them, on both links together."""
        return way * (jpeg_bytes + self.times.question_bytes)

    def joules(self, way: int, jpeg_bytes: float) -> float:
        """Modelled, see `fovea.core.energy`."""
        times, question = self.times, jpeg_bytes + self.times.question_bytes
        is_asked, is_forwarded = way >= EDGE, way >= CLOUD
        work = FrameWork(
            times.camera_cpu_s + is_asked * times.encode_cpu_s,
            is_asked * question,
            is_asked * times.edge_cpu_s,
            is_forwarded * question,
            is_forwarded * times.cloud_cpu_s,
        )
        return energy_of(work, self.constants).total_j


@dataclass(frozen=True, slots=True, eq=False)
class GridSet:
    """F frames in the order of time, with what both gates think of them. `class_ids`: what AP is a mean over."""

    frames: tuple[RecordedFrame, ...]
    at_s: tuple[float, ...]
    opinions: tuple[Opinion, ...]
    seconds: tuple[Opinion, ...]
    costs: Costs
    class_ids: tuple[int, ...]

    @classmethod
    def of(
        cls,
        frames: Sequence[RecordedFrame],
        lasts_s: float,
        gates: Gates,
        costs: Costs,
        class_ids: Sequence[int],
    ) -> GridSet:
        """Clips of a condition one after another, each for `lasts_s`, as cameras of one agent. Raises Malformed
        without frames."""
        if not frames:
            raise Malformed("grid: expected at least one recorded frame, got none")
        timed = sorted(
            ((frame.clip_index * lasts_s + frame.at_s, frame) for frame in frames),
            key=lambda each: (each[0], each[1].clip),
        )
        ordered = tuple(frame for _, frame in timed)
        return cls(
            ordered,
            tuple(at_s for at_s, _ in timed),
            tuple(gates.camera.judge(as_seen(gates.camera, f.features, f.camera)) for f in ordered),
            tuple(gates.second(as_seen(gates.edge, f.edge_features, f.edge)) for f in ordered),
            costs,
            tuple(class_ids),
        )

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def jpeg_bytes(self) -> Floats:
        return np.array([frame.jpeg_bytes for frame in self.frames], np.float64)

    @property
    def clips(self) -> tuple[str, ...]:
        """The clips, sorted; intervals are drawn over them."""
        return tuple(sorted({frame.clip for frame in self.frames}))

    def matched_one(self, way: int, merge: MergeSettings) -> MatchTable:
        """The answers when every frame goes that way, against the truth; clips as groups."""
        seen = [EvaluatedFrame(f.clip, f.truth, _answer(f, way, merge)) for f in self.frames]
        return match(seen, self.class_ids, (BoxSize.ALL,))

    def matched(self, merge: MergeSettings) -> MatchTable:
        """All three answers of every frame against the truth: row 3 * frame + way."""
        # Fixed-width names sort in frame order, so that rows can be computed.
        return match(
            [
                EvaluatedFrame(f"{index:08d}-{way}", frame.truth, _answer(frame, way, merge))
                for index, frame in enumerate(self.frames)
                for way in (CAMERA, EDGE, CLOUD)
            ],
            self.class_ids,
            (BoxSize.ALL,),
        )

    def preferred(self, qoe: QoeWeights, own_ap: float) -> NDArray[np.bool_]:
        """bool[F]: frames of which the edge's answer is expected to be the better experience. `own_ap` is the quality
        that the camera's answer is taken to have."""
        kept = np.zeros(len(self), bool)
        own_ms = 1000 * self.costs.latency_s(CAMERA, 0)
        for row, (frame, opinion) in enumerate(zip(self.frames, self.opinions, strict=True)):
            gain = opinion.expected_gain if opinion.expected_gain is not None else opinion.p_ask * own_ap
            ms = 1000 * self.costs.latency_s(EDGE, frame.jpeg_bytes)
            options = [
                RouteOption(Route.LOCAL, own_ms, own_ms, own_ap),
                RouteOption(Route.EDGE, ms, ms, min(max(own_ap + gain, 0.0), 1.0)),
            ]
            kept[row] = choose_route(options, qoe).route is Route.EDGE
        return kept

    def start_price(self, ask_from: float, asked_share: float) -> float:
        """Gain per byte at which this share of the frames would be asked."""
        return start_price(self.opinions, self.jpeg_bytes, asked_share, ask_from)

    def ways(
        self,
        ask_from: float,
        asked_share: float,
        forward_share: float,
        wanted: NDArray[np.bool_] | None = None,
        price: float | None = None,
    ) -> Ways:
        """How far each frame goes: the agent's purse spends `asked_share`, the edge's budget `forward_share` of the
        questions; both 0 to 1. `price`: what the purse begins with, where other frames have told it."""
        timed = [_At(at_s, frame.jpeg_bytes) for at_s, frame in zip(self.at_s, self.frames, strict=True)]
        ways = np.zeros(len(self), np.int64)
        if asked_share > 0:
            begin = self.start_price(ask_from, asked_share) if price is None else price
            offer = Offer(self.opinions, begin, float(self.jpeg_bytes.mean()))
            ways[replay(timed, offer, asked_share, ask_from, wanted)] = EDGE
        if forward_share > 0:
            ways[self._forwarded(ways == EDGE, forward_share)] = CLOUD
        return ways

    def _forwarded(self, asked: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
        rows = np.flatnonzero(asked)
        if not len(rows):
            return asked
        span_s = max(self.at_s[-1] - self.at_s[0], 1.0)
        rate_per_s = share * len(rows) / span_s
        budget = Budget(rate_per_s, burst_s=max(_BURST_S, 1 / rate_per_s))
        # Half full, as if it had been running: the burst of a full one would be most of a short recording.
        for _ in range(round(rate_per_s * _BURST_S / 2)):
            budget.spend_ask(self.at_s[rows[0]])
        ask_from, forwarded = DecideSettings().ask_from, np.zeros(len(self), bool)
        for row in rows.tolist():
            if self.seconds[row].p_ask >= ask_from and budget.allows(self.at_s[row]):
                budget.spend_ask(self.at_s[row])
                forwarded[row] = True
        return forwarded

    def means(self, ways: Ways) -> dict[str, Floats]:
        """f64[F] each: what every frame costs, by the name of the figure."""
        pairs = list(zip(ways.tolist(), self.jpeg_bytes.tolist(), strict=True))
        costs = self.costs
        return {
            "latency_ms": np.array([1000 * costs.latency_s(way, size) for way, size in pairs]),
            "bytes_per_frame": np.array([costs.sent_bytes(way, size) for way, size in pairs]),
            "joules_per_frame": np.array([costs.joules(way, size) for way, size in pairs]),
        }

    def of_clips(self, table: MatchTable, ways: Ways) -> MatchTable:
        """The matches of that choice, with whole clips as groups."""
        clips = self.clips
        number = {clip: index for index, clip in enumerate(clips)}
        group_of = np.full(len(table.groups), -1, np.int32)
        group_of[3 * np.arange(len(self)) + ways] = [number[frame.clip] for frame in self.frames]
        return regrouped(table, group_of, clips)

    def figures(self, table: MatchTable, ways: Ways) -> dict[str, float]:
        """AP50-95 and F1 of the mixture, the shares asked and forwarded, and the mean costs of a frame."""
        chosen = self.of_clips(table, ways)
        once = np.ones((len(chosen.groups), 1))
        return {
            "ap": float(mean_ap(chosen, once)[0]),
            "f1": float(told_f1(chosen, once)[0]),
            "asked_share": float((ways >= EDGE).mean()),
            "forwarded_share": float((ways >= CLOUD).mean()),
            **{name: float(values.mean()) for name, values in self.means(ways).items()},
        }


@dataclass(frozen=True, slots=True)
class _At:
    at_s: float
    jpeg_bytes: int


def merge_of(weights: Mapping[str, float]) -> MergeSettings:
    """From shares to trust: `edge_trust` is the edge's share of the trust in camera and edge, `cloud_trust` the
    cloud's share of that in all three, `absent_share` as it is; 0 < trust < 1."""
    edge = weights["edge_trust"] / (1 - weights["edge_trust"])
    cloud = weights["cloud_trust"] / (1 - weights["cloud_trust"]) * (1 + edge)
    return MergeSettings(edge=round(edge, 4), cloud=round(cloud, 4), absent_share=weights["absent_share"])


def _answer(frame: RecordedFrame, way: int, merge: MergeSettings) -> Detections:
    if way == CAMERA:
        return frame.camera
    tiers = _WAYS[way]
    own = {Tier.AGENT: frame.camera, Tier.EDGE: frame.edge, Tier.CLOUD: frame.cloud}
    answers = [TierAnswer(tier, own[tier], frame.labels_of(tier)) for tier in tiers]
    return merge_answers(answers, own[tiers[-1]].model, merge)


def _trip_s(link: LinkSpec, up_bytes: float, down_bytes: float) -> float:
    return link.round_trip_s + (up_bytes + down_bytes) / link.bytes_per_s
