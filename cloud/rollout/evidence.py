"""What the devices of a group have shown since a stage began: those with the new model beside those without."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from cloud.rollout.sequential import NO_SUMS, WeightedSums
from cloud.rollout.shift import LEAST_OF_A_DEVICE, UNKNOWN, Shift, shift_of
from fovea.core.release import Agreement, DesiredState, Phase, ReportedState, ShadowReport, Stage


@dataclass(frozen=True, slots=True)
class Report:
    """What a device said, when it came (the cloud's clock), and what it had said when the stage began: counters only
    grow within one boot, so what happened in the stage is the difference."""

    state: ReportedState
    received_at: datetime
    before: ReportedState | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """The same devices in this stage and, with the champion, before it."""

    now: float = math.nan
    before: float = math.nan


NOT_KNOWN = Own()


@dataclass(frozen=True, slots=True)
class Cohort:
    """Devices that run (or shadow) the same model, together.

    devices reported it as running; failed stepped back, refused it or restarted again and again; frames, asked:
    since the stage began. p95_ms: median over devices, NaN where none has said. agreement: with the upper tier;
    shift: its change against that of the champion on the same cameras before. own_p95_ms, own_asked: of those devices
    that ran the champion when the stage began, as boards and views differ.
    """

    devices: int = 0
    failed: tuple[str, ...] = ()
    frames: int = 0
    asked: int = 0
    p95_ms: float = math.nan
    agreement: WeightedSums = NO_SUMS
    shift: Shift = UNKNOWN
    own_p95_ms: Own = NOT_KNOWN
    own_asked: Own = NOT_KNOWN

    @property
    def asked_rate(self) -> float:
        return self.asked / self.frames if self.frames else math.nan


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a decision is made from.

    active: devices that are there. due: those of them that should run (or shadow) the candidate. told: those of the
    due that say they act on the serial of this stage. paired: agreement of candidate minus champion on the same
    frames, in shadow. silent: devices that have not reported for long. comparable: those of the due of which it
    is known how the champion did on them before the stage; 0 where it is known of none beside them. That cannot come
    any more: the stages before have shown then what can be shown.
    """

    active: int
    due: int
    told: int
    candidate: Cohort
    champion: Cohort
    paired: WeightedSums = NO_SUMS
    crashes: int = 0
    silent: int = 0
    comparable: int = 0


def gather(
    desired: DesiredState, reports: Iterable[Report], now: datetime, silent_after_s: float
) -> Evidence:
    """Reports of devices in `desired.group`, which is in a stage with a candidate."""
    candidate = desired.candidate
    if candidate is None:
        return Evidence(0, 0, 0, Cohort(), Cohort())
    active, silent = _split(reports, now, silent_after_s)
    is_shadow = desired.stage is Stage.SHADOW
    due = [each for each in active if is_shadow or _is_in(desired, each.state.device)]
    told = [each for each in due if each.state.serial >= desired.serial]
    if is_shadow:
        return _of_shadow(candidate.sha256, due, told, len(silent))
    running = [each for each in told if _runs(each.state, candidate.sha256)]
    failed = tuple(each.state.device for each in told if _has_failed(each))
    beside = [
        each for each in active
        if not _is_in(desired, each.state.device) and _runs(each.state, desired.champion.sha256)
    ]  # fmt: skip
    return Evidence(
        active=len(active),
        due=len(due),
        told=len(told),
        candidate=_cohort(running, candidate.sha256, failed, desired.champion.sha256),
        champion=_cohort(
            beside,
            desired.champion.sha256,
            tuple(e.state.device for e in beside if _restarts(e) > 1),
            desired.champion.sha256,
        ),
        silent=len(silent),
        comparable=_comparable(due, beside, desired.champion.sha256),
    )


def _split(
    reports: Iterable[Report], now: datetime, silent_after_s: float
) -> tuple[list[Report], list[Report]]:
    """Those who are there, and those who are away."""
    active: list[Report] = []
    silent: list[Report] = []
    for each in reports:
        is_away = (now - each.received_at).total_seconds() > silent_after_s
        (silent if is_away else active).append(each)
    return active, silent


def _of_shadow(sha256: str, due: Sequence[Report], told: Sequence[Report], silent: int) -> Evidence:
    shadows = [
        (each, each.state.shadow)
        for each in told
        if each.state.shadow is not None and each.state.shadow.candidate_sha256 == sha256
    ]
    times = [shadow.candidate_ms_p95 for _, shadow in shadows if shadow.candidate_ms_p95 is not None]
    own = [
        each.state.health.detect_ms_p95 for each, _ in shadows if each.state.health.detect_ms_p95 is not None
    ]
    failed = tuple(each.state.device for each in told if _has_failed(each))
    return Evidence(
        active=len(due),
        due=len(due),
        told=len(told),
        candidate=Cohort(
            devices=len(shadows),
            failed=failed,
            frames=sum(shadow.frames for _, shadow in shadows),
            p95_ms=median(times) if times else math.nan,
        ),
        champion=Cohort(devices=len(told), p95_ms=median(own) if own else math.nan),
        paired=WeightedSums.of(_paired(shadow) for _, shadow in shadows),
        crashes=sum(shadow.crashes for _, shadow in shadows),
        silent=silent,
    )


def _cohort(reports: Sequence[Report], sha256: str, failed: tuple[str, ...], champion: str) -> Cohort:
    times = [e.state.health.detect_ms_p95 for e in reports if e.state.health.detect_ms_p95 is not None]
    return Cohort(
        devices=len(reports),
        failed=failed,
        frames=sum(_since(each, "frames") for each in reports),
        asked=sum(_since(each, "asked") for each in reports),
        p95_ms=median(times) if times else math.nan,
        agreement=WeightedSums.of(_agreement(each, sha256) for each in reports),
        shift=shift_of((_agreement(each, sha256), _earlier(each, champion)) for each in reports),
        own_p95_ms=_own_p95_ms(reports, champion),
        own_asked=_own_asked(reports, champion),
    )


def _own_p95_ms(reports: Sequence[Report], champion: str) -> Own:
    times = [
        (each.state.health.detect_ms_p95, each.before.health.detect_ms_p95)
        for each in reports
        if each.before is not None and _runs(each.before, champion)
    ]
    known = [(now, before) for now, before in times if now is not None and before is not None]
    if not known:
        return NOT_KNOWN
    return Own(median(now for now, _ in known), median(before for _, before in known))


def _own_asked(reports: Sequence[Report], champion: str) -> Own:
    """Rates; each device counts before as much as it has looked at since."""
    known = [
        (_since(each, "frames"), _since(each, "asked"), each.before.asked)
        for each in reports
        if each.before is not None and _runs(each.before, champion) and each.before.asked.frames
    ]
    frames = sum(count for count, _, _ in known)
    if not frames:
        return NOT_KNOWN
    before = sum(count * asked.asked / asked.frames for count, _, asked in known)
    return Own(sum(asked for _, asked, _ in known) / frames, before / frames)


def _is_in(desired: DesiredState, device: str) -> bool:
    candidate = desired.candidate
    return candidate is not None and desired.for_device(device).run.sha256 == candidate.sha256


def _runs(state: ReportedState, sha256: str) -> bool:
    return state.running is not None and state.running.sha256 == sha256


def _has_failed(report: Report) -> bool:
    return report.state.phase in (Phase.STEPPED_BACK, Phase.REFUSED) or _restarts(report) > 1


def _same_boot(report: Report) -> ReportedState | None:
    """What it had said before, where its counters have not begun anew since."""
    before = report.before
    return before if before is not None and before.boot_id == report.state.boot_id else None


def _restarts(report: Report) -> int:
    now, before = report.state.health.restarts, report.before
    return max(now - (before.health.restarts if before is not None else now), 0)


def _since(report: Report, name: str) -> int:
    before = _same_boot(report)
    now = int(getattr(report.state.asked, name))
    return max(now - (int(getattr(before.asked, name)) if before is not None else 0), 0)


def _agreement(report: Report, sha256: str) -> WeightedSums:
    """Of the model meant alone; what it had when the stage began is taken off."""
    now = _sums(report.state.agreement, sha256)
    before = _same_boot(report)
    old = _sums(before.agreement, sha256) if before is not None else NO_SUMS
    if now.n < old.n:
        return now
    return WeightedSums(
        now.n - old.n,
        now.sum_w - old.sum_w,
        now.sum_wx - old.sum_wx,
        now.sum_wxx - old.sum_wxx,
        now.sum_ww - old.sum_ww,
    )


def _earlier(report: Report, champion: str) -> WeightedSums:
    """What the champion had shown on this camera when the stage began, at whichever boot."""
    return NO_SUMS if report.before is None else _sums(report.before.agreement, champion)


def _comparable(due: Sequence[Report], beside: Sequence[Report], champion: str) -> int:
    def known(reports: Sequence[Report]) -> int:
        return sum(_earlier(each, champion).effective_n >= LEAST_OF_A_DEVICE for each in reports)

    return known(due) if known(beside) else 0


def _sums(agreement: Agreement | None, sha256: str) -> WeightedSums:
    if agreement is None or agreement.model_sha256 != sha256:
        return NO_SUMS
    return WeightedSums(agreement.n, agreement.sum_w, agreement.sum_wx, agreement.sum_wxx, agreement.sum_ww)


def _paired(shadow: ShadowReport) -> WeightedSums:
    return WeightedSums(shadow.paired_n, shadow.sum_w, shadow.sum_wd, shadow.sum_wdd, shadow.sum_ww)


def by_device(reports: Iterable[Report]) -> Mapping[str, Report]:
    """The last report of each device."""
    return {each.state.device: each for each in sorted(reports, key=lambda each: each.received_at)}
