"""Figures of questions about parts of a frame against those about all of it."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.truth import GroundTruth
from fovea.bench.regions import WAYS, RegionFrame, RegionsBenchSettings, Sent, figures_of
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.mosaic import Mosaic, Tile
from tests.builders import model_ref

SIZE = ImageSize(320, 200)
MOSAIC = Mosaic(SIZE, ImageSize(80, 80), (Tile(0, 0, 80, 80, 0, 0),))
TRUE = (10.0, 10.0, 50.0, 50.0)


def said(*boxes: tuple[float, float, float, float]) -> Detections:
    array = np.array(boxes, np.float32).reshape(-1, 4)
    return Detections(array, np.full(len(array), 0.9), np.zeros(len(array), np.int32), SIZE, model_ref("m"))


def frame(number: int, gain: float, is_in_parts: bool) -> RegionFrame:
    """The camera sees nothing, the edge what there is; the mosaic costs a quarter."""
    truth = GroundTruth(np.array([TRUE], np.float32), np.array([0], np.int32), np.array([False]))
    sent = {way: Sent(1000, 40.0, said(TRUE)) for way in WAYS}
    if is_in_parts:
        sent["mosaic"] = Sent(250, 30.0, said(TRUE))
    return RegionFrame(f"clip-{number}", truth, said(), gain, sent, MOSAIC if is_in_parts else None)


def test_bytes_and_ap_are_of_the_frames_that_the_gate_would_ask_about() -> None:
    frames = [frame(number, gain=float(number), is_in_parts=number >= 2) for number in range(4)]
    figures = figures_of(frames, asked_pct=50.0)
    assert figures["ap.camera"] == 0.0 and figures["mosaics_pct"] == 50.0
    assert figures["mosaic_pixels_pct"] == pytest.approx(10.0) and figures["regions_per_mosaic"] == 1.0
    assert (figures["bytes_per_question.whole"], figures["bytes_per_question.mosaic"]) == (1000.0, 250.0)
    assert figures["all.bytes_per_question.mosaic"] == pytest.approx(625.0)
    assert figures["ap.merged.whole"] == figures["ap.merged.mosaic"] == pytest.approx(0.5, abs=0.01)
    assert figures["bytes_per_ap_point.whole"] == pytest.approx(4 * figures["bytes_per_ap_point.mosaic"])
    assert figures["all.edge_cpu_ms.mosaic"] == pytest.approx(35.0)
    assert figures["ap.mosaic_minus.whole"] == figures["ap.mosaic_minus_low.whole"] == 0.0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(Malformed, match="at least one frame"):
        figures_of([], 30.0)
    with pytest.raises(Malformed, match="1, 2, 4 or 8 frames"):
        RegionsBenchSettings(per_clip=3)
    with pytest.raises(Malformed, match="asked_pct"):
        RegionsBenchSettings(asked_pct=0.0)
