"""The grid search of `fovea calibrate grid`: how far to trust whom, when to ask and how much, on recorded answers.

Two stages, each coarse to fine in steps of 0.1. First the merging: what gives the best AP when everything is asked.
Then the asking: thresholds, budgets and the weight of latency, of which the Pareto front of AP, latency, bytes and
modelled energy is the result. Three points of the front are proposed as policies; what is said of them was measured
on frames that had no part in choosing them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from calibration.cascade import Floats, mean_ap
from calibration.evaluate import MatchTable
from calibration.grid_search import Axis, Found, Journal, Objectives, Point, grid_search, pareto_front
from fovea.bench.gate_grid_set import CAMERA, CLOUD, EDGE, GridSet, Ways, merge_of
from fovea.bench.tiers_scores import told_f1
from fovea.core.errors import Malformed
from fovea.core.merging import MergeSettings
from fovea.core.policy import Measured, Policy, Span, policies_to_json
from fovea.core.qoe import QoeWeights

SITE_MERGE = (Axis("edge_trust", 0.4, 0.9, coarse=2), Axis("absent_share", 0.0, 1.0, coarse=5))
WIDE_MERGE = (Axis("cloud_trust", 0.3, 0.9, coarse=3),)
ASKING = (
    Axis("qoe_latency", 0.0, 0.7),
    Axis("ask_from", 0.1, 0.9),
    Axis("asked_share", 0.1, 1.0, coarse=3),
    Axis("forward_share", 0.0, 1.0, coarse=5),
)
TELL_FROM = Axis("tell_from", 0.1, 0.9)
BEST_AP = Objectives(("ap",), ())
WORTH = Objectives(("ap",), ("latency_ms", "bytes_per_frame", "joules_per_frame"))
SHARP, BALANCED, FRUGAL = "sharp", "balanced", "frugal"
GAIN_SHARES = {BALANCED: 0.9, FRUGAL: 0.5}
"""How much of what the sharpest point gains over the camera alone a cheaper policy has to keep."""
_QUANTILES = (0.025, 0.975)
_QOE_REST = 0.7
"""What latency and quality weigh together; memory and priority keep their usual weights."""

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class GridResult:
    """`points`: all that was measured; `front`: those worth having, the best AP first; `alone`: each tier alone and
    all of them always, on the frames that judge; `policies`: with what they were measured to give there."""

    merge: MergeSettings
    merge_points: Sequence[Found]
    points: Sequence[Found]
    front: Sequence[Found]
    chosen: Mapping[str, Found]
    alone: Mapping[str, Mapping[str, float]]
    policies: tuple[Policy, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = [axis.name for axis in ASKING]
        return {
            "merge": {n: getattr(self.merge, n) for n in ("agent", "edge", "cloud", "iou", "absent_share")},
            "points": len(self.points),
            "front": [_row(names, each) for each in self.front],
            "chosen": {name: _row(names, each) for name, each in self.chosen.items()},
            "alone": {name: dict(figures) for name, figures in self.alone.items()},
            **policies_to_json(self.policies),
        }


def run_grid(
    search: GridSet,
    judge: GridSet,
    on: str,
    folder: Path,
    note: Note = lambda text: None,
    resamples: int = 300,
    most_points: int = 4000,
) -> GridResult:
    """Searches on one set of frames and measures what it chose on the other; `on` says in words what that one is.

    Finished points are kept in `folder`, and taken from there when the same search was broken off. Raises Malformed
    for sets that share a clip.
    """
    if shared := sorted(set(search.clips) & set(judge.clips)):
        raise Malformed(f"grid: expected other clips to judge by, got {shared[0]} in both sets")
    merge, merge_points = _search_merge(search, folder, note)
    note("asking: matching")
    table = search.matched(merge)
    own_ap = search.figures(table, np.full(len(search), CAMERA))["ap"]
    asking = _Asking(search, table, own_ap)
    journal = Journal.open(folder / f"grid-{_digest(search, merge)}-asking.jsonl", ASKING, "asking")
    points = grid_search(
        ASKING,
        asking.measure,
        WORTH,
        journal,
        lambda done, planned: note(f"asking: {done} of {planned} points of this round"),
        most_points,
    )
    front = pareto_front(points, WORTH)
    chosen = choose(front, own_ap)
    note("judging")
    judged = Judging(search, table, judge, judge.matched(merge), merge, own_ap, on, resamples)
    policies = tuple(judged.policy(name, each.point) for name, each in chosen.items())
    return GridResult(merge, merge_points, points, front, chosen, judged.alone(), policies)


def choose(front: Sequence[Found], own_ap: float) -> dict[str, Found]:
    """The points that get a name: the sharpest, and for each of GAIN_SHARES the one of least modelled energy that
    keeps so much of its gain over `own_ap`. Raises Malformed for an empty front."""
    if not front:
        raise Malformed("grid: expected at least one point to choose from, got none")
    sharp = max(front, key=lambda each: (each.figures["ap"], -each.figures["joules_per_frame"]))
    gain = sharp.figures["ap"] - own_ap
    chosen = {SHARP: sharp}
    for name, share in GAIN_SHARES.items():
        least = min(own_ap + share * gain, sharp.figures["ap"])
        enough = [each for each in front if each.figures["ap"] >= least]
        chosen[name] = min(enough, key=lambda each: each.figures["joules_per_frame"])
    return dict(reversed(chosen.items()))


def _search_merge(search: GridSet, folder: Path, note: Note) -> tuple[MergeSettings, list[Found]]:
    """Trust and silence of camera and edge first, then how far the cloud is trusted beside them."""

    def at(way: int, weights: Mapping[str, float]) -> dict[str, float]:
        return {"ap": _ap_of(search, way, merge_of(weights))}

    def told(stage: str) -> Callable[[int, int], None]:
        return lambda done, planned: note(f"{stage}: {done} of {planned} points of this round")

    own = _digest(search, None)
    journal = Journal.open(folder / f"grid-{own}-site.jsonl", SITE_MERGE, "merging camera and edge")
    site = grid_search(
        SITE_MERGE,
        lambda point: at(EDGE, {**_named(SITE_MERGE, point), "cloud_trust": 0.5}),
        BEST_AP,
        journal,
        told("merging with the edge"),
    )
    best = _named(SITE_MERGE, pareto_front(site, BEST_AP)[0].point)
    kept = "-".join(f"{value:g}" for value in best.values())
    journal = Journal.open(folder / f"grid-{own}-wide-{kept}.jsonl", WIDE_MERGE, "merging with the cloud")
    wide = grid_search(
        WIDE_MERGE,
        lambda point: at(CLOUD, {**best, **_named(WIDE_MERGE, point)}),
        BEST_AP,
        journal,
        told("merging with the cloud"),
    )
    return merge_of({**best, **_named(WIDE_MERGE, pareto_front(wide, BEST_AP)[0].point)}), [*site, *wide]


def _ap_of(frames: GridSet, way: int, merge: MergeSettings) -> float:
    table = frames.matched_one(way, merge)
    return float(mean_ap(table, np.ones((len(table.groups), 1)))[0])


class _Asking:
    """Measures one point of the second stage."""

    def __init__(self, frames: GridSet, table: MatchTable, own_ap: float) -> None:
        self._frames, self._table, self._own_ap = frames, table, own_ap
        self._preferred: dict[float, np.ndarray] = {}

    def measure(self, point: Point) -> dict[str, float]:
        latency, ask_from, asked, forward = point
        if latency not in self._preferred:
            self._preferred[latency] = self._frames.preferred(qoe_of(latency), self._own_ap)
        ways = self._frames.ways(ask_from, asked, forward, self._preferred[latency])
        return self._frames.figures(self._table, ways)


def qoe_of(latency: float) -> QoeWeights:
    """Weights in which latency counts so much, at the cost of quality."""
    return QoeWeights(latency=latency, quality=round(_QOE_REST - latency, 6))


@dataclass(frozen=True, slots=True, eq=False)
class Judging:
    """Makes policies of chosen points: what is still open is found on the frames of the search, and all of it is
    measured on the frames that judge, of which `on` says in words what they are."""

    search: GridSet
    searched: MatchTable
    judge: GridSet
    judged: MatchTable
    merge: MergeSettings
    own_ap: float
    on: str
    resamples: int

    def policy(self, name: str, point: Point) -> Policy:
        """The policy of that point, told as well as it can be, with what it was measured to give."""
        values = _named(ASKING, point)
        qoe, search, judge = qoe_of(values["qoe_latency"]), self.search, self.judge
        asking = (values["ask_from"], values["asked_share"], values["forward_share"])
        chosen = search.ways(*asking, search.preferred(qoe, self.own_ap))
        tell_from = best_tell_from(search.of_clips(self.searched, chosen))
        price = search.start_price(values["ask_from"], values["asked_share"])
        ways = judge.ways(*asking, judge.preferred(qoe, self.own_ap), price)
        found = measured(judge, judge.of_clips(self.judged, ways), ways, tell_from, self.on, self.resamples)
        return Policy(
            name,
            ask_from=asking[0],
            asked_share=asking[1],
            forward_share=asking[2],
            tell_from=tell_from,
            merge=self.merge,
            qoe=qoe,
            measured=found,
        )

    def alone(self) -> dict[str, dict[str, float]]:
        """What there is to compare with: nobody asked, everything asked of the edge, everything of the cloud, too."""
        said = {"camera alone": CAMERA, "edge always": EDGE, "cloud always": CLOUD}
        return {
            name: self.judge.figures(self.judged, np.full(len(self.judge), way)) for name, way in said.items()
        }


def best_tell_from(chosen: MatchTable) -> float:
    """The score of TELL_FROM from which on boxes are told with the best F1; of equals the lowest."""
    once = np.ones((len(chosen.groups), 1))
    scores = [TELL_FROM.value(index) for index in range(TELL_FROM.last + 1)]
    return max(scores, key=lambda score: float(told_f1(chosen, once, score)[0]))


def measured(
    judge: GridSet, chosen: MatchTable, ways: Ways, tell_from: float, on: str, resamples: int, seed: int = 0
) -> Measured:
    """Means with 95 % intervals over clips; `chosen` are the matches of `ways` with clips as groups."""
    clips = chosen.groups
    drawn = np.random.default_rng(seed).multinomial(
        len(clips), np.full(len(clips), 1 / len(clips)), resamples
    )
    weights = np.column_stack([np.ones(len(clips)), drawn.T]).astype(np.float64)
    clip_of = np.array([clips.index(frame.clip) for frame in judge.frames])
    frames = np.bincount(clip_of, minlength=len(clips)) @ weights

    def mean(values: Floats) -> Span:
        return _span(np.bincount(clip_of, values, minlength=len(clips)) @ weights / frames)

    costs = {name: mean(values) for name, values in judge.means(ways).items()}
    return Measured(
        on=on,
        at=datetime.now(UTC).replace(microsecond=0),
        frames=len(judge),
        asked_share=float((ways >= EDGE).mean()),
        ap=_span(mean_ap(chosen, weights)),
        f1=_span(told_f1(chosen, weights, tell_from)),
        **costs,
    )


def _span(values: Floats) -> Span:
    low, high = np.quantile(values[1:], _QUANTILES)
    value = float(values[0])
    return Span(value, min(float(low), value), max(float(high), value))


def _named(axes: Sequence[Axis], point: Point) -> dict[str, float]:
    return {axis.name: value for axis, value in zip(axes, point, strict=True)}


def _row(names: Sequence[str], found: Found) -> dict[str, float]:
    return {**dict(zip(names, found.point, strict=True)), **found.figures}


def _digest(frames: GridSet, merge: MergeSettings | None) -> str:
    """Of all that a point's figures depend on."""
    said = [
        repr((f.clip, f.at_s, str(f.camera.model), str(f.edge.model), str(f.cloud.model)))
        for f in frames.frames
    ]
    said += [repr(frames.opinions), repr(frames.seconds), repr(frames.costs), repr(merge)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]
