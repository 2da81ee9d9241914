"""From the answers of a measurement to its figures: AP with intervals, or agreement where there is no truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.evaluate import EvaluatedFrame, Interval, MatchTable, compare, interval, match, report
from calibration.matching import BoxSize
from fovea.cli.demo_findings import Latency, Mode, ModeFindings
from fovea.cli.demo_frames import DemoFrame
from fovea.cli.demo_measure import ModeRun
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.energy import EnergyConstants, FrameWork, energy_of
from fovea.core.geometry import iou_matrix

RESAMPLES = 1000
AGREES_FROM_IOU = 0.5


def mode_findings(
    frames: Sequence[DemoFrame], runs: Mapping[Mode, ModeRun], constants: EnergyConstants
) -> list[ModeFindings]:
    """The figures of each mode, in the order of `runs`. Frames carry a truth either all or none."""
    has_truth = all(frame.truth is not None for frame in frames)
    tables = _tables(frames, runs) if has_truth else {}
    cloud = runs.get(Mode.CLOUD)
    found = []
    for mode, run in runs.items():
        table = tables.get(mode)
        scores = None if table is None else report(table)
        found.append(
            ModeFindings(
                mode=mode,
                frames=len(run.answers),
                ap=None if table is None else interval(table, resamples=RESAMPLES),
                ap50=None if scores is None else scores.ap50,
                agreement=None if has_truth or cloud is None else _shared(run, cloud),
                hybrid_gain=_gain(tables, mode),
                latency=latency_of([answer.latency_ms for answer in run.answers]),
                bytes_per_frame=_mean([answer.sent_bytes for answer in run.answers]),
                asked_share=_mean([answer.is_asked for answer in run.answers]),
                cloud_share=_mean([answer.is_from_cloud for answer in run.answers]),
                energy=energy_of(work_of(run), constants),
                unanswered=sum(answer.is_unanswered for answer in run.answers),
                ap_by_condition={} if table is None else _by_condition(table, frames),
            )
        )
    return found


def latency_of(latencies_ms: Sequence[float]) -> Latency:
    """Mean, median and 95th percentile of at least one time."""
    p50, p95 = np.percentile(np.asarray(latencies_ms), (50, 95)).tolist()
    return Latency(_mean(latencies_ms), p50, p95)


def work_of(run: ModeRun) -> FrameWork:
    """What the mean frame of a run cost. Pictures that the cloud saw went over both links."""
    count = max(len(run.answers), 1)
    return FrameWork(
        camera_cpu_s=run.camera_cpu_s / count,
        local_bytes=sum(answer.sent_bytes for answer in run.answers) / count,
        edge_cpu_s=max(run.edge_cpu_s, 0.0) / count if run.mode is not Mode.CLOUD else 0.0,
        wide_bytes=sum(answer.sent_bytes for answer in run.answers if answer.is_from_cloud) / count,
        cloud_cpu_s=max(run.cloud_cpu_s, 0.0) / count if run.mode is not Mode.EDGE else 0.0,
    )


def agreement(a: Detections, b: Detections) -> tuple[int, int]:
    """(boxes in common, boxes of both together): a pair is common when the class is the same and IoU is 0.5 or more.
    Each box is paired once at most, the best overlaps first."""
    overlaps = iou_matrix(a.boxes_xyxy, b.boxes_xyxy)
    overlaps = np.where(a.class_ids[:, None] == b.class_ids[None, :], overlaps, 0.0)
    common = 0
    while overlaps.size and overlaps.max() >= AGREES_FROM_IOU:
        row, column = np.unravel_index(int(overlaps.argmax()), overlaps.shape)
        overlaps[row, :] = 0.0
        overlaps[:, column] = 0.0
        common += 1
    return common, len(a) + len(b)


def _tables(frames: Sequence[DemoFrame], runs: Mapping[Mode, ModeRun]) -> dict[Mode, MatchTable]:
    class_ids = sorted(
        {int(class_id) for frame in frames if frame.truth is not None for class_id in frame.truth.class_ids}
    )
    return {
        mode: match(
            [
                EvaluatedFrame(frame.group, frame.truth, answer.detections)
                for frame, answer in zip(frames, run.answers, strict=True)
                if frame.truth is not None
            ],
            class_ids,
            (BoxSize.ALL,),
        )
        for mode, run in runs.items()
    }


def _gain(tables: Mapping[Mode, MatchTable], mode: Mode) -> Interval | None:
    if mode is Mode.HYBRID or mode not in tables or Mode.HYBRID not in tables:
        return None
    return compare(tables[Mode.HYBRID], tables[mode], resamples=RESAMPLES)


def _by_condition(table: MatchTable, frames: Sequence[DemoFrame]) -> dict[str, float]:
    groups: dict[str, set[str]] = {}
    for frame in frames:
        groups.setdefault(frame.condition, set()).add(frame.group)
    return {condition: report(table, chosen).ap for condition, chosen in groups.items()}


def _shared(run: ModeRun, cloud: ModeRun) -> float:
    """F1 of the boxes that are told, over all frames; 1 where neither saw anything."""
    common = every = 0
    for answer, sharp in zip(run.answers, cloud.answers, strict=True):
        both, total = agreement(answer.detections.above(TOLD_FROM), sharp.detections.above(TOLD_FROM))
        common, every = common + both, every + total
    return 2 * common / every if every else 1.0


def _mean(values: Sequence[float] | Sequence[int] | Sequence[bool]) -> float:
    return float(np.mean(np.asarray(values, np.float64))) if len(values) else 0.0
