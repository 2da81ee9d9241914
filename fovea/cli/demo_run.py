"""One whole demo: all tiers as processes, a live part, the measurement, the report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fovea.cli.demo_findings import DemoFindings, LiveFindings, Mode, ProcessFindings
from fovea.cli.demo_frames import FULL, DemoFrame, Subset, own_frames, street_subset
from fovea.cli.demo_live import LiveWatch, read_stats, subscribed
from fovea.cli.demo_measure import ModeRun, measure
from fovea.cli.demo_pictures import picture_rows
from fovea.cli.demo_report import write_report
from fovea.cli.demo_scores import mode_findings
from fovea.cli.demo_screen import live_line, live_view, show_results
from fovea.cli.demo_wiring import log_files, machine_facts, measured_tiers, model_facts
from fovea.cli.tier_plan import HOST, CameraPlan, PlannedTiers, TierPlan, street_cameras, write_plan
from fovea.cli.tiers import LineSink, TierProcesses
from fovea.core.energy import EnergyConstants
from fovea.core.errors import Malformed, Unavailable

_REFRESH_S = 0.5
_LINE_EVERY_S = 5.0
_FIRST_ANSWER_WITHIN_S = 60.0
_OWN_FRAMES = 200
_NOTES_STREET = (
    "AP counts every box that a tier answers with, also those too weak to be told to people, the same for every "
    "mode; docs/zoo.md counts more frames, and every candidate down to a score of 0.001.",
    "ms run from the decoded picture to the best answer, JPEG coding and gRPC on this machine included; no network "
    "lies between the tiers here. In hybrid the camera's own answer is there at once, before anybody is asked.",
)
_NOTES_OWN = (
    "Without ground truth no AP can be told. Agreement is the F1 of boxes of one class with an IoU of 0.5 or more "
    "against the cloud's own answers: being like the cloud is not being right.",
    _NOTES_STREET[1],
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a demo does. `plan` says which cameras and models (None: the simulated street and the bundled ones);
    `is_own_footage`: its cameras are a person's own, so that there is no ground truth."""

    out: Path
    seconds: float = 40.0
    subset: Subset = FULL
    plan: TierPlan | None = None
    is_own_footage: bool = False
    workers: int = 2


class Demo:
    """Runs once. What it starts it stops, however it ends."""

    def __init__(self, options: DemoOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._steps_s: dict[str, float] = {}
        self._plan = options.plan or TierPlan(options.out / "run", street_cameras())

    def run(self) -> DemoFindings:
        """The findings, which also lie as report.html in the out folder. Raises FoveaErrors."""
        plan, console = self._plan, self._console
        self._say_what_comes()
        clear_earlier_run(plan.folder)
        planned = write_plan(plan)
        watch = LiveWatch(plan.device, [camera.name for camera in plan.cameras])
        logs = log_files(plan.folder / "logs")
        with TierProcesses(planned.commands, logs) as tiers:
            with self._step("starting"):
                tiers.start(note=lambda text: console.print(f"  [dim]{text}[/]", highlight=False))
            with self._step("live"):
                live = self._live(tiers, planned, watch)
            tiers.stop_one("agent")
            with self._step("frames"):
                frames = self._frames()
            with self._step("measuring"):
                runs = self._measured(tiers, planned, frames, logs)
        with self._step("report"):
            findings = self._findings(live, frames, runs)
            write_report(findings, self._options.out / "report.html")
        return findings

    def _say_what_comes(self) -> None:
        frames = self._options.subset.frames if not self._options.is_own_footage else _OWN_FRAMES
        self._console.print(
            f"[bold]Fovea demo[/]: broker, cloud, edge and agent as processes of their own. About 10 s to start, "
            f"{self._options.seconds:.0f} s live, then {frames} frames answered in four ways: "
            f"about {10 + 0.1 * frames:.0f} to {30 + 0.6 * frames:.0f} s on two cores.",
            highlight=False,
        )

    def _live(self, tiers: TierProcesses, planned: PlannedTiers, watch: LiveWatch) -> LiveFindings:
        seconds = self._options.seconds
        with subscribed(watch, HOST, planned.mqtt_port):
            self._wait_for_first_answer(tiers, watch)
            watch.restart()
            cpu_before_s = tiers.cpu_s()
            self._show_until(tiers, planned, watch, seconds, cpu_before_s)
            cpu_after_s, memory_bytes = tiers.cpu_s(), tiers.rss_bytes()
            sources = _shown_sources(self._plan.cameras)
            return LiveFindings(
                seconds=watch.seconds,
                cameras=watch.cameras(sources),
                moments=watch.moments(),
                latencies_ms=watch.latencies_ms(),
                processes=[
                    ProcessFindings(name, cpu_after_s[name] - cpu_before_s[name], memory_bytes[name] / 1e6)
                    for name in cpu_after_s
                ],
            )

    def _wait_for_first_answer(self, tiers: TierProcesses, watch: LiveWatch) -> None:
        while not any(watch.latencies_ms().values()):
            tiers.check()
            if watch.seconds > _FIRST_ANSWER_WITHIN_S:
                raise Unavailable(
                    f"no answer of the agent arrived over MQTT within {_FIRST_ANSWER_WITHIN_S:.0f} s; "
                    f"its log lies in {self._plan.folder / 'logs'}"
                )
            time.sleep(0.1)

    def _show_until(
        self,
        tiers: TierProcesses,
        planned: PlannedTiers,
        watch: LiveWatch,
        seconds: float,
        cpu_before_s: Mapping[str, float],
    ) -> None:
        names = _shown_sources(self._plan.cameras)
        is_terminal = self._console.is_terminal
        line_at_s = _LINE_EVERY_S
        with Live(console=self._console, auto_refresh=False, transient=False) as screen:
            while watch.seconds < seconds:
                time.sleep(_REFRESH_S)
                tiers.check()
                stats = read_stats(planned.stats_file)
                if stats is not None:
                    watch.take_stats(stats)
                at_s = watch.seconds
                cameras = watch.cameras(names)
                if is_terminal:
                    shares = {
                        name: (used - cpu_before_s[name]) / at_s for name, used in tiers.cpu_s().items()
                    }
                    screen.update(live_view(cameras, at_s, seconds, shares), refresh=True)
                elif at_s >= line_at_s:
                    line_at_s += _LINE_EVERY_S
                    self._console.print(live_line(cameras, at_s), highlight=False, soft_wrap=True)

    def _frames(self) -> list[DemoFrame]:
        options = self._options
        with self._bars() as bars:
            task = bars.add_task("frames", total=None)

            def show(done: int, every: int) -> None:
                bars.update(task, completed=done, total=every)

            if options.is_own_footage:
                frames = own_frames(self._plan.cameras, _OWN_FRAMES, show)
                bars.update(task, completed=len(frames), total=len(frames))
                return frames
            bars.update(task, description="drawing test clips")
            return street_subset(options.subset, options.workers, show)

    def _measured(
        self, tiers: TierProcesses, planned: PlannedTiers, frames: Sequence[DemoFrame], logs: LineSink
    ) -> dict[Mode, ModeRun]:
        with measured_tiers(self._plan, planned, tiers, logs) as asked, self._bars() as bars:
            tasks: dict[Mode, TaskID] = {
                mode: bars.add_task(mode.value, total=len(frames), start=False) for mode in Mode
            }

            def show(mode: Mode, done: int, every: int) -> None:
                bars.update(tasks[mode], completed=done)

            runs = {}
            for mode in Mode:
                tiers.check()
                bars.start_task(tasks[mode])
                runs[mode] = measure(frames, mode, asked, show)
            return runs

    def _findings(
        self, live: LiveFindings, frames: Sequence[DemoFrame], runs: Mapping[Mode, ModeRun]
    ) -> DemoFindings:
        is_street = not self._options.is_own_footage
        constants = EnergyConstants()
        models, labels = model_facts(self._plan.bundles)
        modes = mode_findings(frames, runs, constants)
        clips = len({frame.group for frame in frames})
        what = "test frames of the rendered street" if is_street else "frames of your footage"
        return DemoFindings(
            made_at=datetime.now(UTC),
            source=f"{len(frames)} {what}, {clips} clip{'' if clips == 1 else 's'}, 2 frames a second",
            has_truth=is_street,
            machine=machine_facts(),
            models=models,
            live=live,
            modes=modes,
            pictures=picture_rows(frames, runs, labels),
            constants=constants.table(),
            steps=dict(self._steps_s),
            notes=_NOTES_STREET if is_street else _NOTES_OWN,
        )

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begun_s = time.monotonic()
        self._console.print(f"[bold]{name}[/]")
        yield
        self._steps_s[name] = time.monotonic() - begun_s

    def _bars(self) -> Progress:
        return Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )


def clear_earlier_run(folder: Path, known_by: str = "edge-alone.yaml") -> None:
    """Removes what an earlier demo left in `folder`, `known_by` a file. Raises Malformed, and removes nothing, when a
    folder that is not empty does not look like that: it may be somebody's."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / known_by).is_file()):
        raise Malformed(f"{folder}: expected nothing, or what an earlier demo left; give another --out")
    shutil.rmtree(folder)


def run_demo(options: DemoOptions, console: Console) -> DemoFindings:
    """Runs a demo, and shows its results on `console`."""
    findings = Demo(options, console).run()
    show_results(console, findings)
    console.print(f"report: {options.out / 'report.html'}", highlight=False)
    return findings


def _shown_sources(cameras: Sequence[CameraPlan]) -> dict[str, str]:
    from edge_agent.capture.source import shown_url

    urls = {camera.name: shown_url(camera.source) for camera in cameras}
    return {name: url if "://" in url else Path(url).name for name, url in urls.items()}
