"""Names of things and the ids they keep in every model, on the wire and in the data sets."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fovea.core.errors import Malformed

COCO_NAMES: tuple[str, ...] = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase",
    "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip

_COCO_IDS = {name: index for index, name in enumerate(COCO_NAMES)}
# Spellings of the first COCO list that are still in circulation.
_ALIASES = {
    "motorbike": "motorcycle", "aeroplane": "airplane", "sofa": "couch", "pottedplant": "potted plant",
    "diningtable": "dining table", "tvmonitor": "tv", "hair dryer": "hair drier",
}  # fmt: skip
_FIRST_CUSTOM_ID = 1000
_CUSTOM_IDS = 2**30
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Label:
    """One class: `id` is the contiguous COCO-80 id for a COCO name, a stable hash of the name otherwise."""

    id: int
    name: str

    def __post_init__(self) -> None:
        if not self.name or not 0 <= self.id < 2**31:
            raise Malformed(f"label: expected a name and an id of 31 bits, got {self.name!r:.120}, {self.id}")


def label_named(name: str) -> Label:
    """The label of a name, the same in every process and for every model.

    COCO names (and the old spellings of them) get their place in the contiguous list of 80. Any other name gets
    `1000 + crc32(name) mod 2**30`, so that two models trained apart agree on ids without a registry.

    Raises Malformed for an empty name, one with control characters or one longer than 100 characters.
    """
    plain = " ".join(name.split())
    if not plain or len(plain) > _LONGEST_NAME or not plain.isprintable():
        raise Malformed(f"label name: expected 1 to {_LONGEST_NAME} printable characters, got {name!r:.120}")
    plain = _ALIASES.get(plain.lower(), plain)
    coco_id = _COCO_IDS.get(plain.lower())
    if coco_id is not None:
        return Label(coco_id, COCO_NAMES[coco_id])
    return Label(_FIRST_CUSTOM_ID + zlib.crc32(plain.encode()) % _CUSTOM_IDS, plain)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of one model in the order of its class channels; names and ids are unique."""

    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        by_id: dict[int, str] = {}
        for label in self.labels:
            if label.id in by_id:
                raise Malformed(
                    f"labels: {label.name!r} and {by_id[label.id]!r} share the id {label.id}; each label once"
                )
            by_id[label.id] = label.name
        if len(set(by_id.values())) < len(by_id):
            raise Malformed(f"labels: expected each name once, got {list(by_id.values())!r:.200}")
        if not self.labels:
            raise Malformed("labels: expected at least one, got none")

    @classmethod
    def from_names(cls, names: Iterable[str]) -> LabelSet:
        """Labels for names in channel order. Raises Malformed when a name is bad or stands twice."""
        return cls(tuple(label_named(name) for name in names))

    @classmethod
    def coco(cls) -> LabelSet:
        """The 80 COCO labels in their usual order."""
        return cls.from_names(COCO_NAMES)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(label.id for label in self.labels)

    def find_name(self, class_id: int) -> str | None:
        """The name that goes with an id, or None when this model does not know it."""
        return next((label.name for label in self.labels if label.id == class_id), None)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Label]:
        return iter(self.labels)
