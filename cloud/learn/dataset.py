"""What a student learns from: labelled images with their provenance, kept as snapshots named by their content."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from fovea.core.arrays import FloatArray, IntArray, frozen_boxes, frozen_floats, frozen_ints
from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed, NotFound, StoreCorrupt
from fovea.core.labels import LabelSet
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.manifest import canonical_json

SCHEMA: Final = 1
MANIFEST, LABELS, IMAGES = "manifest.json", "labels.json", "images"

VAL_SHARE: Final = 0.1
BLOCK_S: Final = 600
"""Frames of one camera within ten minutes show the same things: they stay on one side of the split."""


class Origin(StrEnum):
    """Where an image comes from: a person's labels, the past (relabelled by the teacher), or the new cases."""

    GOLDEN = "golden"
    REPLAY = "replay"
    NEW = "new"


class Split(StrEnum):
    """What an image is for: to learn from, or to watch the learning (never a promotion gate)."""

    TRAIN = "train"
    VAL = "val"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Labelled:
    """Labels of one image and where they come from.

    boxes_xyxy f32[N, 4] px of the image; class_ids i32[N] (see `fovea.core.labels`); weights f32[N] in (0, 1], how
    far each box is trusted; ignore_xyxy f32[M, 4] px, where nothing is known: neither object nor background.
    `teacher` is None for labels that a person (or the street's truth) gave.
    """

    id: str
    boxes_xyxy: FloatArray
    class_ids: IntArray
    weights: FloatArray
    ignore_xyxy: FloatArray
    origin: Origin
    camera: str
    teacher: ModelRef | None = None
    condition: str | None = None
    captured_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.id or not self.camera:
            raise Malformed(f"labelled image: expected an id and a camera, got {self.id!r}, {self.camera!r}")
        what = f"labelled image {self.id:.16}"
        boxes = frozen_boxes(f"{what} boxes_xyxy", self.boxes_xyxy)
        weights = frozen_floats(f"{what} weights", self.weights, (len(boxes),))
        if len(weights) and not (weights.min() > 0 and weights.max() <= 1):
            raise Malformed(
                f"{what} weights: expected more than 0 up to 1, got {weights.min():g} to {weights.max():g}"
            )
        if self.captured_at is not None and self.captured_at.tzinfo is None:
            raise Malformed(f"{what} captured_at: expected a time with a zone (UTC), got one without")
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "class_ids", frozen_ints(f"{what} class_ids", self.class_ids, (len(boxes),)))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "ignore_xyxy", frozen_boxes(f"{what} ignore_xyxy", self.ignore_xyxy))

    @property
    def block(self) -> str:
        """Camera and ten minutes: what must not lie on both sides of a split."""
        if self.captured_at is None:
            return self.camera
        return f"{self.camera}/{int(self.captured_at.timestamp()) // BLOCK_S}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabelledImage(Labelled):
    """A labelled image in memory; `jpeg` is an image file (JPEG as a rule)."""

    jpeg: bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredImage(Labelled):
    """A labelled image of a snapshot: its pixels lie in the file named by `sha256`."""

    sha256: str
    split: Split


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A frozen data set: `digest` is the SHA-256 of its label file, which names every image by its own digest."""

    folder: Path
    digest: str
    labels: LabelSet
    images: tuple[StoredImage, ...]

    @classmethod
    def write(
        cls, folder: Path, images: Iterable[LabelledImage], labels: LabelSet, val_share: float = VAL_SHARE
    ) -> Self:
        """Writes `folder/<first 16 digits of the digest>/`; the same content is the same folder, written once.

        Whole blocks of camera and time go to validation, chosen by a hash of their name: what was validated on in
        one round is not trained on in the next. Images are taken one by one, the order does not matter.
        Raises Malformed for an id that stands twice, a class that `labels` do not have, or no images at all.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
            part = Path(scratch) / "snapshot"
            (part / IMAGES).mkdir(parents=True)
            stored = sorted((_store(part, image, labels, val_share) for image in images), key=lambda i: i.id)
            _check_distinct(stored)
            data = canonical_json([_to_json(image) for image in stored])
            digest = _digest(labels, data)
            write_atomically(part / LABELS, data)
            write_atomically(part / MANIFEST, canonical_json(_manifest(digest, labels, stored)))
            target = folder / digest[:16]
            if not (target / MANIFEST).is_file():
                part.rename(target)
        return cls(target, digest, labels, tuple(stored))

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The snapshot in `folder`. Raises NotFound, Malformed, and StoreCorrupt when the labels are not those that
        were written (each image is checked when it is loaded)."""
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            data = (folder / LABELS).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"no data set snapshot in {folder}") from error
        except (OSError, ValueError) as error:
            raise Malformed(f"cannot read the snapshot in {folder}: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
            raise Malformed(f"{folder / MANIFEST}: expected a snapshot of schema {SCHEMA}")
        labels = LabelSet.from_names(manifest["labels"])
        if _digest(labels, data) != manifest["digest"]:
            raise StoreCorrupt(
                f"{folder / LABELS}: the labels are not those that were written (digest differs)"
            )
        return cls(folder, manifest["digest"], labels, tuple(_from_json(entry) for entry in json.loads(data)))

    def __len__(self) -> int:
        return len(self.images)

    def of(self, split: Split, origin: Origin | None = None) -> tuple[StoredImage, ...]:
        """The images of one side of the split, of one origin or all."""
        return tuple(i for i in self.images if i.split is split and origin in (None, i.origin))

    def jpeg(self, image: StoredImage) -> bytes:
        """The image file. Raises StoreCorrupt when it is gone or is not the one that was written."""
        path = self.folder / IMAGES / f"{image.sha256}.jpg"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreCorrupt(
                f"snapshot {self.digest[:16]}: cannot read {path.name}: {error.strerror}"
            ) from error
        if hashlib.sha256(data).hexdigest() != image.sha256:
            raise StoreCorrupt(f"snapshot {self.digest[:16]}: {path.name} is not the image that was written")
        return data

    def load(self) -> Iterator[LabelledImage]:
        """All images with their bytes, one by one."""
        for image in self.images:
            yield LabelledImage(jpeg=self.jpeg(image), **{name: getattr(image, name) for name in _SHARED})


_SHARED = tuple(Labelled.__dataclass_fields__)


def _store(folder: Path, image: LabelledImage, labels: LabelSet, val_share: float) -> StoredImage:
    unknown = sorted(set(image.class_ids.tolist()) - set(labels.ids))
    if unknown:
        raise Malformed(
            f"labelled image {image.id:.16}: class {unknown[0]} is not one of {', '.join(labels.names)}"
        )
    sha256 = hashlib.sha256(image.jpeg).hexdigest()
    (folder / IMAGES / f"{sha256}.jpg").write_bytes(image.jpeg)
    split = Split.VAL if _share_of(image.block) < val_share else Split.TRAIN
    return StoredImage(sha256=sha256, split=split, **{name: getattr(image, name) for name in _SHARED})


def _share_of(block: str) -> float:
    """A number in 0..1 that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(f"split/{block}".encode()).digest()[:8], "big") / 2**64


def _check_distinct(images: list[StoredImage]) -> None:
    if not images:
        raise Malformed("snapshot: expected at least one labelled image, got none")
    for one, next_one in pairwise(images):
        if one.id == next_one.id:
            raise Malformed(f"snapshot: image {one.id:.64} stands twice")


def _digest(labels: LabelSet, data: bytes) -> str:
    return hashlib.sha256(canonical_json(list(labels.names)) + b"\n" + data).hexdigest()


def _manifest(digest: str, labels: LabelSet, images: list[StoredImage]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for image in images:
        key = f"{image.split}.{image.origin}"
        counts[key] = counts.get(key, 0) + 1
    return {"schema": SCHEMA, "digest": digest, "labels": list(labels.names), "counts": counts}


def _to_json(image: StoredImage) -> dict[str, Any]:
    teacher = image.teacher
    return {
        "id": image.id, "sha256": image.sha256, "split": image.split, "origin": image.origin,
        "camera": image.camera, "condition": image.condition,
        "captured_at": image.captured_at.astimezone(UTC).isoformat() if image.captured_at else None,
        "teacher": [teacher.name, teacher.version, teacher.sha256] if teacher else None,
        "boxes_xyxy": image.boxes_xyxy.tolist(), "class_ids": image.class_ids.tolist(),
        "weights": image.weights.tolist(), "ignore_xyxy": image.ignore_xyxy.tolist(),
    }  # fmt: skip


def _from_json(entry: dict[str, Any]) -> StoredImage:
    at = entry["captured_at"]
    return StoredImage(
        id=entry["id"], sha256=entry["sha256"], split=Split(entry["split"]), origin=Origin(entry["origin"]),
        camera=entry["camera"], condition=entry["condition"],
        captured_at=datetime.fromisoformat(at) if at else None,
        teacher=ModelRef(*entry["teacher"]) if entry["teacher"] else None,
        boxes_xyxy=entry["boxes_xyxy"], class_ids=entry["class_ids"],
        weights=entry["weights"], ignore_xyxy=entry["ignore_xyxy"],
    )  # fmt: skip
