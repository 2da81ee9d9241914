"""`fovea agent autotune` and `fovea edge autotune`: the best model that this machine runs in time, by measurement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from fovea.core.frame import ImageSize
    from fovea.runtime.autotune import Tuned

Bundles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BUNDLE]...", help=".fovea files, or zoo:NAME; that of the configuration if none."
    ),
]
Target = Annotated[
    float | None,
    typer.Option(min=0.1, help="What 19 of 20 frames may take at most, in ms; else as the cameras need it."),
]
Frames = Annotated[int, typer.Option(min=5, max=10_000, help="Frames to time for each variant.")]
Threads = Annotated[str, typer.Option(help="Thread counts to try, with commas; empty: up to all cores.")]
FrameSize = Annotated[str, typer.Option(help="WIDTHxHEIGHT of the camera's frames.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write what was found here.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Write what was found to its tuned_file, which its next start reads."
    ),
]
AGENT_TARGET_MS = 100.0
EDGE_TARGET_MS = 50.0
_BUSY_SHARE = 0.8
"""Of the time between two frames, of all cameras together, that the model may take."""


def autotune_agent(
    bundles: Bundles = None,
    target_ms: Target = None,
    frames: Frames = 30,
    threads: Threads = "",
    frame_size: FrameSize = "960x540",
    config: ConfigFile = None,
    json_file: JsonFile = None,
) -> None:
    """Find the best of these models, and the threads, that this board runs within a target."""
    own, outputs = list(bundles or ()), [json_file]
    if config is not None:
        from edge_agent.config import load_config

        read = load_config(config)
        own = own or [read.bundle]
        outputs.append(_tuned_file(config, read.tuned_file))
        rates = [camera.fps for camera in read.cameras if camera.fps is not None and camera.realtime]
        if target_ms is None and len(rates) == len(read.cameras):
            target_ms = _BUSY_SHARE * 1000 / sum(rates)
    _autotune(own, target_ms or AGENT_TARGET_MS, frames, threads, frame_size, "cpu", outputs)


def autotune_edge(
    bundles: Bundles = None,
    target_ms: Target = None,
    frames: Frames = 30,
    threads: Threads = "",
    frame_size: FrameSize = "960x540",
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda:N.")] = None,
    config: ConfigFile = None,
    json_file: JsonFile = None,
) -> None:
    """Find the best of these models, and the threads, that this machine runs within a target."""
    own, outputs = list(bundles or ()), [json_file]
    if config is not None:
        from edge_server.config import load_config

        read = load_config(config)
        own = own or [read.bundle]
        device = device or read.device
        outputs.append(_tuned_file(config, read.tuned_file))
    _autotune(own, target_ms or EDGE_TARGET_MS, frames, threads, frame_size, device or "auto", outputs)


def _tuned_file(config: Path, named: str | None) -> Path:
    from fovea.core.errors import Malformed

    if named is None:
        raise Malformed(f"{config.name}: expected a tuned_file, where what is found is written")
    return Path(named)


def _autotune(
    bundles: list[str],
    target_ms: float,
    frames: int,
    threads: str,
    frame_size: str,
    device: str,
    outputs: list[Path | None],
) -> None:
    from fovea.core.errors import Malformed
    from fovea.process.config_parts import bundle_path, resolved_bundle
    from fovea.runtime.autotune import TuneSettings, autotune
    from fovea.runtime.dry_run import dry_run
    from fovea.runtime.tuned_file import write_tuned

    if not bundles:
        raise Malformed("autotune: expected at least one BUNDLE, or --config FILE with one")
    settings = TuneSettings(target_ms, frames, _size(frame_size), device, _counts(threads))
    console = Console()
    given = {bundle_path(name): name for name in bundles}
    with Console(stderr=True).status("measuring") as status:
        tuned = autotune(list(given), settings, dry_run, lambda text: status.update(escape(text)))
    _print(console, tuned)
    variant = tuned.choice.trial.variant
    console.print(f"{tuned.choice.reason}; for the configuration:", highlight=False)
    console.print(f"  bundle: {escape(given[variant.path])}\n  threads: {variant.threads}", highlight=False)
    for path in (path for path in outputs if path is not None):
        write_tuned(path, tuned, lambda bundle: resolved_bundle(given[bundle], Path.cwd()))
        console.print(f"written to {escape(str(path))}", highlight=False)


def _print(console: Console, tuned: Tuned) -> None:
    table = Table("model", "input", "quality", "threads", "p50 ms", "p95 ms", "")
    for trial in tuned.trials:
        variant = trial.variant
        table.add_row(
            escape(variant.path.name),
            f"{variant.input_size}",
            "" if variant.quality is None else f"{variant.quality:.3f}",
            str(variant.threads),
            f"{trial.p50_ms:.1f}",
            f"{trial.p95_ms:.1f}",
            "chosen" if trial is tuned.choice.trial else "too slow" if trial.is_cut_short else "",
        )
    console.print(table)
    for name, why in tuned.refused:
        console.print(f"[yellow]left out[/] {escape(name)}: {escape(why)}", highlight=False)


def _counts(text: str) -> tuple[int, ...]:
    from fovea.core.errors import Malformed

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() for word in words):
        raise Malformed(f"--threads: expected whole numbers with commas, got {text!r:.80}")
    return tuple(int(word) for word in words)


def _size(text: str) -> ImageSize:
    from fovea.core.errors import Malformed
    from fovea.core.frame import ImageSize

    width, cross, height = text.lower().partition("x")
    if not cross or not width.isdecimal() or not height.isdecimal():
        raise Malformed(f"--frame-size: expected WIDTHxHEIGHT in px, got {text!r:.80}")
    return ImageSize(int(width), int(height))
