"""sim:// addresses are read strictly, and the camera behind one never ends."""

from __future__ import annotations

import numpy as np
import pytest

from fovea.core.errors import Malformed, RejectedError
from fovea.sim.source import SimAddress, SimSource, parse_address
from fovea.sim.suite import load_suite


def test_address_with_every_key_is_read() -> None:
    assert parse_address("sim://street-v1/night?seed=7&fps=5&size=640x360&start=12&split=test") == SimAddress(
        "street-v1", "night", 7, 5.0, (640, 360), 12, "test"
    )


def test_address_without_keys_gets_the_defaults() -> None:
    assert parse_address("sim://street-v1/day") == SimAddress("street-v1", "day", 0, 10.0, None, 0, None)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("rtsp://street-v1/day", "starts with sim://"),
        ("sim:///day", "SUITE/CONDITION"),
        ("sim://street-v1", "SUITE/CONDITION"),
        ("sim://street-v1/sunny", "day, dusk, night"),
        ("sim://street-v1/day/extra", "SUITE/CONDITION"),
        ("sim://street-v1/day?sed=7", "unknown sed"),
        ("sim://street-v1/day?seed=7&colour=1&sound=2", "unknown colour, sound"),
        ("sim://street-v1/day?seed=1&seed=2", "twice"),
        ("sim://street-v1/day?seed=-1", "seed"),
        ("sim://street-v1/day?seed=seven", "seed"),
        ("sim://street-v1/day?seed=", "seed"),
        ("sim://street-v1/day?start=1.5", "start"),
        ("sim://street-v1/day?fps=0", "fps"),
        ("sim://street-v1/day?fps=nan", "fps"),
        ("sim://street-v1/day?fps=fast", "fps"),
        ("sim://street-v1/day?size=640", "size"),
        ("sim://street-v1/day?size=640x", "size"),
        ("sim://street-v1/day?size=0x0", "size"),
        ("sim://street-v1/day?size=99999x99999", "size"),
        ("sim://street-v1/day?split=train", "val, test"),
    ],
)
def test_address_that_is_wrong_is_refused_by_name(address: str, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        parse_address(address)


def test_unknown_suite_is_refused_when_the_source_is_made() -> None:
    with pytest.raises(RejectedError, match="street-v1"):
        SimSource("sim://street-v0/day")


def test_test_split_is_delivered_pixel_for_pixel() -> None:
    clip = load_suite("street-v1").clip("test", "fog", 5)
    with SimSource("sim://street-v1/fog?split=test&seed=5&start=30") as source:
        for i in (30, 31):
            pixels, objects, time_s = source.read()
            frame = clip.frame(i)
            assert np.array_equal(pixels, frame.pixels)
            assert objects == frame.objects
            assert time_s == frame.time_s


def test_camera_goes_on_to_its_next_clip_and_street_time_goes_on_too() -> None:
    source = SimSource("sim://street-v1/fog?seed=4&start=299")
    first, _, first_s = source.read()
    second, _, second_s = source.read()
    assert (first_s, second_s) == (29.9, 30.0)
    suite = load_suite("street-v1")
    assert np.array_equal(first, suite.camera_clip("fog", 4, 0).frame(299).pixels)
    assert np.array_equal(second, suite.camera_clip("fog", 4, 1).frame(0).pixels)


def test_split_clips_come_round_again() -> None:
    source = SimSource("sim://street-v1/fog?split=val&seed=11&start=300")
    pixels, _, _ = source.read()
    assert np.array_equal(pixels, load_suite("street-v1").clip("val", "fog", 0).frame(0).pixels)


def test_two_cameras_see_different_streets() -> None:
    a, _, _ = SimSource("sim://street-v1/fog?seed=1").read()
    b, _, _ = SimSource("sim://street-v1/fog?seed=2").read()
    assert not np.array_equal(a, b)


def test_size_scales_pixels_and_boxes_alike() -> None:
    whole, objects, _ = SimSource("sim://street-v1/fog?split=val&seed=1&start=50").read()
    half, smaller, _ = SimSource("sim://street-v1/fog?split=val&seed=1&start=50&size=480x270").read()
    assert whole.shape == (540, 960, 3)
    assert half.shape == (270, 480, 3)
    assert objects
    assert len(objects) == len(smaller)
    for a, b in zip(objects, smaller, strict=True):
        assert np.allclose(np.array(a.box_xyxy) / 2, b.box_xyxy)
        assert (a.track_id, a.label, a.ignore) == (b.track_id, b.label, b.ignore)


def test_fps_sets_how_much_street_time_passes_between_reads() -> None:
    source = SimSource("sim://street-v1/fog?seed=2&fps=2.5")
    times = [time_s for _, (_, _, time_s) in zip(range(3), source, strict=False)]
    assert times == [0.0, 0.4, 0.8]
