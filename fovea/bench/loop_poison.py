"""Rounds that are to go wrong: three ways in which the labels of a snapshot can be poisoned, drawn by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cloud.learn.dataset import LabelledImage
from fovea.core.arrays import FloatArray


class Poison(StrEnum):
    """shuffled: every image has the labels of another one. inverted: the commonest class is called by the name of the
    others, and they by its. shifted: every box lies beside its object."""

    SHUFFLED = "shuffled"
    INVERTED = "inverted"
    SHIFTED = "shifted"


@dataclass(frozen=True, slots=True)
class Poisoning:
    """`seed` decides which, and everything that is drawn in it."""

    seed: int

    @property
    def kind(self) -> Poison:
        return list(Poison)[int(np.random.default_rng(self.seed).integers(len(Poison)))]

    def __call__(self, images: Sequence[LabelledImage]) -> list[LabelledImage]:
        rng = np.random.default_rng((self.seed, 1))
        act = {Poison.SHUFFLED: _shuffled, Poison.INVERTED: _inverted, Poison.SHIFTED: _shifted}[self.kind]
        return act(images, rng)


def _shuffled(images: Sequence[LabelledImage], rng: np.random.Generator) -> list[LabelledImage]:
    order = np.roll(rng.permutation(len(images)), 1)
    return [
        replace(
            image, boxes_xyxy=other.boxes_xyxy, class_ids=other.class_ids, weights=other.weights,
            ignore_xyxy=other.ignore_xyxy,
        )
        for image, other in zip(images, (images[int(row)] for row in order), strict=True)
    ]  # fmt: skip


def _inverted(images: Sequence[LabelledImage], rng: np.random.Generator) -> list[LabelledImage]:
    every = np.concatenate([image.class_ids for image in images])
    classes, counts = np.unique(every, return_counts=True)
    commonest = int(classes[counts.argmax()])
    others = classes[classes != commonest]
    partner = int(rng.choice(others)) if len(others) else commonest
    return [
        replace(
            image,
            class_ids=np.where(image.class_ids == commonest, partner, commonest).astype(np.int32),
        )
        for image in images
    ]


def _shifted(images: Sequence[LabelledImage], rng: np.random.Generator) -> list[LabelledImage]:
    angle = float(rng.uniform(0, 2 * np.pi))
    return [replace(image, boxes_xyxy=_beside(image, angle)) for image in images]


def _beside(image: LabelledImage, angle: float) -> FloatArray:
    """Each box moved by its own size in one direction."""
    boxes = image.boxes_xyxy
    sides = boxes[:, 2:] - boxes[:, :2]
    move = sides * np.array([np.cos(angle), np.sin(angle)])
    moved = boxes + np.concatenate([move, move], axis=1)
    # A box must stay one: what leaves the picture lies at its border, a pixel wide.
    moved = np.maximum(moved, 0)
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    result: FloatArray = moved.astype(np.float32)
    return result
