"""Image files and arrays of every kind into pixels u8[H, W, 3] in BGR order, and back to JPEG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed, TooLarge
from fovea.runtime.image_header import KNOWN_FORMATS, DeclaredImage, read_header


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What is refused before it is decoded: longer files, more declared pixels."""

    max_bytes: int = 50_000_000
    max_pixels: int = 64_000_000


def decode_image(data: bytes, limits: ImageLimits = ImageLimits()) -> ImageArray:
    """Decodes a JPEG, PNG, WebP, BMP or GIF into u8[H, W, 3] BGR.

    EXIF orientation is always applied; transparency is dropped; of an animation the first picture is taken; 16-bit
    images are scaled as in `pixels_from_array`. Raises TooLarge when the file, or the size in its header, is over
    the limits, and Malformed when it is empty, of another format, damaged or cut short.
    """
    if len(data) > limits.max_bytes:
        raise TooLarge(f"image: expected at most {limits.max_bytes} bytes, got {len(data)}")
    declared = read_header(data)
    if declared.width * declared.height > limits.max_pixels:
        raise TooLarge(
            f"image: expected at most {limits.max_pixels} pixels, "
            f"the {declared.format} declares {declared.width}x{declared.height}"
        )
    pixels = _decode(data, declared)
    if {declared.width, declared.height} != set(pixels.shape[:2]):
        raise Malformed(
            f"image: the {declared.format} declares {declared.width}x{declared.height} px "
            f"but holds {pixels.shape[1]}x{pixels.shape[0]}"
        )
    return pixels_from_array(pixels)


def pixels_from_array(array: Any, significant_bits: int | None = None) -> ImageArray:
    """Converts an image array to a contiguous u8[H, W, 3] in BGR order.

    Shapes: [H, W] and [H, W, 1] grey, [H, W, 3] BGR, [H, W, 4] BGRA (the alpha channel is dropped).
    uint8: as it is. bool: 0 and 255.
    uint16: divided by the largest value of its bit depth, which is `significant_bits` or else the smallest of 8, 10,
            12, 14, 16 bits that holds the brightest pixel. For a video give the bits, or the scale moves with it.
    floats: all values within 0 to 1 are times 255, all within 0 to 255 are taken as they are.

    Read-only, strided and big-endian arrays are fine; a contiguous u8[H, W, 3] comes back without a copy. Raises
    Malformed for any other shape or type, an empty image, and negative, too large or non-finite floats.
    """
    if not isinstance(array, np.ndarray):
        raise Malformed(f"image: expected an array, got {type(array).__name__}")
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 and array.size:
        return np.ascontiguousarray(array)  # what cameras give
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or array.size == 0:
        raise Malformed(f"image: expected [H, W], [H, W, 1], [H, W, 3] or [H, W, 4], got {list(array.shape)}")
    color = array[..., None] if array.ndim == 2 else array[..., :3]
    eight = _eight_bits(color, significant_bits)
    if eight.shape[2] == 1:
        eight = np.repeat(eight, 3, axis=2)
    return np.ascontiguousarray(eight)


def encode_jpeg(pixels: ImageArray, quality: int = 90) -> bytes:
    """`pixels` u8[H, W, 3] BGR as JPEG, quality 1 to 100. Raises Malformed for a side over 65535 px."""
    if not 1 <= quality <= 100:
        raise Malformed(f"jpeg quality: expected 1 to 100, got {quality}")
    if max(pixels.shape[:2]) > 65535:
        raise Malformed(f"jpeg: expected sides of 65535 px at most, got {pixels.shape[1]}x{pixels.shape[0]}")
    is_done, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not is_done:
        raise Malformed(f"jpeg: {pixels.shape[1]}x{pixels.shape[0]} px could not be encoded")
    encoded: bytes = data.tobytes()
    return encoded


def encode_png(pixels: ImageArray) -> bytes:
    """`pixels` u8[H, W, 3] BGR as PNG, without loss."""
    is_done, data = cv2.imencode(".png", pixels)
    if not is_done:
        raise Malformed(f"png: {pixels.shape[1]}x{pixels.shape[0]} px could not be encoded")
    encoded: bytes = data.tobytes()
    return encoded


def _decode(data: bytes, declared: DeclaredImage) -> NDArray[Any]:
    # Colour with any depth, and never IMREAD_UNCHANGED, which skips the EXIF orientation.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise Malformed(f"image: a {declared.format} that cannot be decoded ({error.err})") from error
    if pixels is None:
        raise Malformed(
            f"image: a {declared.format} of {declared.width}x{declared.height} px that is damaged or cut short "
            f"({len(data)} bytes); expected a whole {KNOWN_FORMATS}"
        )
    decoded: NDArray[Any] = pixels
    return decoded


def _eight_bits(values: NDArray[Any], significant_bits: int | None) -> ImageArray:
    if values.dtype == np.uint8:
        eight: ImageArray = values
        return eight
    if values.dtype == np.bool_:
        return np.where(values, np.uint8(255), np.uint8(0))
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return _from_16_bits(values, significant_bits)
    if values.dtype.kind == "f":
        return _from_floats(values)
    raise Malformed(f"image: expected uint8, uint16, bool or float values, got {values.dtype}")


def _from_16_bits(values: NDArray[Any], significant_bits: int | None) -> ImageArray:
    brightest = int(values.max())
    bits = significant_bits or next(depth for depth in (8, 10, 12, 14, 16) if brightest < 1 << depth)
    if not 8 <= bits <= 16:
        raise Malformed(f"image significant_bits: expected 8 to 16, got {bits}")
    scaled: NDArray[np.float32] = np.minimum(
        values.astype(np.float32) * np.float32(255 / ((1 << bits) - 1)) + 0.5, 255
    )
    return scaled.astype(np.uint8)


def _from_floats(values: NDArray[Any]) -> ImageArray:
    if not np.isfinite(values).all():
        raise Malformed("image: expected finite values, got NaN or infinity")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 255:
        raise Malformed(f"image: expected floats within 0 to 1 or 0 to 255, got {low:g} to {high:g}")
    factor = 255 if high <= 1 else 1
    return (values * factor + 0.5).astype(np.uint8)
