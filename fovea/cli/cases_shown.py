"""What `fovea cases` says of cases: tables for people, objects for scripts, and pictures with boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.terminal_text import printable
from fovea.core.errors import BrokenError, Malformed
from fovea.core.routing import Tier

if TYPE_CHECKING:
    from cloud.cases.store import CaseStore
    from cloud.cases.stored_case import CaseFilter, ConditionCount, StoredCase

_SHORT_ID = 12
_ROOMY_CELLS = 100


def print_cases(cases: CaseStore, wanted: CaseFilter, limit: int) -> None:
    """A table of the newest, and how many of each camera are kept."""
    console = Console()
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    table.add_column("camera", max_width=12, overflow="fold")
    # Where there is little room the time stands below the date, so that reasons stay whole.
    table.add_column("captured (UTC)", max_width=None if console.width >= _ROOMY_CELLS else 10)
    table.add_column("sent for")
    table.add_column("p", no_wrap=True)
    table.add_column("agent/\nedge/\ncloud", no_wrap=True)
    shown = 0
    for case in cases.walk(wanted, limit=limit):
        table.add_row(*(_shown(cell) for cell in _row(case)))
        shown += 1
    if shown:
        console.print(table)
    console.print(f"{shown} of {cases.count(wanted)} cases", highlight=False)
    for count in cases.count_by_camera():
        audits = f", {count.audits} of them audits" if count.audits else ""
        console.print(
            f"  {_shown(count.camera)}: {count.cases} cases{audits}, {count.image_bytes / 1e6:.1f} MB, "
            f"the newest of {_time(count.newest_at)}",
            highlight=False,
        )


def print_counts(counts: Sequence[ConditionCount], tags: Mapping[str, int]) -> None:
    """A table of cameras and conditions, and the tags below it."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("camera", "condition", "cases", "audits", "near", "MB"):
        table.add_column(heading, justify="left" if heading in ("camera", "condition") else "right")
    for one in counts:
        numbers = (str(one.cases), str(one.audits), str(one.near_frames), f"{one.image_bytes / 1e6:.1f}")
        table.add_row(_shown(one.camera), _shown(one.condition or "unknown"), *numbers)
    console = Console()
    console.print(table)
    near = sum(one.near_frames for one in counts)
    console.print(
        f"{sum(one.cases for one in counts)} cases, and {near} frames more that show the same",
        highlight=False,
    )
    for word, number in tags.items():
        console.print(f"  {_shown(word)}: {number}", highlight=False)


def _row(case: StoredCase) -> list[str]:
    boxes = [case.find_answer(tier) for tier in Tier]
    return [
        case.id[:_SHORT_ID],
        case.frame_id.camera,
        _time(case.captured_at),
        ", ".join(case.reasons),
        f"{case.send_probability:.2g}",
        "/".join("-" if answer is None else str(len(answer.detections)) for answer in boxes),
    ]


def print_case(case: StoredCase) -> None:
    """All that is known of it, and a table for each tier."""
    console = Console()
    facts = Table(box=None, show_header=False)
    for name, value in case_facts(case).items():
        facts.add_row(name, _shown(", ".join(value) if isinstance(value, list) else str(value)))
    console.print(facts)
    for answer in case.answers:
        seen = answer.detections
        table = Table(title=f"{answer.tier.name.lower()}: {_shown(str(seen.model))}", box=SIMPLE)
        for heading in ("class", "score", "x1", "y1", "x2", "y2"):
            table.add_column(heading, justify="left" if heading == "class" else "right")
        for box in _boxes(answer):
            cells = [f"{edge:.1f}" for edge in box["box_xyxy"]]
            table.add_row(_shown(box["class"]), f"{box['score']:.3f}", *cells)
        console.print(table if len(seen) else f"{table.title}: nothing")


def case_facts(case: StoredCase) -> dict[str, Any]:
    """All but the answers, as JSON has it."""
    return {
        "id": case.id,
        "camera": case.frame_id.camera,
        "boot_id": case.frame_id.boot_id,
        "sequence": case.frame_id.sequence,
        "captured_at": case.captured_at.isoformat(),
        "received_at": case.received_at.isoformat(),
        "reasons": list(case.reasons),
        "send_probability": case.send_probability,
        "audit": case.is_audit,
        "condition": case.condition,
        "tags": list(case.tags),
        "near_frames": case.near_frames,
        "image": f"{case.image_size}, {case.image_bytes} bytes, {case.image_path}",
        "answered_by": [answer.tier.name.lower() for answer in case.answers],
    }


def case_answers(case: StoredCase) -> list[dict[str, Any]]:
    """What each tier saw, as JSON has it."""
    return [
        {
            "tier": answer.tier.name.lower(),
            "model": str(answer.detections.model),
            "image_size": str(answer.detections.image_size),
            "boxes": _boxes(answer),
        }
        for answer in case.answers
    ]


def _boxes(answer: Any) -> list[dict[str, Any]]:
    seen, names = answer.detections, {label.id: label.name for label in answer.labels}
    rows = zip(seen.boxes_xyxy.tolist(), seen.scores.tolist(), seen.class_ids.tolist(), strict=True)
    return [
        {"class": names.get(class_id, str(class_id)), "score": score, "box_xyxy": box}
        for box, score, class_id in rows
    ]


def save_picture(case: StoredCase, image: bytes, tier: Tier | None, path: Path) -> None:
    """Writes the picture with the boxes of one tier. Raises Malformed for another ending than .jpg or .png."""
    from fovea.runtime.drawing import draw_detections
    from fovea.runtime.images import decode_image, encode_jpeg, encode_png

    if path.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise Malformed(f"--save: expected a name that ends in .jpg or .png, got {path.name!r:.60}")
    pixels, answer = decode_image(image), case.find_answer(tier)
    if answer is not None and answer.detections.image_size == case.image_size:
        pixels = draw_detections(pixels, answer.detections, answer.labels)
    try:
        path.write_bytes(encode_png(pixels) if path.suffix.lower() == ".png" else encode_jpeg(pixels))
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error
    typer.echo(f"picture: {path}")


def _shown(text: str) -> str:
    return escape(printable(text))


def _time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
