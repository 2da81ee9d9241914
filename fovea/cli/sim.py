"""`fovea sim ...`: render clips of the street, contact sheets, and measure how fast it draws."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import cv2
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fovea.core.errors import BrokenError, Malformed
from fovea.sim.coco import to_coco
from fovea.sim.conditions import CONDITIONS
from fovea.sim.frame import StreetFrame
from fovea.sim.sheet import contact_sheet, draw_boxes
from fovea.sim.suite import load_suite

app = typer.Typer(
    add_completion=False, help="Render the street: clips, labels, contact sheets.", no_args_is_help=True
)

SuiteName = Annotated[str, typer.Option(help="Which suite of clips.")]


@app.command()
def render(
    out: Annotated[Path, typer.Option(help="The .mp4 to write.")],
    suite: SuiteName = "street-v1",
    split: Annotated[str, typer.Option(help="train, val or test.")] = "val",
    condition: Annotated[str, typer.Option(help=", ".join(CONDITIONS))] = "day",
    index: Annotated[int, typer.Option(help="Which clip of the split.")] = 0,
    labels: Annotated[Path | None, typer.Option(help="Also write the truth as COCO JSON.")] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="How many frames; all when left out.")] = None,
    boxes: Annotated[bool, typer.Option("--boxes", help="Draw the boxes into the video.")] = False,
) -> None:
    """Render one clip to a video file."""
    clip = load_suite(suite).clip(split, condition, index)
    count = clip.frame_count if frames is None else min(frames, clip.frame_count)
    if out.suffix.lower() != ".mp4":
        raise Malformed(f"the video is written as .mp4, not {out.name!r}")
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(out), cv2.VideoWriter.fourcc(*"mp4v"), clip.fps, clip.frame_size)
    if not writer.isOpened():
        raise BrokenError(f"{out} cannot be written as a video")
    truth: list[StreetFrame] = []
    try:
        for frame in track(clip.frames(count=count), description=clip.id, total=count):
            writer.write(draw_boxes(frame) if boxes else frame.pixels)
            if labels is not None:
                truth.append(frame)
    finally:
        writer.release()
    if labels is not None:
        labels.parent.mkdir(parents=True, exist_ok=True)
        labels.write_text(json.dumps(to_coco(truth)))
    Console().print(f"{out}: {count} frames at {clip.fps} per second")


@app.command()
def sheet(
    out: Annotated[Path, typer.Option(help="The picture to write.")],
    suite: SuiteName = "street-v1",
    split: Annotated[str, typer.Option(help="train, val or test.")] = "val",
    first: Annotated[int, typer.Option(min=0, help="Index of the first clip shown.")] = 0,
    columns: Annotated[int, typer.Option(min=1, max=8)] = 4,
    width: Annotated[int, typer.Option(min=200, max=8000, help="Width in pixels.")] = 1920,
) -> None:
    """Show every condition side by side, with and without boxes."""
    console = Console()
    with console.status("drawing"):
        picture = contact_sheet(
            load_suite(suite),
            split,
            first,
            columns,
            width,
            lambda condition: console.print(f"{condition} drawn"),
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(out), picture, [cv2.IMWRITE_JPEG_QUALITY, 88]):
        raise BrokenError(f"{out} cannot be written as a picture")


@app.command()
def fps(
    suite: SuiteName = "street-v1",
    clips: Annotated[int, typer.Option(min=1, help="Train clips per condition.")] = 4,
    frames: Annotated[int, typer.Option(min=1, help="Frames per clip.")] = 30,
) -> None:
    """Measure frames per second on one core, by condition (CPU time of this process)."""
    cv2.setNumThreads(1)
    table = Table("condition", "clip setup, ms", "frame, ms", "frames/s")
    street = load_suite(suite)
    for condition in track(CONDITIONS, description="drawing"):
        setup_s = draw_s = 0.0
        for index in range(clips):
            clip = street.clip("train", condition, index)
            begun = time.process_time()
            clip.frame(0)
            ready = time.process_time()
            for _ in clip.frames(count=frames, stride=max(clip.frame_count // frames, 1)):
                pass
            setup_s, draw_s = setup_s + ready - begun, draw_s + time.process_time() - ready
        per_frame_s = draw_s / (clips * frames)
        table.add_row(
            condition, f"{setup_s / clips * 1e3:.0f}", f"{per_frame_s * 1e3:.1f}", f"{1 / per_frame_s:.0f}"
        )
    Console().print(table)
