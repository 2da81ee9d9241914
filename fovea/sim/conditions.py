"""The six conditions and the light, air and sensor that one clip of each gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONDITIONS: tuple[str, ...] = ("day", "dusk", "night", "rain", "fog", "snow")
NIGHT_RAIN = "night+rain"
"""Not a condition of the suites: two of them at once, which no bundled model has seen together."""

Rgb = NDArray[np.float64]  # always in BGR order, 1.0 = full


@dataclass(frozen=True, slots=True, eq=False)
class Atmosphere:
    """What the light and the air are in one clip. Colours are BGR factors of albedo."""

    condition: str
    ambient: Rgb
    sun: Rgb
    sun_direction: NDArray[np.float64]  # unit vector towards the sun
    sky_top: Rgb
    sky_low: Rgb
    cloud: float
    extinction_per_m: float
    air: Rgb
    lamp: Rgb  # colour and strength of street lamps, zero when off
    headlights: float
    window_glow: float
    wetness: float
    snow_cover: float
    fall: float  # rain or snow in the air
    contrast: float


@dataclass(frozen=True, slots=True)
class SensorTraits:
    """How one clip's camera spoils the picture."""

    noise_sigma: float
    exposure_s: float
    jpeg_quality: int
    vignette: float
    cast_bgr: tuple[float, float, float]
    drift: float
    softness_px: float
    drops: int


def _bgr(b: float, g: float, r: float) -> Rgb:
    return np.array([b, g, r], np.float64)


def _towards(elevation_deg: float, azimuth_rad: float) -> NDArray[np.float64]:
    e = math.radians(elevation_deg)
    return np.array([math.cos(e) * math.cos(azimuth_rad), math.cos(e) * math.sin(azimuth_rad), math.sin(e)])


def sample_atmosphere(condition: str, rng: np.random.Generator) -> Atmosphere:
    """Draw the light and air of one clip of a condition."""
    u = rng.uniform
    azimuth = float(u(0, 2 * math.pi))
    base: dict[str, Any] = {
        "condition": condition,
        "lamp": _bgr(0, 0, 0),
        "headlights": 0.0,
        "window_glow": 0.0,
        "wetness": 0.0,
        "snow_cover": 0.0,
        "fall": 0.0,
        "contrast": 1.0,
        "cloud": float(u(0, 1)),
        "extinction_per_m": 0.0008,
        "sun": _bgr(0, 0, 0),
        "sun_direction": _towards(45, azimuth),
    }
    if condition == "day":
        _day(base, rng, azimuth)
    elif condition == "dusk":
        _dusk(base, rng, azimuth)
    elif condition == "night":
        _night(base, rng)
    elif condition == "rain":
        _rain(base, rng)
    elif condition == NIGHT_RAIN:
        _night(base, rng)
        _wet(base, rng)
    elif condition == "fog":
        _fog(base, rng)
    else:
        _snow(base, rng)
    return Atmosphere(**base)


def _day(base: dict[str, Any], rng: np.random.Generator, azimuth: float) -> None:
    u = rng.uniform
    clear = float(u(0, 1)) < 0.7
    strength = float(u(0.65, 0.95)) if clear else float(u(0.0, 0.15))
    warm = float(u(0, 0.15))
    base.update(
        ambient=_bgr(0.60, 0.54, 0.49) * u(0.85, 1.1) if clear else _bgr(1.04, 1.01, 0.98) * u(0.85, 1.1),
        sun=_bgr(0.86 - warm, 0.96 - warm / 2, 1.0) * strength,
        sun_direction=_towards(float(u(24, 62)), azimuth),
        sky_top=_bgr(0.82, 0.58, 0.36) if clear else _bgr(0.72, 0.70, 0.68),
        sky_low=_bgr(0.95, 0.86, 0.76) if clear else _bgr(0.86, 0.85, 0.84),
        cloud=float(u(0, 0.6)) if clear else float(u(0.6, 1)),
        air=_bgr(0.90, 0.84, 0.78),
        extinction_per_m=float(u(0.0006, 0.002)),
    )


def _dusk(base: dict[str, Any], rng: np.random.Generator, azimuth: float) -> None:
    u = rng.uniform
    late = float(u(0, 1))
    base.update(
        ambient=_bgr(0.62, 0.51, 0.50) * (1.0 - 0.5 * late),
        sun=_bgr(0.16, 0.36, 0.62) * max(0.0, 0.9 - 1.6 * late),
        sun_direction=_towards(float(u(5, 13)), azimuth),
        sky_top=_bgr(0.66, 0.44, 0.34) * (1.0 - 0.5 * late),
        sky_low=_bgr(0.42, 0.56, 0.86) * (1.0 - 0.35 * late),
        air=_bgr(0.40, 0.42, 0.52) * (1.0 - 0.3 * late),
        extinction_per_m=float(u(0.001, 0.003)),
        lamp=_bgr(0.30, 0.55, 0.80) * u(0.25, 0.6) * (late > 0.4),
        headlights=0.5 + 0.4 * late,
        window_glow=0.25 + 0.6 * late,
    )


def _night(base: dict[str, Any], rng: np.random.Generator) -> None:
    u = rng.uniform
    sodium = float(u(0, 1)) < 0.5
    dark = float(u(0.045, 0.10))
    lamp = _bgr(0.24, 0.52, 0.86) if sodium else _bgr(0.72, 0.72, 0.66)
    base.update(
        ambient=(_bgr(0.9, 0.95, 1.25) if sodium else _bgr(1.35, 1.0, 0.85)) * dark,
        sky_top=_bgr(0.09, 0.055, 0.045) * u(0.5, 1.2),
        sky_low=_bgr(0.10, 0.11, 0.15) * u(0.7, 1.5),
        air=_bgr(0.07, 0.07, 0.09),
        extinction_per_m=float(u(0.001, 0.004)),
        lamp=lamp * u(0.4, 1.05),
        headlights=1.0,
        window_glow=float(u(0.5, 1.0)),
        wetness=float(u(0.3, 0.8)) if float(u(0, 1)) < 0.25 else 0.0,
    )


def _rain(base: dict[str, Any], rng: np.random.Generator) -> None:
    u = rng.uniform
    gloom = float(u(0.3, 0.72))
    base.update(
        ambient=_bgr(0.98, 0.94, 0.90) * gloom,
        sky_top=_bgr(0.74, 0.71, 0.69) * gloom * 1.15,
        sky_low=_bgr(0.82, 0.80, 0.78) * gloom * 1.25,
        cloud=1.0,
        air=_bgr(0.80, 0.78, 0.76) * gloom * 1.15,
        extinction_per_m=float(u(0.003, 0.010)),
        headlights=0.75,
        window_glow=0.35 if gloom < 0.5 else 0.1,
        lamp=_bgr(0.30, 0.52, 0.75) * (0.35 if gloom < 0.42 else 0.0),
        wetness=float(u(0.65, 1.0)),
        fall=float(u(0.35, 1.0)),
        contrast=0.92,
    )


def _wet(base: dict[str, Any], rng: np.random.Generator) -> None:
    """Rain that falls through whatever light there is."""
    u = rng.uniform
    base.update(
        cloud=1.0,
        extinction_per_m=float(u(0.003, 0.010)),
        wetness=float(u(0.65, 1.0)),
        fall=float(u(0.35, 1.0)),
        contrast=0.92,
    )


def _fog(base: dict[str, Any], rng: np.random.Generator) -> None:
    u = rng.uniform
    light = float(u(0.55, 0.85))
    sight_m = float(np.exp(u(math.log(28), math.log(110))))
    air = _bgr(0.95, 0.94, 0.92) * light
    base.update(
        ambient=_bgr(0.96, 0.94, 0.92) * light,
        sky_top=air * 0.97,
        sky_low=air,
        cloud=0.0,
        air=air,
        extinction_per_m=3.0 / sight_m,
        headlights=0.6,
        window_glow=0.3,
        contrast=0.9,
        wetness=float(u(0, 0.35)),
    )


def _snow(base: dict[str, Any], rng: np.random.Generator) -> None:
    u = rng.uniform
    light = float(u(0.68, 1.0))
    base.update(
        ambient=_bgr(1.0, 0.96, 0.93) * light,
        sky_top=_bgr(0.84, 0.81, 0.79) * light,
        sky_low=_bgr(0.92, 0.90, 0.88) * light,
        cloud=0.8,
        air=_bgr(0.95, 0.92, 0.90) * light,
        extinction_per_m=float(u(0.003, 0.016)),
        headlights=0.5,
        window_glow=0.3,
        snow_cover=float(u(0.6, 1.0)),
        fall=float(u(0.2, 1.0)),
        contrast=0.95,
        wetness=float(u(0.0, 0.4)),
    )


_SENSOR: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[int, int]]] = {
    # noise sigma (grey levels), exposure (s), JPEG quality
    "day": ((1.2, 3.0), (0.003, 0.008), (78, 95)),
    "dusk": ((3.0, 6.0), (0.012, 0.025), (70, 90)),
    "night": ((5.0, 11.0), (0.025, 0.045), (58, 85)),
    "rain": ((2.5, 5.0), (0.008, 0.020), (65, 90)),
    NIGHT_RAIN: ((5.0, 11.0), (0.025, 0.045), (58, 85)),
    "fog": ((2.0, 4.5), (0.005, 0.015), (70, 92)),
    "snow": ((2.0, 4.5), (0.005, 0.015), (70, 92)),
}


def sample_sensor(condition: str, rng: np.random.Generator) -> SensorTraits:
    """Draw the sensor of one clip of a condition."""
    noise, exposure, quality = _SENSOR[condition]
    cast = rng.normal(1.0, 0.025, 3).clip(0.93, 1.07)
    return SensorTraits(
        noise_sigma=float(rng.uniform(*noise)),
        exposure_s=float(rng.uniform(*exposure)),
        jpeg_quality=int(rng.integers(*quality)),
        vignette=float(rng.uniform(0.05, 0.35)),
        cast_bgr=(float(cast[0]), float(cast[1]), float(cast[2])),
        drift=float(rng.uniform(0.01, 0.08)),
        softness_px=float(rng.uniform(0.45, 0.85)),
        drops=int(rng.integers(2, 9)) if "rain" in condition else 0,
    )
