"""`fovea review ...`: people look at what the teacher doubts, and say what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fovea.cli.label_room import (
    SHORT_ID,
    AcceptUntouched,
    AsJson,
    By,
    Cert,
    Config,
    Form,
    FromFile,
    ImageUrl,
    Key,
    Listen,
    Room,
    SheetForm,
    SkipEmpty,
    Store,
    To,
    export,
    login_name,
    open_desk,
    opened_room,
    shown,
    take,
    teach,
    time_of,
    told_teaching,
)
from fovea.core.errors import BrokenError, Malformed

if TYPE_CHECKING:
    from cloud.cases.stored_case import StoredCase
    from cloud.labels.label import PersonLabel, TeacherLabel

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at what the teacher doubts, and say what is there.",
)

Done = Annotated[
    bool, typer.Option("--done", help="Those that people have looked at, in place of the others.")
]


@app.command("teach")
def teach_cases(
    config: Config = None,
    store: Store = None,
    limit: Annotated[int, typer.Option(min=1, help="How many cases at most, the newest.")] = 500,
) -> None:
    """Let the large model label the newest cases; those that it has labelled or answered before cost nothing."""
    with opened_room(config, store) as room:
        wanted = [case.id for case in room.cases.walk(limit=limit)]
        typer.echo(told_teaching(teach(room, wanted)))


@app.command("list")
def list_reviews(
    config: Config = None,
    store: Store = None,
    done: Done = False,
    limit: Annotated[int, typer.Option(min=0, help="How many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Say which cases the teacher wants people to look at, the least agreed first, and how all are labelled."""
    with opened_room(config, store) as room:
        wanted = room.labels.to_review(limit, done=done)
        facts = [_facts(room, case_id) for case_id in wanted]
        counts = room.labels.count()
        more = len(room.labels.to_review(done=done)) - len(wanted)
    if as_json:
        for each in facts:
            typer.echo(json.dumps(each, ensure_ascii=False))
        return
    console = Console()
    if facts:
        table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in ("case", "camera", "captured (UTC)", "why", "agreement", "boxes", "said by"):
            table.add_column(heading, no_wrap=heading == "case")
        for each in facts:
            table.add_row(
                each["id"][:SHORT_ID],
                shown(each["camera"]),
                each["captured_at"][:19].replace("T", " "),
                ", ".join(each["doubts"]),
                f"{each['agreement']:.2f}",
                str(sum(box["weight"] > 0 for box in each["boxes"])),
                shown(each["said_by"] or "-"),
            )
        console.print(table)
    if more > 0:
        console.print(f"and {more} more", highlight=False)
    console.print(
        f"{counts.asked} wait for a person; labelled: {counts.by_people} by people, {counts.accepted} accepted of "
        f"the teacher, {counts.dropped} dropped",
        highlight=False,
    )


@app.command()
def show(
    case_id: Annotated[str, typer.Argument(help="The id of a case, or its first letters.")],
    config: Config = None,
    store: Store = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write the picture there, with boxes (.jpg or .png).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what the teacher and people said about a case, and what counts."""
    with opened_room(config, store) as room:
        case = room.cases.get(case_id)
        facts = _facts(room, case.id)
        if as_json:
            typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        else:
            _print(facts)
        if save is not None:
            _save(room, case, save)


@app.command()
def label(
    config: Config = None,
    store: Store = None,
    by: By = "",
    listen: Listen = "127.0.0.1:0",
    cert: Cert = None,
    key: Key = None,
) -> None:
    """Open the labelling page for what the teacher doubts, and print its URL."""
    from cloud.console.desk import review_desk

    with opened_room(config, store) as room:
        typer.echo(f"{room.labels.count().asked} cases wait for a person")
        open_desk(review_desk(room.reviews, room.labels, by or login_name()), listen, cert, key)


@app.command("export")
def export_reviews(
    to: To,
    config: Config = None,
    store: Store = None,
    form: Form = SheetForm.COCO,
    image_url: ImageUrl = "images/",
    done: Done = False,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most.")] = None,
) -> None:
    """Write what waits for a person, with what the teacher believes, for another tool."""
    with opened_room(config, store) as room:
        export(room, list(room.labels.to_review(limit, done=done)), to, form, image_url)


@app.command("import")
def import_reviews(
    path: FromFile,
    config: Config = None,
    store: Store = None,
    by: By = "",
    accept_untouched: AcceptUntouched = False,
    skip_empty: SkipEmpty = False,
) -> None:
    """Take what people labelled in another tool. It counts before every teacher's word."""
    with opened_room(config, store) as room:
        take(room, path, by, None, accept_untouched, skip_empty)


def _facts(room: Room, case_id: str) -> dict[str, Any]:
    case = room.reviews.case(case_id)
    teacher, person = room.labels.find_teacher(case.id), room.labels.find_person(case.id)
    targets = room.labels.targets(case.id)
    return {
        "id": case.id,
        "camera": case.frame_id.camera,
        "captured_at": case.captured_at.isoformat(),
        "reasons": list(case.reasons),
        **_teacher_facts(teacher),
        "said_by": person.said_by if person else None,
        "said": _said(person),
        "counts": "nothing" if targets is None else "a person" if person else "the teacher",
    }


def _teacher_facts(teacher: TeacherLabel | None) -> dict[str, Any]:
    if teacher is None:
        return {"teacher": None, "verdict": None, "doubts": [], "agreement": 0.0, "boxes": []}
    seen = teacher.detections
    rows = zip(
        seen.boxes_xyxy.tolist(), seen.scores.tolist(), teacher.names, teacher.weights.tolist(), strict=True
    )
    return {
        "teacher": str(teacher.teacher),
        "views": teacher.views,
        "labelled_at": time_of(teacher.labelled_at),
        "answered_before": teacher.is_reused,
        "verdict": teacher.verdict.value,
        "doubts": [doubt.value for doubt in teacher.doubts],
        "agreement": teacher.agreement,
        "witnesses": teacher.judgement.witnesses,
        "boxes": [
            {"class": name, "score": score, "weight": weight, "box_xyxy": box}
            for box, score, name, weight in rows
        ],
        "ignored_xyxy": teacher.ignore_xyxy.tolist(),
    }


def _said(person: PersonLabel | None) -> list[dict[str, Any]] | None:
    return None if person is None or not person.is_usable else person.drawn.to_json()


def _print(facts: dict[str, Any]) -> None:
    console = Console()
    plain = Table(box=None, show_header=False)
    for name, value in facts.items():
        if name not in ("boxes", "said", "ignored_xyxy"):
            plain.add_row(name, shown(", ".join(value) if isinstance(value, list) else str(value)))
    console.print(plain)
    table = Table(title="what the teacher saw", box=SIMPLE)
    for heading in ("class", "score", "weight", "x1", "y1", "x2", "y2"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for box in facts["boxes"]:
        cells = [f"{edge:.1f}" for edge in box["box_xyxy"]]
        weight = f"{box['weight']:.2f}" if box["weight"] else "-"
        table.add_row(shown(box["class"]), f"{box['score']:.3f}", weight, *cells)
    if facts["boxes"]:
        console.print(table)


def _save(room: Room, case: StoredCase, path: Path) -> None:
    """What counts in strong colours; what is doubtful in grey, with a question mark."""
    from cloud.labels.suggestions import suggestions
    from fovea.runtime.drawing import draw_boxes
    from fovea.runtime.images import decode_image, encode_jpeg, encode_png

    if path.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise Malformed(f"--save: expected a name that ends in .jpg or .png, got {path.name!r:.60}")
    sheet = room.reviews.sheet(case.id)
    offered = () if sheet.said_by else suggestions(case, room.labels.find_teacher(case.id))
    pixels = decode_image(room.cases.load_image(case))
    if offered:
        grey = [(150, 150, 150)] * len(offered)
        told = [f"{each.label.name} {100 * each.score:.0f}?" for each in offered]
        pixels = draw_boxes(pixels, _array([each.box_xyxy for each in offered]), told, grey)
    if len(sheet.drawn):
        names = [
            f"{label.name} (aside)" if ignore else label.name
            for label, ignore in zip(sheet.drawn.labels, sheet.drawn.ignore, strict=True)
        ]
        pixels = draw_boxes(pixels, sheet.drawn.boxes_xyxy, names)
    try:
        path.write_bytes(encode_png(pixels) if path.suffix.lower() == ".png" else encode_jpeg(pixels))
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error
    typer.echo(f"picture: {path}")


def _array(boxes: list[tuple[float, float, float, float]]) -> Any:
    import numpy as np

    return np.array(boxes, np.float32)
