"""Batches that mix golden, replayed and new images in given shares; batch k of a seed is always the same batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloud.learn.dataset import Origin, Snapshot, StoredImage
from cloud.learn.pictures import Augmentation, Placing, clip_to_input, place, recolour, shrink, to_tensor
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.errors import Malformed
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox
from fovea.runtime.images import decode_image
from fovea.runtime.manifest import InputSpec

SHARES: Final[Mapping[Origin, float]] = {Origin.GOLDEN: 0.25, Origin.REPLAY: 0.35, Origin.NEW: 0.4}
LARGEST_CACHE_BYTES: Final = 1_000_000_000
_GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One batch as tensors, with what it was made of.

    images f32[B, 3, H, W]; boxes f32[B, M, 4] xyxy px of the input; channels i64[B, M]; weights f32[B, M], 0 for
    rows that only fill up; ignored f32[B, K, 4] px.
    """

    images: Any
    boxes: Any
    channels: Any
    weights: Any
    ignored: Any
    rows: tuple[StoredImage, ...]
    placings: tuple[Placing, ...]

    def to(self, device: Any) -> Batch:
        """The same batch on another device."""
        names = ("images", "boxes", "channels", "weights", "ignored")
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return Batch(rows=self.rows, placings=self.placings, **moved)


@dataclass(frozen=True, slots=True)
class Deck:
    """Draws the images of each origin without replacement, reshuffled when all were seen.

    Slots are dealt to origins along the golden ratio, so that every stretch of slots has the shares that were asked
    for; an origin without images leaves its share to the others.
    """

    images: Mapping[Origin, tuple[StoredImage, ...]]
    shares: Mapping[Origin, float]
    seed: int

    def __post_init__(self) -> None:
        if not any(self.images.values()):
            raise Malformed("training: the snapshot has no image to learn from (in this mode)")
        if not sum(self.shares.get(origin, 0.0) for origin, found in self.images.items() if found) > 0:
            raise Malformed("training: expected a share above 0 for an origin that has images")

    def draw(self, first: int, count: int) -> list[StoredImage]:
        """The images of slots `first` to `first + count`."""
        origins = [origin for origin in Origin if self.images.get(origin)]
        shares = np.cumsum([self.shares.get(origin, 0.0) for origin in origins])
        positions = (np.arange(first + count) * _GOLDEN_RATIO) % 1.0
        dealt = np.minimum(np.searchsorted(shares / shares[-1], positions, side="right"), len(origins) - 1)
        counters = np.bincount(dealt[:first], minlength=len(origins))
        drawn = []
        for row in dealt[first:]:
            drawn.append(self._card(origins[row], int(counters[row])))
            counters[row] += 1
        return drawn

    def _card(self, origin: Origin, number: int) -> StoredImage:
        images = self.images[origin]
        turn, place_in_turn = divmod(number, len(images))
        order = np.random.default_rng((self.seed, list(Origin).index(origin), turn)).permutation(len(images))
        return images[int(order[place_in_turn])]


@dataclass(slots=True, eq=False)
class PictureBook:
    """Decoded pictures of a snapshot at the size of the input, kept in memory up to a limit."""

    snapshot: Snapshot
    spec: InputSpec
    _kept: dict[str, tuple[ImageArray, Letterbox]] = field(default_factory=dict)
    _kept_bytes: int = 0

    def find(self, image: StoredImage) -> tuple[ImageArray, Letterbox]:
        """The picture u8[h, w, 3] BGR and its letterbox. Raises StoreCorrupt, Malformed."""
        kept = self._kept.get(image.sha256)
        if kept is None:
            kept = shrink(decode_image(self.snapshot.jpeg(image)), self.spec)
            if self._kept_bytes + kept[0].nbytes <= LARGEST_CACHE_BYTES:
                self._kept[image.sha256] = kept
                self._kept_bytes += kept[0].nbytes
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Makes batches of a snapshot for one student: `labels` in the order of its channels."""

    book: PictureBook
    labels: LabelSet
    seed: int

    def make(self, step: int, images: Sequence[StoredImage], how: Augmentation) -> Batch:
        """The batch of these images; what is random in it depends on the seed and `step` alone."""
        import torch

        rng = np.random.default_rng((self.seed, 7, step))
        parts = [self._one(image, how, rng) for image in images]
        return Batch(
            images=torch.from_numpy(np.stack([part.tensor for part in parts])),
            boxes=torch.from_numpy(_padded([part.boxes for part in parts])),
            channels=torch.from_numpy(_padded([part.channels for part in parts])),
            weights=torch.from_numpy(_padded([part.weights for part in parts])),
            ignored=torch.from_numpy(_padded([part.ignored for part in parts])),
            rows=tuple(images),
            placings=tuple(part.placing for part in parts),
        )

    def _one(self, image: StoredImage, how: Augmentation, rng: np.random.Generator) -> _Placed:
        resized, letterbox = self.book.find(image)
        pixels, placing = place(resized, letterbox, self.book.spec, how, rng)
        tensor = to_tensor(recolour(pixels, how, rng), self.book.spec)
        boxes, is_shown = clip_to_input(placing.boxes(image.boxes_xyxy), self.book.spec)
        ignored, _ = clip_to_input(placing.boxes(image.ignore_xyxy), self.book.spec)
        channel_of = {label_id: channel for channel, label_id in enumerate(self.labels.ids)}
        channels = np.array([channel_of[k] for k in image.class_ids.tolist()], np.int64)
        # An object of which too little is left is no object to learn, and no background either.
        hidden = np.concatenate([ignored, boxes[~is_shown]])
        return _Placed(tensor, placing, boxes[is_shown], channels[is_shown], image.weights[is_shown], hidden)


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    tensor: NDArray[np.float32]
    placing: Placing
    boxes: FloatArray
    channels: NDArray[np.int64]
    weights: FloatArray
    ignored: FloatArray


def _padded(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of different lengths as one array [B, longest, ...], filled up with zeros."""
    padded: NDArray[Any] = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), rows[0].dtype)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
