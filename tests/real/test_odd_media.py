"""Odd and damaged media as found in the wild: each is read, or refused by name, and none hangs or kills us.

Needs FOVEA_REALDATA: a folder with `odd/` and `video/`.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from edge_agent.capture.camera import Camera, CameraPhase, CameraSettings, DropCause
from edge_agent.capture.source import SourceSpec, open_source
from fovea.core.errors import FoveaError, RejectedError
from fovea.core.frame import checked_pixels
from fovea.process.clock import SystemClock

DATA = Path(os.environ.get("FOVEA_REALDATA", "/nonexistent"))
MEDIA = sorted(path for part in ("odd", "video") for path in (DATA / part).glob("*") if path.is_file())
LIVENESS_S = 60.0
ENOUGH_FRAMES = 120

pytestmark = pytest.mark.skipif(
    not (DATA / "odd").is_dir(), reason="FOVEA_REALDATA is not set, or has no folder odd/"
)

REFUSED = {
    "pillow_broken.png": "PNG declares 97293039x1048810005",
    "pillow_decompression_bomb.gif": "without a frame that can be decoded",
    "pillow_rgb24jpeg.bmp": "BMP of 127x64 px that is damaged",
    "pillow_shortfile.bmp": "BMP of 127x64 px that is damaged",
    "pillow_truncated_image.png": "PNG of 640x480 px that is damaged",
    "pillow_ultrahdr.jpg": "JPEG of 1512x2688 px that is damaged",
    "pixelprobe_corrupted.mp4": "not a video",
    "pixelprobe_valid.jpeg": "expected JPEG",
}
SIZES = {
    "decord_unordered.mov": (4, None),
    "exif_portrait_6.jpg": (1, (600, 450)),
    "pillow_hopper_gray.jpg": (1, (128, 128)),
    "pillow_iss634.webp": (1, (245, 245)),
    "pillow_pil_sample_cmyk.jpg": (1, (100, 100)),
    "pillow_tRNS_null_1x1.png": (1, (1, 1)),
    "intel_person-bicycle-car-detection_preview.gif": (41, (270, 480)),
    "nahianfariha_night.mp4": (83, (822, 568)),
}
"""Frames (height, width) of some of those that are read."""


@pytest.mark.parametrize("path", MEDIA, ids=lambda path: path.name)
@pytest.mark.timeout(LIVENESS_S)
def test_each_file_is_read_or_refused_by_name(path: Path) -> None:
    frames, shapes, refusal = 0, set(), None
    try:
        source = open_source(SourceSpec(str(path), limit=ENOUGH_FRAMES), SystemClock())
        try:
            while source.advance():
                pixels = checked_pixels(source.picture().pixels)
                frames += 1
                shapes.add(pixels.shape[:2])
        finally:
            source.close()
    except FoveaError as error:
        refusal = error
    if path.name in REFUSED:
        assert isinstance(refusal, RejectedError)
        assert REFUSED[path.name] in str(refusal)
        assert path.name in str(refusal)
        assert frames == 0
    else:
        assert refusal is None, f"{type(refusal).__name__}: {refusal}"
        assert frames >= 1
    if path.name in SIZES:
        expected, shape = SIZES[path.name]
        assert frames == expected
        assert shape is None or shapes == {shape}


@pytest.mark.timeout(LIVENESS_S * 4)
def test_all_of_them_at_once_as_cameras_end_by_themselves() -> None:
    settings = CameraSettings(is_realtime=False)
    ready = threading.Event()
    cameras = {
        path.name: Camera(
            path.name,
            SourceSpec(str(path), limit=20),
            settings,
            SystemClock(),
            "boot",
            lambda _: ready.set(),
            lambda _: ready.set(),
        )
        for path in MEDIA
    }
    for camera in cameras.values():
        camera.start()
    taken = dict.fromkeys(cameras, 0)
    until_s = time.monotonic() + LIVENESS_S * 3
    while not all(camera.is_finished for camera in cameras.values()):
        assert time.monotonic() < until_s, [name for name, each in cameras.items() if not each.is_finished]
        ready.wait(0.5)
        ready.clear()
        for name, camera in cameras.items():
            taken[name] += camera.take() is not None
    for name, camera in cameras.items():
        assert camera.state.phase is CameraPhase.FINISHED
        assert (camera.state.reason is not None) == (name in REFUSED), camera.state
        assert (taken[name] == 0) == (name in REFUSED)
        counts = camera.counts
        assert counts.frames == counts.taken + sum(counts.drops.values())
        assert counts.drops[DropCause.REPLACED_BY_NEWER] == 0
        assert camera.stop(LIVENESS_S)
