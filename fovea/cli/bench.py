"""`fovea bench ...`: the published figures, measured on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fovea.core.errors import Malformed

if TYPE_CHECKING:
    from fovea.bench.result import BenchResult
    from fovea.bench.street_frames import Wanted
    from fovea.bench.zoo import Progress as BenchProgress

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Measure the published figures on this machine."
)

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result here, as one JSON object.")
]
Split = Annotated[str, typer.Option(help="Split of the street suite: test or val.")]
Frames = Annotated[int, typer.Option(min=1, max=14, help="Frames of each clip.")]
Clips = Annotated[int, typer.Option(min=0, max=24, help="Clips of each condition; 0: all of the split.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes side by side.")]
Folder = Annotated[
    Path | None, typer.Option("--frames-folder", help="Keep the rendered frames here, for the next run too.")
]
VideoFolder = Annotated[
    Path | None, typer.Option("--videos-folder", help="Keep the drawn videos here, for the next run too.")
]
WorkFolder = Annotated[
    Path | None, typer.Option("--work-folder", help="Keep configurations and logs of the processes here.")
]


@app.command()
def zoo(
    json: JsonFile = None,
    split: Split = "test",
    frames: Frames = 3,
    clips: Clips = 0,
    models: Annotated[str, typer.Option(help="Some of the models, with commas; empty: all.")] = "",
    workers: Workers = 2,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of each model.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda:N.")] = "cpu",
    frames_folder: Folder = None,
) -> None:
    """AP, size and time of the bundled street models, by condition."""
    from fovea.bench.zoo import MODELS, ZooSettings, run

    names = tuple(name.strip() for name in models.split(",") if name.strip()) or tuple(MODELS)
    settings = ZooSettings(_wanted(split, frames, clips), names, workers, threads, device)
    with _folder(frames_folder) as folder, _progress() as progress:
        result = run(settings, folder, progress)
    _print_zoo(result, names)
    _finish(result, json)


@app.command()
def sim(
    json: JsonFile = None,
    frames: Annotated[int, typer.Option(min=1, help="Frames drawn of each clip.")] = 20,
    clips: Annotated[int, typer.Option(min=1, max=12, help="Clips of each condition.")] = 2,
) -> None:
    """Frames per second of the street renderer on one core."""
    from fovea.bench.sim import run

    with Console().status("drawing") as status:
        result = run(frames, clips, progress=lambda condition: status.update(f"drawing {condition}"))
    _finish(result, json)


@app.command()
def quantize(
    json: JsonFile = None,
    split: Split = "test",
    frames: Frames = 3,
    clips: Clips = 0,
    workers: Workers = 2,
    fp32: Annotated[Path | None, typer.Option(help="FP32 bundle; the bundled student if left out.")] = None,
    int8: Annotated[Path | None, typer.Option(help="INT8 bundle made from it.")] = None,
    frames_folder: Folder = None,
) -> None:
    """Speed, AP and size of the INT8 student against its FP32 parent, on one thread."""
    from fovea.bench.quantize import QuantizeSettings, run

    settings = QuantizeSettings(_wanted(split, frames, clips), workers)
    with _folder(frames_folder) as folder, _progress() as progress:
        result = run(settings, folder, progress, fp32, int8)
    _finish(result, json)


@app.command()
def loop(
    work_folder: Annotated[
        Path, typer.Option(help="Everything lies here; a run that was killed goes on from it.")
    ],
    json: JsonFile = None,
    clips: Annotated[int, typer.Option(min=2, help="Clips that the camera sees of each condition.")] = 100,
    audit_clips: Annotated[int, typer.Option(min=2, help="Clips of each that people label.")] = 40,
    test_clips: Annotated[int, typer.Option(min=1, help="Clips of each in the test.")] = 24,
    minutes: Annotated[float, typer.Option(min=0.02, help="Of each training.")] = 4.0,
    mode: Annotated[str, typer.Option(help="pseudo or pseudo_kd.")] = "pseudo",
    rounds: Annotated[str, typer.Option(help="Some of the conditions, with commas; empty: all.")] = "",
    seed: Annotated[int | None, typer.Option(help="Draws the poison; left out: drawn now.")] = None,
    min_golden: Annotated[int, typer.Option(min=1, help="Golden frames that a verdict needs.")] = 80,
    min_new: Annotated[int, typer.Option(min=1, help="Of them, such of the new condition.")] = 30,
) -> None:
    """Rounds of learning from day to fog, one of them poisoned: what they gain, and what they must not do."""
    from cloud.learn.distil import Mode
    from cloud.learn.promotion import PromotionSettings
    from fovea.bench.loop import ROUNDS, LoopSettings, run
    from fovea.cli.loop import RoundScreen

    named = tuple(name.strip() for name in rounds.split(",") if name.strip()) or ROUNDS
    settings = LoopSettings(
        clips=clips,
        audit_clips=audit_clips,
        test_clips=test_clips,
        minutes=minutes,
        mode=Mode(mode),
        rounds=named,
        seed=seed,
        promotion=PromotionSettings(min_golden_frames=min_golden, min_new_frames=min_new),
    )
    with RoundScreen(Console()) as screen:
        result = run(settings, work_folder, screen)
    _finish(result, json)


@app.command()
def latency(
    json: JsonFile = None,
    bundle: Annotated[str, typer.Option(help="What the server runs: a .fovea file, or zoo:NAME.")] = (
        "zoo:street-student-int8"
    ),
    answers: Annotated[int, typer.Option(min=150, help="Answers to record.")] = 1500,
    longest_s: Annotated[float, typer.Option(min=5, help="Record for so long at most.")] = 110.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the load.")] = 0,
    predictor: Annotated[
        Path | None, typer.Option(help="Also write the better predictor here, as JSON.")
    ] = None,
) -> None:
    """Error of an LSTM and of a running mean that foretell the latency of an edge server under load."""
    from fovea.bench.latency import LatencySettings, run
    from fovea.bench.latency_traces import LoadPlan

    plan = LoadPlan(answers=answers, longest_s=longest_s, seed=seed)
    with Console(stderr=True).status("starting an edge server") as status:
        result = run(
            LatencySettings(bundle, plan),
            lambda done, every: status.update(f"recording under load: {done} of {every} answers"),
            predictor,
        )
    _finish(result, json)


@app.command()
def real(
    data: Annotated[
        Path,
        typer.Option(envvar="FOVEA_REALDATA", help="Folder with coco/ and models/; see docs/experiments.md."),
    ],
    json: JsonFile = None,
    models: Annotated[str, typer.Option(help="Some of the models, with commas; empty: all.")] = "",
    images: Annotated[int, typer.Option(min=0, help="How many images; 0: all.")] = 0,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of each model.")] = 1,
) -> None:
    """AP of public detectors on COCO val photographs, imported and run as ours; with all of them also as tiers."""
    from fovea.bench.real import MODELS, run

    names = tuple(name.strip() for name in models.split(",") if name.strip()) or tuple(MODELS)
    with Console().status("reading") as status:
        result = run(data, names, images, threads, lambda step: status.update(step))
    _finish(result, json)


@app.command("frame-path")
def frame_path(
    json: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often the stacks take turns.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Each stack in each round.")] = 8.0,
    ultralytics: Annotated[
        bool, typer.Option(help="Compare with Ultralytics, where it and torch are installed.")
    ] = True,
    cache: VideoFolder = None,
    work: WorkFolder = None,
) -> None:
    """What the agent costs beside a bare loop and beside Ultralytics: processes on one core, one thread."""
    from fovea.bench.frame_path import FramePathSettings, run

    settings = FramePathSettings(rounds=rounds, seconds=seconds)
    if not ultralytics:
        settings = replace(settings, architecture=None)
    with _folder(cache) as videos, _folder(work) as files, _steps() as note:
        result = run(settings, videos, files, note)
    _finish(result, json)


@app.command()
def cameras(
    json: JsonFile = None,
    count: Annotated[int, typer.Option("--cameras", min=1, max=256, help="How many.")] = 20,
    fps: Annotated[float, typer.Option(min=0.1, max=60, help="Frames per second of each.")] = 5.0,
    seconds: Annotated[float, typer.Option(min=1, help="How long it is measured.")] = 40.0,
    workers: Workers = 2,
    cache: VideoFolder = None,
    work: WorkFolder = None,
) -> None:
    """CPU, memory and latency of one agent with many file streams, publishing to a real broker."""
    from fovea.bench.cameras import CamerasSettings, run

    settings = CamerasSettings(count, fps, seconds, workers=workers)
    with _folder(cache) as videos, _folder(work) as files, _steps() as note:
        result = run(settings, videos, files, note)
    _finish(result, json)


@app.command()
def tiers(
    json: JsonFile = None,
    split: Split = "test",
    clips: Annotated[int, typer.Option(min=1, max=24, help="Clips of each condition.")] = 12,
    frames: Annotated[int, typer.Option(min=2, max=25, help="Frames of each clip.")] = 8,
    live: Annotated[
        int, typer.Option("--live-frames", min=0, max=58, help="Of each camera in the real run; 0: none.")
    ] = 48,
    workers: Workers = 2,
    recordings: Annotated[
        Path | None,
        typer.Option("--recordings-folder", help="Keep what the models saw here, for the next run too."),
    ] = None,
    work: WorkFolder = None,
) -> None:
    """Agent, edge, cloud and all together over LAN, WAN, LTE and an outage: AP, latency, bytes, energy."""
    from fovea.bench.tiers import TiersSettings, run

    settings = TiersSettings(split, clips, frames, live_frames=live, workers=workers)
    with _folder(recordings) as kept, _folder(work) as files, _steps() as note:
        result = run(settings, kept, files, note)
    _finish(result, json)


@app.command()
def regions(
    json: JsonFile = None,
    split: Split = "test",
    clips: Annotated[int, typer.Option(min=1, max=24, help="Clips of each condition.")] = 16,
    frames: Annotated[int, typer.Option(min=1, max=8, help="Frames of each clip: 1, 2, 4 or 8.")] = 2,
    asked: Annotated[float, typer.Option(min=1, max=100, help="Percent of the frames that is asked.")] = 30.0,
    workers: Workers = 2,
) -> None:
    """What it costs and gains to ask about the parts of a frame that are in doubt, against whole frames."""
    from fovea.bench.regions import RegionsBenchSettings, run

    settings = RegionsBenchSettings(split, clips, frames, asked, workers)
    with Console(stderr=True).status("walking") as status:
        result = run(settings, lambda done, every: status.update(f"walking: {done} of {every} clips"))
    _finish(result, json)


@app.command()
def gate(
    json: JsonFile = None,
    folder: Annotated[
        Path, typer.Option(help="Keep recordings here; a run that was broken off goes on from them.")
    ] = Path("out/gate"),
    data: Annotated[
        Path | None,
        typer.Option(envvar="FOVEA_REALDATA", help="Folder with coco/ and models/, for real photographs."),
    ] = None,
    camera: Annotated[str, typer.Option(help="Bundle of the camera.")] = "zoo:street-student-int8",
    edge: Annotated[str, typer.Option(help="Bundle of the edge.")] = "zoo:street-edge",
    cloud: Annotated[str, typer.Option(help="Bundle of the cloud.")] = "zoo:street-cloud",
    fit_clips: Annotated[int, typer.Option(min=5, help="Clips of each condition to fit on.")] = 30,
    val_clips: Annotated[int, typer.Option(min=1, max=12, help="Clips of each condition for prices.")] = 10,
    test_clips: Annotated[int, typer.Option(min=1, max=24, help="Clips of each condition to judge on.")] = 16,
    resamples: Annotated[int, typer.Option(min=100, help="Of the clips, for intervals.")] = 1000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that record.")] = 1,
    plots: Annotated[Path | None, typer.Option(help="Put plots into this folder, as PNG.")] = None,
) -> None:
    """What the gates choose to ask, against published rules and an oracle."""
    from fovea.bench.cascade_recording import Trio
    from fovea.bench.gate import GateBenchSettings, run
    from fovea.bench.gate_fit import GateSample
    from fovea.process.config_parts import bundle_path

    settings = GateBenchSettings(GateSample(fit_clips, val_clips, test_clips, workers), resamples, data)
    trio = Trio(bundle_path(camera), bundle_path(edge), bundle_path(cloud))
    with Console(stderr=True).status("recording") as status:
        result = run(
            settings,
            trio,
            folder,
            lambda split, done, every: status.update(f"recording {split}: {done} of {every} clips"),
            status.update,
            plots,
        )
    for name in ("street", "street2", "coco", "coco_merged"):
        if f"{name}.verdicts" in result.settings:
            Console().print(f"{name}: ours is {result.settings[f'{name}.verdicts']}", highlight=False)
    _finish(result, json)


@app.command()
def rollout(
    json: JsonFile = None,
    devices: Annotated[int, typer.Option(min=2, help="Devices of the fleet, all together.")] = 1000,
    processes: Annotated[int, typer.Option(min=0, help="How many of them are processes of their own.")] = 20,
    fuzzed: Annotated[int, typer.Option(min=0, help="Spoilt releases to try.")] = 10_000,
    speed: Annotated[float, typer.Option(min=1, help="Virtual seconds in a real one, at most.")] = 60.0,
    workers: Workers = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the fleet.")] = 0,
) -> None:
    """Three rollouts to a simulated fleet that runs the shipped updater, over a real broker and signed releases."""
    from fovea.bench.rollout import RolloutSettings, run
    from fovea.bench.rollout_site import SiteSettings

    site = SiteSettings(devices, processes, speed=speed, seed=seed)
    with _steps() as say:
        result = run(RolloutSettings(site, fuzzed, workers), say)
    _finish(result, json)


def _wanted(split: str, frames: int, clips: int) -> Wanted:
    from fovea.bench.street_frames import Wanted

    if split not in ("val", "test"):
        raise Malformed(f"split: expected val or test, got {split!r}")
    return Wanted(split, frames, clips)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="fovea-bench-") as folder:
        yield Path(folder)


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Says each step as a line of its own: a run takes minutes, and may end in a log."""
    console = Console(stderr=True)
    yield lambda text: console.print(f"[dim]{text}[/]", highlight=False)


@contextmanager
def _progress() -> Iterator[BenchProgress]:
    """Bars: one for clips drawn, one for each model."""
    from fovea.bench.zoo import Progress as BenchProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {}

        def show(name: str, done: int, every: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=every)
            bars.update(tasks[name], completed=done)

        yield BenchProgress(lambda done, every: show("clips drawn", done, every), show)


def _print_zoo(result: BenchResult, names: tuple[str, ...]) -> None:
    figures = result.figures
    conditions = sorted({name.rpartition(".")[2] for name in figures if name.startswith("ap.")})
    table = Table(title="AP50-95 in points, with its 95 % interval over clips")
    for heading in ("model", *conditions, "parameters", "MB", "ms"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name in names:
        cells = [
            f"{100 * figures[f'ap.{name}.{c}']:.1f}\n"
            f"[dim]{100 * figures[f'ap_low.{name}.{c}']:.1f}-{100 * figures[f'ap_high.{name}.{c}']:.1f}[/]"
            for c in conditions
        ]
        spent = figures.get(f"cpu_ms.{name}", figures.get(f"device_ms.{name}", 0.0))
        table.add_row(
            name,
            *cells,
            f"{figures.get(f'params.{name}', 0):,.0f}",
            f"{figures[f'bytes.{name}'] / 1e6:.2f}",
            f"{spent:.1f}",
        )
    Console().print(table)


def _finish(result: BenchResult, json: Path | None) -> None:
    """Prints every figure (the zoo has its own table on top) and writes the JSON object where one is wanted."""
    console = Console()
    if result.name != "zoo":
        table = Table(title=f"{result.name}, {result.when:%Y-%m-%d %H:%M} UTC")
        table.add_column("figure")
        table.add_column("value", justify="right")
        for name, value in result.figures.items():
            table.add_row(name, f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")
        console.print(table)
    console.print(f"[dim]{result.machine.cpu}, {result.machine.cores} cores[/]", highlight=False)
    if json is not None:
        result.write(json)
        console.print(f"written to {json}", highlight=False)
