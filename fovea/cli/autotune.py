"""`fovea agent autotune` and `fovea edge autotune`: the best model that this machine runs in time, by measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from fovea.core.frame import ImageSize
    from fovea.runtime.autotune import Trial, Tuned

Bundles = Annotated[list[str], typer.Argument(metavar="BUNDLE...", help=".fovea files, or zoo:NAME.")]
Target = Annotated[float, typer.Option(min=0.1, help="What 19 of 20 frames may take at most, in ms.")]
Frames = Annotated[int, typer.Option(min=5, max=10_000, help="Frames to time for each variant.")]
Threads = Annotated[str, typer.Option(help="Thread counts to try, with commas; empty: up to all cores.")]
FrameSize = Annotated[str, typer.Option(help="WIDTHxHEIGHT of the camera's frames.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write what was found here.")]


def autotune_agent(
    bundles: Bundles,
    target_ms: Target = 100.0,
    frames: Frames = 30,
    threads: Threads = "",
    frame_size: FrameSize = "960x540",
    json_file: JsonFile = None,
) -> None:
    """Find the best of these models, and the threads, that this board runs within a target."""
    _autotune(bundles, target_ms, frames, threads, frame_size, "cpu", json_file)


def autotune_edge(
    bundles: Bundles,
    target_ms: Target = 50.0,
    frames: Frames = 30,
    threads: Threads = "",
    frame_size: FrameSize = "960x540",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:N.")] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Find the best of these models, and the threads, that this machine runs within a target."""
    _autotune(bundles, target_ms, frames, threads, frame_size, device, json_file)


def _autotune(
    bundles: list[str],
    target_ms: float,
    frames: int,
    threads: str,
    frame_size: str,
    device: str,
    json_file: Path | None,
) -> None:
    from fovea.core.errors import BrokenError
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.autotune import TuneSettings, autotune
    from fovea.runtime.dry_run import dry_run

    settings = TuneSettings(target_ms, frames, _size(frame_size), device, _counts(threads))
    console = Console()
    given = {bundle_path(name): name for name in bundles}
    with Console(stderr=True).status("measuring") as status:
        tuned = autotune(list(given), settings, dry_run, lambda text: status.update(escape(text)))
    _print(console, tuned)
    variant = tuned.choice.trial.variant
    console.print(f"{tuned.choice.reason}; for the configuration:", highlight=False)
    console.print(f"  bundle: {escape(given[variant.path])}\n  threads: {variant.threads}", highlight=False)
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(_to_json(tuned, given), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise BrokenError(f"cannot write {json_file}: {error.strerror}") from error


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


def _to_json(tuned: Tuned, given: dict[Path, str]) -> dict[str, object]:
    def plain(trial: Trial) -> dict[str, object]:
        variant = trial.variant
        return {
            "bundle": given[variant.path],
            "model": variant.name,
            "threads": variant.threads,
            "input": [variant.input_size.width, variant.input_size.height],
            "quality": variant.quality,
            "p50_ms": trial.p50_ms,
            "p95_ms": trial.p95_ms,
            "frames": trial.frames,
        }

    return {
        "chosen": plain(tuned.choice.trial),
        "meets_target": tuned.choice.meets_target,
        "reason": tuned.choice.reason,
        "trials": [plain(trial) for trial in tuned.trials],
        "refused": [{"bundle": name, "why": why} for name, why in tuned.refused],
    }


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
