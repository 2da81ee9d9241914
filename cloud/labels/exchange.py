"""What goes to people who label elsewhere, and what comes back: one sheet for each picture, in any file format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from cloud.labels.drawn import DrawnBoxes
from fovea.core.errors import BrokenError, Malformed, StoreCorrupt
from fovea.core.frame import ImageSize
from fovea.core.labels import Label

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Format(StrEnum):
    """coco: images/ and annotations.json. label-studio: images/, tasks.json and label_config.xml."""

    COCO = "coco"
    LABEL_STUDIO = "label-studio"


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """One picture with the boxes that are there already.

    file_name     of the picture, below images/; it carries the whole id of the case
    drawn         what a person said, or else what a teacher believes
    scores        of each box, None for a person's
    prefilled_by  the teacher behind `drawn`; None: a person, or nobody
    said_by       the person behind `drawn`
    """

    case_id: str
    file_name: str
    camera: str
    captured_at: datetime
    drawn: DrawnBoxes
    scores: tuple[float | None, ...]
    prefilled_by: str | None = None
    said_by: str | None = None

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.drawn):
            raise Malformed(f"sheet scores: expected {len(self.drawn)}, got {len(self.scores)}")


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """What came back of one picture, in px of the picture as the file says. `is_untouched`: the file says that this
    is what the teacher had filled in. `is_usable` False: the person skipped or refused it."""

    case_id: str
    drawn: DrawnBoxes
    said_by: str | None = None
    is_untouched: bool = False
    is_usable: bool = True


class SheetFormat(Protocol):
    """One file format."""

    def write(self, folder: Path, sheets: Sequence[Sheet], classes: Sequence[Label]) -> None:
        """Writes the index beside images/. Raises OSError."""
        ...

    def read(self, data: bytes) -> list[Returned]:
        """The other way round. Raises Malformed, naming the entry and what is wrong with it."""
        ...


@dataclass(frozen=True, slots=True)
class SheetsReport:
    """What was written; `damaged` names pictures that were left out."""

    pictures: int
    boxes: int
    damaged: tuple[str, ...]


def export_sheets(
    sheets: Iterable[Sheet],
    load_image: Callable[[str], bytes],
    folder: Path,
    form: SheetFormat,
    classes: Sequence[Label],
) -> SheetsReport:
    """Writes pictures, byte for byte, and their index, last, into `folder`, which is made or has to be empty.

    `load_image` takes the id of a case. Raises Malformed for a folder with something in it, BrokenError when it
    cannot be written.
    """
    written, damaged = list[Sheet](), list[str]()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Malformed(f"export: expected an empty folder, {folder} has something in it")
        (folder / "images").mkdir()
        for sheet in sheets:
            try:
                image = load_image(sheet.case_id)
            except StoreCorrupt as error:
                damaged.append(str(error))
                continue
            (folder / "images" / sheet.file_name).write_bytes(image)
            written.append(sheet)
        form.write(folder, written, all_classes(written, classes))
    except OSError as error:
        raise BrokenError(f"cannot write to {folder}: {error.strerror or error}") from error
    return SheetsReport(len(written), sum(len(sheet.drawn) for sheet in written), tuple(damaged))


def all_classes(sheets: Iterable[Sheet], classes: Sequence[Label]) -> tuple[Label, ...]:
    """What can be seen, and what was drawn beyond that; by id."""
    known = {label.id: label for label in classes}
    for sheet in sheets:
        for label in sheet.drawn.labels:
            known.setdefault(label.id, label)
    return tuple(known[class_id] for class_id in sorted(known))


def file_name(case_id: str, image_path: str) -> str:
    """The name that a picture goes by: the whole id, which tools keep where they drop everything else."""
    return f"{case_id}{PurePosixPath(image_path).suffix}"


def case_id_in(text: object) -> str | None:
    """The id of a case in a file name or URL, wherever tools have put something before or behind it."""
    found = _DIGEST.findall(text) if isinstance(text, str) else []
    return found[-1] if found else None


def in_px_of(drawn: DrawnBoxes, size: ImageSize) -> DrawnBoxes:
    """The same boxes in px of the picture that is kept. Raises Malformed where it has another shape."""
    given = drawn.image_size
    if given == size:
        return drawn
    if not len(drawn):
        return DrawnBoxes.of([], size)
    x, y = size.width / given.width, size.height / given.height
    if abs(x / y - 1) > 0.02:
        raise Malformed(f"expected boxes in px of a picture of {size}, got {given}, which has another shape")
    return DrawnBoxes(
        (drawn.boxes_xyxy * np.array([x, y, x, y])).astype(np.float32), drawn.labels, drawn.ignore, size
    )
