"""Questions that show parts of a frame, asked over a socket: answered about the frame, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from fovea.core.detections import Detections
from fovea.core.errors import FoveaError, Incompatible, Malformed
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.mosaic import Mosaic, Tile
from fovea.core.routing import Tier
from fovea.runtime.images import encode_png
from fovea.serving.answerer import MergedAnswer
from fovea.serving.server import ServerSettings
from protos.calls import DetectQuestion, ServiceLimits
from tests.builders import model_ref, scene
from tests.contract.serving_thread import served
from tests.contract.test_answerer import LABELS, asked
from tests.fakes import FakeDetector

FRAME = ImageSize(320, 240)
MOSAIC = Mosaic(FRAME, ImageSize(80, 64), (Tile(160, 96, 32, 64, 0, 0), Tile(32, 32, 32, 32, 48, 0)))
TAKING = ServerSettings(ServiceLimits(takes_mosaics=True))
PICTURE = MOSAIC.cut(scene(240, 320))


def seeing(*boxes: tuple[float, float, float, float]) -> FakeDetector:
    return FakeDetector(lambda _: [(box, 0.9, 0) for box in boxes], LABELS)


def own_answer(size: ImageSize = FRAME) -> TierAnswer:
    boxes = np.array([[5, 5, 25, 25], [164, 100, 180, 150]], np.float32)
    seen = Detections(
        boxes, np.array([0.8, 0.4], np.float32), np.zeros(2, np.int32), size, model_ref("student")
    )
    return TierAnswer(Tier.AGENT, seen, LABELS)


def test_boxes_of_the_mosaic_come_back_in_the_frame_merged_where_it_was_looked() -> None:
    detector = seeing((4.0, 4.0, 20.0, 54.0), (54.0, 6.0, 70.0, 26.0))
    with served(detector, TAKING, answerer=MergedAnswer(Tier.EDGE)) as server:
        question = DetectQuestion(encode_png(PICTURE), mosaic=MOSAIC, answers=(own_answer(),))
        answer = asked(server, question)
    rounded = [
        (*np.round(box).astype(int).tolist(), round(float(score), 3))
        for box, score in zip(answer.detections.boxes_xyxy, answer.detections.scores, strict=True)
    ]
    assert sorted(rounded) == [
        (5, 5, 25, 25, 0.8),  # the camera's alone: nobody looked there
        (38, 38, 54, 58, round(3 * 0.9 / (3 + 0.7), 3)),  # new
        (164, 100, 180, 150, round((0.4 + 3 * 0.9) / 4, 3)),  # both
    ]
    assert answer.detections.image_size == FRAME
    [agent, edge] = answer.answers
    assert agent.is_whole and edge.looked_xyxy is not None
    assert edge.looked_xyxy.tolist() == MOSAIC.regions_xyxy.tolist()


@pytest.mark.parametrize(
    ("settings", "question", "error", "told"),
    [
        (
            ServerSettings(),
            DetectQuestion(PICTURE, mosaic=MOSAIC),
            Incompatible,
            "expected a whole frame, got a mosaic",
        ),
        (
            TAKING,
            DetectQuestion(encode_png(scene(48, 64)), mosaic=MOSAIC),
            Malformed,
            "expected a mosaic of 80x64 px, got 64x48 px",
        ),
    ],
)
def test_a_mosaic_that_cannot_be_answered_is_refused_before_anybody_looks(
    settings: ServerSettings, question: DetectQuestion, error: type[FoveaError], told: str
) -> None:
    detector = seeing()
    with (
        served(detector, settings, answerer=MergedAnswer(Tier.EDGE)) as server,
        pytest.raises(error, match=told),
    ):
        asked(server, question)
    assert detector.batch_sizes == []


def test_a_server_from_before_mosaics_refuses_what_it_would_misread() -> None:
    """It knows no layout, so it takes the picture for a frame: but then the camera's answer is about another one."""
    with served(seeing((4.0, 4.0, 20.0, 54.0)), answerer=MergedAnswer(Tier.EDGE)) as server:
        as_it_reads = DetectQuestion(encode_png(PICTURE), answers=(own_answer(),))
        with pytest.raises(Malformed, match="expected answers about 80x64 px"):
            asked(server, as_it_reads)
