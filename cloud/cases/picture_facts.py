"""What the store measures of a picture: a perceptual hash, and how bright and how contrasted it is."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.runtime.image_header import read_header

HASH_BITS = 64

_SIDE = 32
_KEPT = 8
# The hash needs 32 px a side; whole JPEG blocks are left out of the decoding while more than 64 are left.
_REDUCED = (
    (8, cv2.IMREAD_REDUCED_GRAYSCALE_8),
    (4, cv2.IMREAD_REDUCED_GRAYSCALE_4),
    (2, cv2.IMREAD_REDUCED_GRAYSCALE_2),
)
_FLAT = 1e-3
"""Coefficients below it are rounding: a picture of one colour has the hash 0."""


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """`hash`: 64 bits, near for pictures of the same scene. `luminance`: mean grey value, 0 to 255. `contrast`: its
    standard deviation, 0 to 128."""

    hash: int
    luminance: float
    contrast: float


def measured(image: bytes) -> PictureFacts:
    """The facts of an image file that is known to be whole. Raises Malformed for what cannot be decoded."""
    header = read_header(image)
    shorter = min(header.width, header.height)
    flags = next((flag for factor, flag in _REDUCED if shorter >= 2 * _SIDE * factor), cv2.IMREAD_GRAYSCALE)
    try:
        grey = cv2.imdecode(np.frombuffer(image, np.uint8), flags)
    except cv2.error as error:
        raise Malformed(f"image: a {header.format} that cannot be decoded ({error.err})") from error
    if grey is None:
        raise Malformed(f"image: a {header.format} that is damaged or cut short ({len(image)} bytes)")
    return PictureFacts(perceptual_hash(grey), float(grey.mean()), float(grey.std()))


def perceptual_hash(grey: ImageArray) -> int:
    """64 bits of u8[H, W]: which of the 8x8 lowest frequencies (DCT of 32x32 px, without the mean) are above their
    median. Noise, compression and brightness hardly move them (the "pHash" of Zauner, 2010)."""
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:_KEPT, :_KEPT].ravel()
    low[0] = 0
    bits = low > max(float(np.median(low)), _FLAT)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def distance_bits(a: int, b: int) -> int:
    """In how many of their 64 bits two hashes differ."""
    return (a ^ b).bit_count()


def as_signed(bits: int) -> int:
    """64 bits as databases keep them: -2**63 to 2**63 - 1."""
    return bits - (1 << HASH_BITS) if bits >> (HASH_BITS - 1) else bits


def from_signed(number: int) -> int:
    """What `as_signed` was given."""
    return number % (1 << HASH_BITS)
