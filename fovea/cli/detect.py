"""`fovea detect`: a model looks through pictures, a video or a camera."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fovea.core.detections import TOLD_FROM
from fovea.core.errors import Malformed

if TYPE_CHECKING:
    from edge_agent.capture.source import SourceSpec

app = typer.Typer(add_completion=False)

_LIVE_FRAMES = 100


@app.command()
def detect(
    source: Annotated[
        str, typer.Argument(help="A picture, a folder, a video, rtsp://, http://, a device number, sim://.")
    ],
    bundle: Annotated[str, typer.Option("--bundle", "-b", help="A .fovea file, or zoo:NAME.")],
    save: Annotated[Path, typer.Option("--save", "-s", help="Folder for what was found; made if needed.")],
    every: Annotated[int, typer.Option(min=1, help="Look at one frame of so many.")] = 1,
    limit: Annotated[
        int, typer.Option(min=0, help=f"Look at so many at most; 0: all, {_LIVE_FRAMES} of a live source.")
    ] = 0,
    min_score: Annotated[float, typer.Option(min=0, max=1, help="Boxes from this score on.")] = TOLD_FROM,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:N.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of the model.")] = 1,
    username: Annotated[str, typer.Option(help="For cameras that ask who is there.")] = "",
    password_file: Annotated[Path | None, typer.Option(help="A file with the password.")] = None,
) -> None:
    """Look through a source; writes detections.json (COCO) and pictures or a video with boxes."""
    from edge_agent.capture.source import described, open_source, shown_url
    from edge_agent.look.look_through import LookSettings, look_through
    from fovea.cli.camera import source_spec
    from fovea.process.clock import SystemClock
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.onnx_detector import OnnxDetector

    spec = source_spec(source, username, password_file, 10.0)
    _check_folder(spec, save)
    opened = open_source(spec, SystemClock())
    console = Console()
    try:
        detector = OnnxDetector.open(bundle_path(bundle), device, threads)
        settings = LookSettings(every, limit or (_LIVE_FRAMES if opened.facts.is_live else None), min_score)
        about = {"source": shown_url(spec), "model": str(detector.ref), "device": detector.device}
        said = f"{shown_url(spec)}: {described(opened.facts)}; {detector.ref} on {detector.device}"
        console.print(escape(said), highlight=False, soft_wrap=True)
        with Console(stderr=True).status("looking") as status:
            report = look_through(
                opened,
                detector,
                save,
                settings,
                about,
                lambda frames, boxes: status.update(f"{frames} frames, {boxes} boxes"),
            )
        detector.close()
    finally:
        opened.close()
    for reason in report.unusable[:20]:
        console.print(f"[yellow]not used:[/] {escape(reason)}", highlight=False, soft_wrap=True)
    if report.broke:
        console.print(f"[yellow]ended early:[/] {escape(report.broke)}", highlight=False, soft_wrap=True)
    console.print(
        escape("written: " + ", ".join(str(path) for path in report.written)), highlight=False, soft_wrap=True
    )
    console.print(escape(str(report)), highlight=False, soft_wrap=True)


def _check_folder(spec: SourceSpec, save: Path) -> None:
    """Pictures are written under the names that they came with: never over themselves."""
    from edge_agent.capture.sources.url import SourceKind

    if spec.kind is not SourceKind.FILE:
        return
    path = Path(spec.chosen_url.removeprefix("file://")).expanduser().resolve()
    if save.resolve() == (path if path.is_dir() else path.parent):
        raise Malformed(f"--save {save}: expected another folder than that of the source")
