"""What the camera itself does to a picture: lens, exposure, noise and JPEG."""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np

from fovea.sim.canvas import Image
from fovea.sim.conditions import SensorTraits

_TILE_SPARE_PX = 128


@lru_cache(maxsize=12)
def _noise_tiles(width: int, height: int, sigma: int) -> tuple[Image, Image]:
    """Positive and negative parts of sensor noise, larger than the frame so that offsets differ."""
    rng = np.random.default_rng(20_011 + sigma)
    shape = (height + _TILE_SPARE_PX, width + _TILE_SPARE_PX)
    luma = rng.standard_normal(shape, dtype=np.float32)
    coarse = cv2.resize(rng.standard_normal((shape[0] // 2, shape[1] // 2), dtype=np.float32), shape[::-1])
    tile = np.empty((*shape, 3), np.float32)
    for k, share in enumerate((0.9, 0.6, 0.75)):
        tile[:, :, k] = luma * 0.7 + np.roll(coarse, 37 * k, axis=1) * share
    tile *= sigma
    return tile.clip(0, 255).astype(np.uint8), (-tile).clip(0, 255).astype(np.uint8)


class Sensor:
    """One clip's camera."""

    def __init__(self, traits: SensorTraits, size_px: tuple[int, int], seed: int) -> None:
        self.traits, self.size_px, self._seed = traits, size_px, seed
        width, height = size_px
        y = (np.arange(height, dtype=np.float32)[:, None] / height - 0.5) * 2
        x = (np.arange(width, dtype=np.float32)[None] / width - 0.5) * 2
        fall = 1.0 - traits.vignette * ((x * x + y * y) / 2.0) ** 1.2
        cast = np.array(traits.cast_bgr, np.float32) * (200.0 / 255.0)
        self._gain: Image = (fall[:, :, None] * cast * 255.0).clip(0, 255).astype(np.uint8)
        self._scale = 255.0 / 200.0 / 255.0

    def exposure(self, time_s: float) -> float:
        """Slow drift of the automatic exposure around 1."""
        d = self.traits.drift
        return (
            1.0
            + d * math.sin(0.31 * time_s + self._seed % 7)
            + 0.4 * d * math.sin(1.27 * time_s + self._seed % 5)
        )

    def capture(self, picture: Image, time_s: float, rng: np.random.Generator) -> Image:
        """The picture u8[h,w,3] as this camera delivers it."""
        t = self.traits
        soft = cv2.GaussianBlur(picture, (3, 3), t.softness_px)
        out = cv2.multiply(soft, self._gain, scale=self._scale * self.exposure(time_s))
        positive, negative = _noise_tiles(self.size_px[0], self.size_px[1], max(round(t.noise_sigma), 1))
        dx, dy = (int(v) for v in rng.integers(0, _TILE_SPARE_PX, 2))
        view = (slice(dy, dy + self.size_px[1]), slice(dx, dx + self.size_px[0]))
        cv2.add(out, positive[view], dst=out)
        cv2.subtract(out, negative[view], dst=out)
        _, coded = cv2.imencode(".jpg", out, [cv2.IMWRITE_JPEG_QUALITY, t.jpeg_quality])
        return np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
