"""Images from anywhere: every kind becomes u8[H, W, 3] BGR, every broken one is refused by name."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError, Malformed, RejectedError, TooLarge
from fovea.runtime.image_header import read_header
from fovea.runtime.images import ImageLimits, decode_image, encode_jpeg, encode_png, pixels_from_array
from tests.builders import scene

PICTURE = cv2.GaussianBlur(scene(60, 80), (0, 0), 2)


def encoded(extension: str, pixels: np.ndarray = PICTURE, *options: int) -> bytes:
    is_done, data = cv2.imencode(extension, pixels, list(options))
    assert is_done
    content: bytes = data.tobytes()
    return content


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """`jpeg` with an EXIF block that holds nothing but the orientation."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\x00\x00MM\x00*" + struct.pack(">IH", 8, 1) + entry + bytes(4)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def png_that_declares(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    crc = zlib.crc32(b"IHDR" + header)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", crc)


def jpeg_that_declares(width: int, height: int) -> bytes:
    data = bytearray(encoded(".jpg"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


FORMATS = {
    "JPEG": encoded(".jpg"),
    "progressive JPEG": encoded(".jpg", PICTURE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "PNG": encoded(".png"),
    "WebP": encoded(".webp", PICTURE, cv2.IMWRITE_WEBP_QUALITY, 95),
    "lossless WebP": encoded(".webp", PICTURE, cv2.IMWRITE_WEBP_QUALITY, 101),
    "BMP": encoded(".bmp"),
    "GIF": encoded(".gif"),
}
LOSSLESS = ("PNG", "lossless WebP", "BMP")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_decodes_to_the_picture_it_was_made_of(name: str) -> None:
    pixels = decode_image(FORMATS[name])
    assert pixels.shape == PICTURE.shape
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    worst = 0 if name in LOSSLESS else 90
    assert cv2.absdiff(pixels, PICTURE).max() <= worst
    # The palette that OpenCV writes to a GIF is coarse.
    assert cv2.absdiff(pixels, PICTURE).mean() < (25 if name == "GIF" else 8)


@pytest.mark.parametrize("name", FORMATS)
def test_the_header_says_the_size_before_anything_is_decoded(name: str) -> None:
    declared = read_header(FORMATS[name])
    assert (declared.width, declared.height) == (80, 60)
    assert declared.format == name.split()[-1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_anywhere_is_refused(name: str) -> None:
    data = FORMATS[name]
    for length in {1, 2, 10, 30, len(data) // 3, len(data) // 2, len(data) * 9 // 10, len(data) - 1}:
        with pytest.raises(Malformed):
            decode_image(data[:length])


def test_a_cut_jpeg_shows_nothing_of_the_picture_decoded_before_it() -> None:
    bright = np.full((60, 80, 3), 255, np.uint8)
    decode_image(encoded(".jpg", bright))
    with pytest.raises(Malformed, match="cut short"):
        decode_image(FORMATS["JPEG"][:-200])
    ended = FORMATS["JPEG"][:-400] + b"\xff\xd9"
    assert decode_image(ended).mean() < 250


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"<html>login</html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "git-LFS"),
        (b"\x00\x00\x00\x18ftypmp42", "JPEG, PNG, WebP, BMP or GIF"),
        (b"II*\x00", "JPEG, PNG, WebP, BMP or GIF"),
        (b"\xff\xd8\xff\xd9", "JPEG without a size"),
        (b"\xff\xd8" + bytes(100), "ends before its size"),
        (b"\x89PNG\r\n\x1a\n", "header is cut short"),
        (png_that_declares(0, 10), "no pixels"),
        (png_that_declares(10, 10), "damaged or cut short"),
        (b"RIFF\x00\x00\x00\x00WEBPVP9 " + bytes(20), "unknown first chunk"),
        (b"BM" + bytes(12) + struct.pack("<I", 40) + struct.pack("<ii", 8, 8) + bytes(40), "BMP"),
    ],
)
def test_what_is_no_whole_image_is_refused_by_name(data: bytes, word: str) -> None:
    with pytest.raises(Malformed, match=word):
        decode_image(data)


@pytest.mark.parametrize("data", [png_that_declares(97293039, 1048810005), jpeg_that_declares(65535, 65535)])
def test_an_image_bomb_is_refused_by_its_declared_size(data: bytes) -> None:
    with pytest.raises(TooLarge, match="64000000 pixels"):
        decode_image(data)


def test_the_limits_are_the_callers() -> None:
    with pytest.raises(TooLarge, match="at most 100 bytes"):
        decode_image(FORMATS["PNG"], ImageLimits(max_bytes=100))
    with pytest.raises(TooLarge, match="declares 80x60"):
        decode_image(FORMATS["PNG"], ImageLimits(max_pixels=80 * 60 - 1))
    assert decode_image(FORMATS["PNG"], ImageLimits(max_pixels=80 * 60)).shape == (60, 80, 3)


def turned(pixels: ImageArray, orientation: int) -> ImageArray:
    """The upright picture of a stored one, by the EXIF definition of row 0 and column 0."""
    views = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: pixels.transpose(1, 0, 2)[:, ::-1],
        7: pixels[::-1, ::-1].transpose(1, 0, 2),
        8: pixels.transpose(1, 0, 2)[::-1],
    }
    return views[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured_for_colour_and_for_grey(orientation: int) -> None:
    for stored in (PICTURE, cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY)):
        jpeg = encoded(".jpg", stored, cv2.IMWRITE_JPEG_QUALITY, 100)
        upright = turned(decode_image(jpeg), orientation)
        np.testing.assert_array_equal(decode_image(with_orientation(jpeg, orientation)), upright)


def test_a_twelve_bit_picture_in_a_sixteen_bit_file_is_as_bright_as_it_was() -> None:
    wide = PICTURE.astype(np.uint16) * 16
    wide[0, 0] = 4095
    assert cv2.absdiff(decode_image(encoded(".png", wide))[1:], PICTURE[1:]).max() <= 1


def test_a_full_sixteen_bit_file_keeps_its_range() -> None:
    wide = PICTURE.astype(np.uint16) * 257
    wide[0, 0] = 65535
    assert cv2.absdiff(decode_image(encoded(".png", wide))[1:], PICTURE[1:]).max() <= 1


def test_transparency_is_dropped_and_grey_becomes_three_equal_channels() -> None:
    alpha = np.dstack([PICTURE, np.zeros((60, 80), np.uint8)])
    np.testing.assert_array_equal(decode_image(encoded(".png", alpha)), PICTURE)
    grey = cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY)
    np.testing.assert_array_equal(decode_image(encoded(".png", grey)), np.dstack([grey] * 3))


@pytest.mark.parametrize("extension", [".gif", ".webp"])
def test_of_an_animation_the_first_picture_is_taken(extension: str) -> None:
    animation = cv2.Animation()
    animation.frames = [PICTURE, 255 - PICTURE, 255 - PICTURE]
    animation.durations = [100, 100, 100]
    is_done, data = cv2.imencodeanimation(extension, animation)
    assert is_done
    first = decode_image(data.tobytes())
    assert cv2.absdiff(first, PICTURE).mean() < 25 < cv2.absdiff(first, 255 - PICTURE).mean()


def test_a_cmyk_jpeg_keeps_its_colours() -> None:
    image_module = pytest.importorskip("PIL.Image", reason="Pillow makes the CMYK file")
    import io

    target = io.BytesIO()
    image_module.fromarray(PICTURE[..., ::-1]).convert("CMYK").save(target, "JPEG", quality=95)
    assert cv2.absdiff(decode_image(target.getvalue()), PICTURE).mean() < 4


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_a_damaged_file_is_decoded_or_refused_and_never_raises_anything_else(
    name: str, data: st.DataObject
) -> None:
    damaged = bytearray(FORMATS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        pixels = decode_image(bytes(damaged), ImageLimits(max_pixels=1_000_000))
    except RejectedError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0", b"BM", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"RIFF1234WEBPVP8X"]
    ),
    st.binary(max_size=64),
)
def test_any_header_is_read_or_refused(start: bytes, rest: bytes) -> None:
    try:
        declared = read_header(start + rest)
    except Malformed:
        return
    assert declared.width >= 1
    assert declared.height >= 1


GREY = cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY)
READ_ONLY = PICTURE.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (PICTURE, PICTURE),
        (GREY, np.dstack([GREY] * 3)),
        (GREY[..., None], np.dstack([GREY] * 3)),
        (np.dstack([PICTURE, GREY]), PICTURE),
        (READ_ONLY, PICTURE),
        (PICTURE[::-1, ::-1], PICTURE[::-1, ::-1].copy()),
        (np.asfortranarray(PICTURE), PICTURE),
        (PICTURE[::2, 1::3], PICTURE[::2, 1::3].copy()),
        (GREY > 100, np.dstack([np.where(GREY > 100, 255, 0).astype(np.uint8)] * 3)),
        (PICTURE.astype(np.float32), PICTURE),
        (PICTURE.astype(np.float64), PICTURE),
        (PICTURE.astype(np.float32) / 255, PICTURE),
        (PICTURE.astype(np.uint16), PICTURE),
        (PICTURE.astype(">u2"), PICTURE),
        (np.zeros((2, 2, 3), np.float32), np.zeros((2, 2, 3), np.uint8)),
        (np.ones((2, 2), np.float16), np.full((2, 2, 3), 255, np.uint8)),
        (np.full((1, 4000, 3), 7, np.uint8), np.full((1, 4000, 3), 7, np.uint8)),
    ],
    ids=[
        "as it is", "grey", "grey with an axis", "BGRA", "read-only", "reversed", "column-major", "strided",
        "bool", "float 0..255", "double", "float 0..1", "16-bit", "big-endian", "black float", "half", "4000x1",
    ],
)  # fmt: skip
def test_arrays_of_every_kind_are_converted(array: np.ndarray, expected: np.ndarray) -> None:
    pixels = pixels_from_array(array)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize(("brightest", "bits"), [(255, 8), (1023, 10), (4095, 12), (16383, 14), (65535, 16)])
def test_sixteen_bit_values_are_scaled_by_the_bits_they_use(brightest: int, bits: int) -> None:
    array = np.array([[0, brightest]], np.uint16)
    assert pixels_from_array(array)[0, :, 0].tolist() == [0, 255]
    assert pixels_from_array(array // 2, significant_bits=bits)[0, 1, 0] in (127, 128)


def test_a_contiguous_picture_is_not_copied() -> None:
    assert np.shares_memory(pixels_from_array(PICTURE), PICTURE)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (None, "NoneType"),
        ([[1, 2], [3, 4]], "list"),
        (np.zeros(5, np.uint8), r"\[5\]"),
        (np.zeros((2, 2, 2), np.uint8), r"\[2, 2, 2\]"),
        (np.zeros((0, 5, 3), np.uint8), r"\[0, 5, 3\]"),
        (np.zeros((5, 0), np.uint8), r"\[5, 0\]"),
        (np.zeros((2, 2, 3, 1), np.uint8), r"\[2, 2, 3, 1\]"),
        (np.zeros((2, 2), np.int32), "int32"),
        (np.zeros((2, 2), np.int8), "int8"),
        (np.zeros((2, 2), np.complex64), "complex64"),
        (np.array([["a"]]), "U1"),
        (np.full((2, 2), np.nan, np.float32), "NaN"),
        (np.full((2, 2), np.inf, np.float32), "infinity"),
        (np.full((2, 2), -0.5, np.float32), "-0.5"),
        (np.full((2, 2), 300.0, np.float32), "300"),
    ],
)
def test_what_is_no_image_is_refused_with_what_it_was(array: object, word: str) -> None:
    with pytest.raises(Malformed, match=word):
        pixels_from_array(array)


def test_impossible_bits_are_refused() -> None:
    with pytest.raises(Malformed, match="8 to 16"):
        pixels_from_array(np.zeros((2, 2), np.uint16), significant_bits=20)


def test_jpeg_and_png_survive_the_way_there_and_back() -> None:
    np.testing.assert_array_equal(decode_image(encode_png(PICTURE)), PICTURE)
    assert cv2.absdiff(decode_image(encode_jpeg(PICTURE, 95)), PICTURE).mean() < 4
    assert len(encode_jpeg(PICTURE, 30)) < len(encode_jpeg(PICTURE, 95))
    assert decode_image(encode_jpeg(np.zeros((1, 1, 3), np.uint8))).shape == (1, 1, 3)


@pytest.mark.parametrize("quality", [0, 101, -5])
def test_an_impossible_jpeg_quality_is_refused(quality: int) -> None:
    with pytest.raises(Malformed, match="quality"):
        encode_jpeg(PICTURE, quality)


def test_a_side_that_jpeg_cannot_hold_is_refused() -> None:
    with pytest.raises(Malformed, match="65535"):
        encode_jpeg(np.zeros((1, 65536, 3), np.uint8))


DECODE_ALL = """
import sys
from pathlib import Path
from fovea.core.errors import RejectedError
from fovea.runtime.images import decode_image
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        pixels = decode_image(path.read_bytes())
    except RejectedError as error:
        print(path.name, "refused", error)
    else:
        assert pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size, path
        print(path.name, "decoded", *pixels.shape[:2])
"""


@pytest.mark.skipif(
    "FOVEA_REALDATA" not in os.environ, reason="FOVEA_REALDATA names no folder with real files"
)
def test_odd_files_from_the_field_neither_crash_nor_hang() -> None:
    folder = Path(os.environ["FOVEA_REALDATA"]) / "odd"
    done = subprocess.run(
        [sys.executable, "-c", DECODE_ALL, str(folder)],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert len(lines) == len(list(folder.iterdir()))
    assert "decoded 600 450" in lines["exif_portrait_6.jpg"]
    assert "refused" in lines["pillow_broken.png"]
    assert "refused" in lines["pillow_truncated_image.png"]


def test_every_refusal_is_one_of_ours() -> None:
    for data in (b"x", b"\xff\xd8\xff", FORMATS["GIF"][:20]):
        with pytest.raises(FoveaError):
            decode_image(data)
