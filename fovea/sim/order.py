"""Which of two things on the ground can hide the other, and a far-to-near drawing order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Footprints = NDArray[np.float64]  # [N,4] x0, y0, x1, y1 in metres, axis-aligned
Flags = NDArray[np.bool_]


def in_front(a: Footprints, b: Footprints, eye_xy: NDArray[np.float64]) -> Flags:
    """[N,M] whether a[i] can hide b[j]: a line parts them with the eye on a's side.

    Overlapping footprints fall back to the distance of their centres.
    """
    x, y = float(eye_xy[0]), float(eye_xy[1])
    ax0, ay0, ax1, ay1 = (a[:, k, None] for k in range(4))
    bx0, by0, bx1, by1 = (b[None, :, k] for k in range(4))
    front = ((ax1 <= bx0) & (x < bx0)) | ((ax0 >= bx1) & (x > bx1))
    front |= ((ay1 <= by0) & (y < by0)) | ((ay0 >= by1) & (y > by1))
    apart = (ax1 <= bx0) | (ax0 >= bx1) | (ay1 <= by0) | (ay0 >= by1)
    da = (((a[:, :2] + a[:, 2:]) / 2 - eye_xy) ** 2).sum(axis=1)[:, None]
    db = (((b[:, :2] + b[:, 2:]) / 2 - eye_xy) ** 2).sum(axis=1)[None]
    result: Flags = np.where(apart, front, da < db)
    return result


def boxes_meet(a: NDArray[np.float64], b: NDArray[np.float64]) -> Flags:
    """[N,M] whether screen boxes overlap (x0, y0, x1, y1)."""
    meet: Flags = (
        (a[:, None, 0] < b[None, :, 2])
        & (a[:, None, 2] > b[None, :, 0])
        & (a[:, None, 1] < b[None, :, 3])
        & (a[:, None, 3] > b[None, :, 1])
    )
    return meet


def far_to_near(
    footprints: Footprints, screen: NDArray[np.float64], eye_xy: NDArray[np.float64]
) -> list[int]:
    """A drawing order: whatever can hide another comes after it; ties and cycles go by distance."""
    count = len(footprints)
    if count == 0:
        return []
    hides = in_front(footprints, footprints, eye_xy) & boxes_meet(screen, screen)
    np.fill_diagonal(hides, False)
    hides &= ~(hides & hides.T)
    distance = (((footprints[:, :2] + footprints[:, 2:]) / 2 - eye_xy) ** 2).sum(axis=1)
    waits = hides.sum(axis=1)  # how many things behind i are not drawn yet
    left = np.ones(count, bool)
    out: list[int] = []
    for _ in range(count):
        ready = left & (waits == 0)
        pool = ready if ready.any() else left
        pick = int(np.where(pool, distance, -1.0).argmax())
        out.append(pick)
        left[pick] = False
        waits = waits - hides[:, pick]
    return out
