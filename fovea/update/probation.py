"""Has a model that runs proved itself? A pure decision over two looks at the device's health."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fovea.core.release import Health, Probation


class Verdict(StrEnum):
    WAIT = "wait"
    COMMIT = "commit"
    STEP_BACK = "step_back"


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class ProbationRules:
    """most_failures: frames on which the model may break. patience_s: how much longer than asked for it may take to
    see enough frames; a model that nobody sees work is not kept."""

    most_failures: int = 0
    patience_s: float = 3600.0


def judge_probation(
    probation: Probation,
    began: Health,
    now: Health,
    elapsed_s: float,
    rules: ProbationRules = ProbationRules(),
) -> Finding:
    """`began` is from the switch, `elapsed_s` since then."""
    failures, frames = now.failures - began.failures, now.frames - began.frames
    if failures > rules.most_failures:
        return Finding(Verdict.STEP_BACK, f"it broke on {failures} of {frames + failures} frames")
    if now.restarts > began.restarts:
        return Finding(Verdict.STEP_BACK, "the process restarted during the probation")
    if frames >= probation.frames and elapsed_s >= probation.seconds:
        slowest_ms, got_ms = probation.max_ms_p95, now.detect_ms_p95
        if slowest_ms is not None and got_ms is not None and got_ms > slowest_ms:
            return Finding(
                Verdict.STEP_BACK, f"too slow: p95 of {got_ms:.1f} ms a frame, allowed are {slowest_ms:g} ms"
            )
        if slowest_ms is None or got_ms is not None:
            return Finding(Verdict.COMMIT, f"{frames} frames in {elapsed_s:.0f} s without a failure")
    if elapsed_s > probation.seconds + rules.patience_s:
        return Finding(
            Verdict.STEP_BACK,
            f"not proved: {frames} frames in {elapsed_s:.0f} s, "
            f"expected {probation.frames} in {probation.seconds:g} s",
        )
    return Finding(
        Verdict.WAIT, f"{frames} of {probation.frames} frames, {elapsed_s:.0f} of {probation.seconds:g} s"
    )
