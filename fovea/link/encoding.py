"""How pixels travel to another tier, and which way suits which address."""

from __future__ import annotations

import ipaddress
from enum import StrEnum

from fovea.core.arrays import ImageArray
from fovea.runtime.images import encode_jpeg, encode_png

_BESIDE_PIXELS_BYTES = 65_536
"""Room for what goes with raw pixels in a question."""


class PixelEncoding(StrEnum):
    """JPEG is small and loses a little, PNG and RAW lose nothing; RAW costs no time. AUTO: RAW within one machine,
    where the pixels fit into a message, JPEG everywhere else."""

    JPEG = "jpeg"
    PNG = "png"
    RAW = "raw"
    AUTO = "auto"


def encode_pixels(
    pixels: ImageArray, encoding: PixelEncoding, jpeg_quality: int, address: str, max_bytes: int
) -> bytes | ImageArray:
    """`pixels` u8[H, W, 3] BGR as they go into a question for `address`, where a message has `max_bytes` at most.

    Raises Malformed for what cannot be encoded.
    """
    match encoding:
        case PixelEncoding.PNG:
            return encode_png(pixels)
        case PixelEncoding.RAW:
            return pixels
        case PixelEncoding.AUTO if (
            is_same_machine(address) and pixels.nbytes + _BESIDE_PIXELS_BYTES <= max_bytes
        ):
            return pixels
        case _:
            return encode_jpeg(pixels, jpeg_quality)


def is_same_machine(address: str) -> bool:
    """True for a gRPC address of the loopback or of a unix socket."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    plain = address.removeprefix("dns:").removeprefix("ipv4:").removeprefix("ipv6:").lstrip("/")
    host = plain.rpartition(":")[0].strip("[]") or plain
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
