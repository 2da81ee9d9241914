"""From who answered what and when to figures: AP, F1, streaming AP, latency, bytes and modelled energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.cascade import mean_ap
from calibration.evaluate import Interval, MatchTable, match
from calibration.matching import BoxSize, ClassMatches
from calibration.truth import EvaluatedFrame
from fovea.bench.cascade_recording import RecordedFrame
from fovea.bench.street_frames import CLASS_IDS
from fovea.bench.tiers_outcome import Mode, Outcome, Said, TierTimes
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.energy import EnergyConstants, FrameWork, energy_of
from fovea.core.errors import BrokenError
from fovea.core.routing import Tier

INSTANTS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of the time between two frames at which streaming AP looks at what is known."""

Answer = tuple[int, Said]
"""Which frame was answered, and whose answer it is."""
Look = tuple[int, Answer]
"""An answer held against the truth of a frame, not always its own."""

_MERGED = {Said.CAMERA_EDGE: (Tier.AGENT, Tier.EDGE), Said.ALL: (Tier.AGENT, Tier.EDGE, Tier.CLOUD)}
_IOU_50 = 0
_ONCE = np.ones((1, 1))


@dataclass(frozen=True, slots=True)
class Quality:
    """0..1 each. `ap`: of the best answer to each frame, none counting as an empty one. `f1`: of the boxes that are
    told (a score of 0.25 or more), at IoU 0.5, over all classes. `streaming_ap`: see `streaming_looks`."""

    ap: float
    f1: float
    streaming_ap: float


class Answers:
    """The answers of recorded frames, each merged once."""

    def __init__(self, frames: Sequence[RecordedFrame]) -> None:
        self.frames = frames
        self._kept: dict[Answer, Detections] = {}

    def of(self, answer: Answer) -> Detections:
        """All boxes of that answer down to the floor of the recording."""
        index, said = answer
        frame = self.frames[index]
        match said:
            case Said.NOTHING:
                return Detections.empty(frame.camera.image_size, frame.camera.model)
            case Said.CAMERA:
                return frame.camera
            case Said.EDGE:
                return frame.edge
            case Said.CLOUD:
                return frame.cloud
        if answer not in self._kept:
            self._kept[answer] = frame.merged(*_MERGED[said])
        return self._kept[answer]

    def table(self, looks: Sequence[Look], groups: Sequence[str]) -> MatchTable:
        """Each answer matched with the truth of its look's frame, under the group named."""
        return match(
            [
                EvaluatedFrame(group, self.frames[truth].truth, self.of(answer))
                for (truth, answer), group in zip(looks, groups, strict=True)
            ],
            CLASS_IDS,
            (BoxSize.ALL,),
        )


def best_looks(outcomes: Sequence[Outcome]) -> Counter[Look]:
    """The best answer to each frame against its own truth."""
    return Counter((index, (index, outcome.best)) for index, outcome in enumerate(outcomes))


def streaming_looks(clips: Sequence[str], outcomes: Sequence[Outcome], period_s: float) -> Counter[Look]:
    """What is known at five instants between a frame and the next one, against the truth of that frame: the best
    answer to it that is there by then, else the newest answer to an earlier frame of the clip, its boxes as they
    were. An answer counts when it arrives, and a late one for the rest of the time only. `clips` names the clip of
    each frame; the first frame of a clip, which nothing comes before, is left out.
    """
    looks: Counter[Look] = Counter()
    for index, outcome in enumerate(outcomes):
        if index == 0 or clips[index - 1] != clips[index]:
            continue
        for share in INSTANTS:
            at_s = outcome.captured_s + share * period_s
            looks[(index, _newest(clips, outcomes, index, at_s))] += 1
    return looks


def _newest(clips: Sequence[str], outcomes: Sequence[Outcome], index: int, at_s: float) -> Answer:
    for earlier in range(index, -1, -1):
        if clips[earlier] != clips[index]:
            break
        said = outcomes[earlier].known_at(at_s)
        if said is not Said.NOTHING:
            return earlier, said
    return index, Said.NOTHING


def qualities(answers: Answers, runs: Mapping[str, Sequence[Outcome]], period_s: float) -> dict[str, Quality]:
    """The quality of every run of the same frames. Whatever looks they share is matched once."""
    clips = [frame.clip for frame in answers.frames]
    best = {name: best_looks(outcomes) for name, outcomes in runs.items()}
    streaming = {name: streaming_looks(clips, outcomes, period_s) for name, outcomes in runs.items()}
    looks = sorted({look for counted in (*best.values(), *streaming.values()) for look in counted})
    # Fixed-width names sort in the order of the looks, so that rows of the table can be computed.
    table = answers.table(looks, [f"{row:08d}" for row in range(len(looks))])
    row_of = {look: row for row, look in enumerate(looks)}

    def counted(counts: Counter[Look]) -> MatchTable:
        times = np.zeros(len(looks), np.int64)
        for look, count in counts.items():
            times[row_of[look]] = count
        return repeated(table, times)

    found = {}
    for name in runs:
        own = counted(best[name])
        ap, streaming_ap = (float(mean_ap(each, _ONCE)[0]) for each in (own, counted(streaming[name])))
        found[name] = Quality(ap, float(told_f1(own, _ONCE)[0]), streaming_ap)
    return found


def repeated(table: MatchTable, times: NDArray[np.int64]) -> MatchTable:
    """The same matches as of one group, each old group so often: AP of one weighting out of thousands of groups takes
    little memory so."""
    matches = {}
    for key, each in table.matches.items():
        rows = np.repeat(np.arange(len(each.group)), times[each.group])
        matches[key] = ClassMatches(
            each.scores[rows],
            np.zeros(len(rows), np.int32),
            each.correct[:, rows],
            each.ignored[:, rows],
            np.array([each.positives @ times], np.float64),
        )
    return MatchTable(("all",), np.array([times.sum()]), table.class_ids, matches)


def told_f1(
    table: MatchTable, weights: NDArray[np.float64], tell_from: float = TOLD_FROM
) -> NDArray[np.float64]:
    """F1 f64[B] of the boxes with a score of `tell_from` or more, at IoU 0.5, over all classes together; 1 where
    there is neither a box nor a true one. `weights` f64[G, B]: how often each group counts."""
    found = told = true = np.zeros(weights.shape[1])
    for class_id in table.class_ids:
        matches = table.matches[class_id, BoxSize.ALL]
        is_told = (matches.scores >= tell_from) & ~matches.ignored[_IOU_50]
        is_found = is_told & matches.correct[_IOU_50]
        told = told + weights[matches.group[is_told]].sum(axis=0)
        found = found + weights[matches.group[is_found]].sum(axis=0)
        true = true + matches.positives @ weights
    f1: NDArray[np.float64] = np.ones(weights.shape[1])
    np.divide(2 * found, told + true, out=f1, where=told + true > 0)
    return f1


def ap_ratios(
    answers: Answers,
    ours: Mapping[str, Sequence[Outcome]],
    theirs: Sequence[Outcome],
    resamples: int,
    seed: int = 0,
) -> dict[str, Interval]:
    """AP of the best answers of some runs over that of one other, with 95 % intervals over clips, the same resamples
    on both sides. Raises BrokenError where the other has no AP."""
    groups = [frame.clip for frame in answers.frames]
    clips = len(set(groups))
    drawn = np.random.default_rng(seed).multinomial(clips, np.full(clips, 1 / clips), resamples)
    counts = np.column_stack([np.ones(clips), drawn.T]).astype(np.float64)

    def aps(outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
        looks = [(index, (index, each.best)) for index, each in enumerate(outcomes)]
        return mean_ap(answers.table(looks, groups), counts)

    other = aps(theirs)
    if not other[0] > 0:
        raise BrokenError("tiers: expected a cloud that finds something, got an AP of 0")
    found = {}
    for name, outcomes in ours.items():
        ratios = aps(outcomes)[other > 0] / other[other > 0]
        low, high = np.quantile(ratios[1:], (0.025, 0.975)) if len(ratios) > 1 else (ratios[0], ratios[0])
        found[name] = Interval(float(ratios[0]), float(low), float(high))
    return found


def run_figures(
    mode: Mode, outcomes: Sequence[Outcome], quality: Quality, times: TierTimes, constants: EnergyConstants
) -> dict[str, float]:
    """The figures of one mode over one link, without its name. Latencies are of frames that got an answer at all.
    Energy is that of the mean frame as modelled; its band is half of it either way (`fovea.core.energy`)."""
    latencies_ms = [1000 * each.latency_s for each in outcomes if each.latency_s is not None]
    if not latencies_ms:
        raise BrokenError(f"tiers: no frame was answered by {mode}")
    p95, p99 = np.percentile(latencies_ms, (95, 99)).tolist()
    energy = energy_of(work_of(mode, outcomes, times), constants)
    return {
        "ap": quality.ap,
        "f1": quality.f1,
        "streaming_ap": quality.streaming_ap,
        "latency_ms_mean": float(np.mean(latencies_ms)),
        "latency_ms_p95": p95,
        "latency_ms_p99": p99,
        "unanswered_pct": 100 * (1 - len(latencies_ms) / len(outcomes)),
        "bytes_per_frame": float(np.mean([each.sent_bytes for each in outcomes])),
        "joules_per_frame": energy.total_j,
    }


def work_of(mode: Mode, outcomes: Sequence[Outcome], times: TierTimes) -> FrameWork:
    """What the mean frame cost. A camera without a model of its own only encodes; what the cloud sees goes over both
    links."""
    count = len(outcomes)
    encoded = sum(each.is_asked for each in outcomes) / count
    looks = 1.0 if mode in (Mode.AGENT, Mode.HYBRID) else 0.0
    return FrameWork(
        camera_cpu_s=looks * times.camera_cpu_s + encoded * times.encode_cpu_s,
        local_bytes=sum(each.sent_bytes for each in outcomes) / count,
        edge_cpu_s=times.edge_cpu_s * sum(each.edge_looks for each in outcomes) / count,
        wide_bytes=sum(each.wide_bytes for each in outcomes) / count,
        cloud_cpu_s=times.cloud_cpu_s * sum(each.cloud_looks for each in outcomes) / count,
    )
