"""Sky, and what a wet street mirrors of it."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.camera import Camera
from fovea.sim.conditions import Atmosphere


def horizon_px(camera: Camera) -> float:
    """Row of the horizon in the middle of the frame (may lie above the frame)."""
    forward = camera.rotation[2]
    flat = np.array([forward[0], forward[1], 0.0])
    view = camera.rotation @ (flat / np.linalg.norm(flat))
    return float(camera.centre_px[1] + camera.focal_px * view[1] / view[2])


def paint_sky(camera: Camera, atmosphere: Atmosphere, rng: np.random.Generator) -> NDArray[np.float32]:
    """Sky colours f32[h,w,3] in 0..255 for the whole frame."""
    width, height = camera.size_px
    level = horizon_px(camera)
    rows = np.arange(height, dtype=np.float32)[:, None, None]
    rise = ((level - rows) / (camera.focal_px * 0.45)).clip(0, 1) ** 0.7
    low, top = atmosphere.sky_low.astype(np.float32), atmosphere.sky_top.astype(np.float32)
    sky = np.repeat((low * (1 - rise) + top * rise) * 255.0, width, axis=1)
    noise = np.zeros((height // 4, width // 4), np.float32)
    for cells, weight in ((5, 1.0), (11, 0.55), (24, 0.3)):
        tile = rng.normal(0, 1, (cells, cells * 2)).astype(np.float32)
        noise += weight * cv2.resize(tile, (width // 4, height // 4), interpolation=cv2.INTER_CUBIC)
    noise = cv2.resize(noise, (width, height), interpolation=cv2.INTER_LINEAR)
    cover = (noise * 0.45 + (atmosphere.cloud - 0.45) * 2.2).clip(0, 1)[:, :, None]
    bright = (low * 0.5 + top * 0.5) * 255.0 * (1.12 if atmosphere.cloud < 0.7 else 1.0)
    grey = np.full(3, float(bright.mean()) * 1.1, np.float32)
    cloud = grey * (1.0 + 0.05 * noise[:, :, None])
    out: NDArray[np.float32] = sky + (cloud - sky) * cover * 0.75
    return out.clip(0, 255)


def mirror_below_horizon(
    picture: NDArray[np.float32], camera: Camera, is_ground: NDArray[np.bool_], wetness: float
) -> None:
    """Let wet ground mirror what stands above the horizon, smeared downwards; in place."""
    height = picture.shape[0]
    level = horizon_px(camera)
    rows = (2 * level - np.arange(height, dtype=np.float32)) * 0.55 + 0.45 * np.float32(level)
    rows = rows.clip(0, height - 1).astype(np.int32)
    mirrored = cv2.blur(picture[rows], (9, 61))
    drop = (np.arange(height, dtype=np.float32) - level).clip(1, None) / camera.focal_px
    grazing = (0.10 + 0.32 * np.exp(-drop * 3.2)) * wetness
    share = np.where(is_ground, grazing[:, None], 0.0).astype(np.float32)[:, :, None]
    picture += (mirrored - picture) * share
