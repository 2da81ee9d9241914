"""Reads format and declared size from the first bytes of an image, before anything is decoded."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fovea.core.errors import Malformed
from fovea.runtime.wrong_file import explain_wrong_file

KNOWN_FORMATS = "JPEG, PNG, WebP, BMP or GIF"

_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True, slots=True)
class DeclaredImage:
    """What an image says it is; nothing of it is checked but the header. Sizes before any rotation, in px."""

    format: str
    width: int
    height: int


def read_header(data: bytes) -> DeclaredImage:
    """Format and size that `data` declares. Raises Malformed when it is none of the known formats, its header is cut
    short, or a side is 0."""
    try:
        declared = _parse(data)
    except (struct.error, IndexError) as error:
        raise Malformed(f"image: the header is cut short ({len(data)} bytes)") from error
    if declared.width < 1 or declared.height < 1:
        raise Malformed(f"image: {declared.format} of {declared.width}x{declared.height} px has no pixels")
    return declared


def _parse(data: bytes) -> DeclaredImage:
    if data.startswith(b"\xff\xd8"):
        return _parse_jpeg(data)
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return DeclaredImage("PNG", *struct.unpack_from(">II", data, 16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return DeclaredImage("GIF", *struct.unpack_from("<HH", data, 6))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _parse_webp(data)
    if data.startswith(b"BM"):
        return _parse_bmp(data)
    wrong = explain_wrong_file(data) or f"bytes that start with {data[:8]!r}"
    raise Malformed(f"image: expected {KNOWN_FORMATS}, got {wrong}")


def _parse_jpeg(data: bytes) -> DeclaredImage:
    """Walks the segments to the frame header (ITU T.81, B.2.2), as decoders do: stray bytes between are skipped."""
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0:
            raise Malformed("image: a JPEG that ends before its size")
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return DeclaredImage("JPEG", width, height)
        if marker in (0xD9, 0xDA):
            raise Malformed("image: a JPEG without a size before its picture data")
        if marker and marker not in _JPEG_ALONE:
            at += struct.unpack_from(">H", data, at)[0]


def _parse_webp(data: bytes) -> DeclaredImage:
    kind = data[12:16]
    if kind == b"VP8X":
        width = 1 + int.from_bytes(_exactly(data, 24, 3), "little")
        height = 1 + int.from_bytes(_exactly(data, 27, 3), "little")
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise Malformed(f"image: a WebP with an unknown first chunk {kind!r}")
    return DeclaredImage("WebP", width, height)


def _parse_bmp(data: bytes) -> DeclaredImage:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        return DeclaredImage("BMP", *struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return DeclaredImage("BMP", abs(width), abs(height))


def _exactly(data: bytes, at: int, count: int) -> bytes:
    found = data[at : at + count]
    if len(found) != count:
        raise IndexError("header cut short")
    return found
