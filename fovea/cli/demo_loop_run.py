"""The second act from its beginning to its report: day, night, a round, a rollout, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from fovea.cli.demo_live import subscribed
from fovea.cli.demo_loop_acts import CONDITIONS, Acts, Found, StageHands
from fovea.cli.demo_loop_findings import (
    Asked,
    LoopFindings,
)
from fovea.cli.demo_loop_measure import picture_rows, qualities_of, with_asked
from fovea.cli.demo_loop_plan import DAY, DEVICES, NIGHT, LoopPlan, plan_loop
from fovea.cli.demo_loop_record import Recorder
from fovea.cli.demo_loop_report import write_report
from fovea.cli.demo_loop_rollout import begin_releases
from fovea.cli.demo_loop_screen import show_findings
from fovea.cli.demo_loop_street import StreetPerson
from fovea.cli.demo_loop_watch import FleetWatch
from fovea.cli.demo_run import clear_earlier_run
from fovea.cli.demo_wiring import log_files, machine_facts
from fovea.cli.tier_plan import HOST
from fovea.cli.tiers import TierProcesses
from fovea.runtime.bundle import Bundle


class LoopDemo:
    """Runs once. What it starts it stops, however it ends."""

    def __init__(self, plan: LoopPlan, out: Path, console: Console) -> None:
        self._plan, self._out, self._console = plan, out, console
        self._steps_s: dict[str, float] = {}

    def run(self) -> LoopFindings:
        """The findings, which also lie as report.html and figures.json in the out folder. Raises FoveaErrors."""
        plan = self._plan
        self._say_what_comes()
        clear_earlier_run(plan.folder, "cloud.yaml")
        begun_s = time.monotonic()
        planned = plan_loop(plan)
        with ExitStack() as open_now:
            person = StreetPerson(plan)
            open_now.callback(person.close)
            with self._step("the street and the first student"):
                found = self._prepared(person)
                begin_releases(planned, found.first)
            tiers = open_now.enter_context(TierProcesses(planned.commands, log_files(plan.folder / "logs")))
            with self._step("starting"):
                tiers.start(note=self._note)
            watch = FleetWatch(DEVICES)
            recorder = Recorder(watch, planned.stats_files, person.count, self._console)
            recorder.ap = {f"{each.condition}, old": each.old.value for each in found.qualities}
            open_now.enter_context(subscribed(watch, HOST, planned.mqtt_port))
            with recorder.running():
                Acts(planned, tiers, watch, recorder, person, found, self._step, StageHands()).play()
        with self._step("report"):
            findings = self._findings(found, recorder, time.monotonic() - begun_s)
            write_report(findings, self._out)
        return findings

    def _say_what_comes(self) -> None:
        plan = self._plan
        playing_s = plan.day_s + plan.night_s + plan.after_s + 5 * plan.stage_s
        minutes = plan.train_minutes + playing_s / 60
        self._console.print(
            f"[bold]Fovea demo, second act[/]: broker, cloud, edge and three agents as processes of their own. "
            f"{plan.train_minutes:g} minutes of training; about {minutes + 4:.0f} to {minutes + 9:.0f} minutes in "
            "all on two cores.",
            highlight=False,
        )

    def _prepared(self, person: StreetPerson) -> Found:
        plan = self._plan
        self._note("drawing clips, and labelling those of the day")
        day_only = Bundle.open(_zoo("street-student-day-int8"))
        golden = {DAY: person.label_golden(DAY, day_only)}
        first = person.first_champion()
        self._note(
            f"{first.ref}: the day-only student with a gate fitted on {golden[DAY]} labelled day frames"
        )
        clips = person.test_clips()
        old = clips.table(first, CONDITIONS)
        qualities = with_asked(qualities_of(clips, old, None), clips, first, None, plan.ask_from)
        for each in qualities:
            self._note(
                f"AP50-95 on {each.frames} held-out {each.condition} frames: {100 * each.old.value:.1f}"
            )
        person.draw_golden(NIGHT)
        self._note(f"{plan.golden_clips} clips by night are drawn, for people to label when it is night")
        return Found(first, clips, old, qualities, golden)

    def _findings(self, found: Found, recorder: Recorder, seconds: float) -> LoopFindings:
        plan = self._plan
        pictures = []
        if found.new is not None:
            street = StreetPerson(plan)
            try:
                frames = {name: street.test_frames(name) for name in CONDITIONS}
            finally:
                street.close()
            pictures = picture_rows(frames, found.first, found.new)
        new = found.new
        return LoopFindings(
            made_at=datetime.now(UTC),
            seconds=seconds,
            devices=len(DEVICES),
            cameras=len(plan.cameras),
            moments=tuple(recorder.moments),
            marks=tuple(recorder.marks),
            qualities=tuple(found.qualities),
            asked=Asked(**found.asked),
            round=found.round,
            rollout=found.rollout,
            cases=found.cases,
            golden=found.golden,
            bytes_up=recorder.bytes_up.total,
            bytes_down=float(len(new.to_bytes())) if new is not None and found.rollout is not None else 0.0,
            teacher=str(Bundle.open(_zoo("street-cloud")).ref),
            students=tuple(str(each.ref) for each in (found.first, new) if each is not None),
            pictures=pictures,
            machine=machine_facts(),
            steps=dict(self._steps_s),
            settings=_settings(plan),
        )

    def _note(self, text: str) -> None:
        self._console.print(f"  {text}", style="dim", highlight=False, markup=False)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begun_s = time.monotonic()
        self._console.print(f"[bold]{name}[/]")
        yield
        self._steps_s[name] = time.monotonic() - begun_s


def run_demo_loop(plan: LoopPlan, out: Path, console: Console) -> LoopFindings:
    """Plays the second act, and shows its results on `console`."""
    findings = LoopDemo(plan, out, console).run()
    show_findings(console, findings)
    console.print(f"report: {out / 'report.html'}", highlight=False)
    return findings


def _zoo(name: str) -> Path:
    from fovea.zoo.catalogue import path_of

    return path_of(name)


def _settings(plan: LoopPlan) -> dict[str, str]:
    """What a reader has to know of the plan."""
    return {
        "cameras look": f"{plan.fps:g} times a second each",
        "audits": f"{plan.audit_share:.0%}",
        "asked from": f"p_ask {plan.ask_from:g}",
        "training": f"{plan.train_minutes:g} minutes",
        "stage at least": f"{plan.stage_s:.0f} s",
        "worse by at most": f"{plan.worse_by:g}",
        "slower by at most": f"{plan.latency_ratio:g} times",
    }
