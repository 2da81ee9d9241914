"""An edge server as it is built, asked about parts of a frame over the agent's link."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from edge_server.bootstrap import build
from edge_server.config import EdgeConfig
from fovea import zoo
from fovea.core.frame import size_of
from fovea.core.hard_case import TierAnswer
from fovea.core.regions import plan_mosaic
from fovea.core.routing import Tier
from fovea.link.upstream import Upstream
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.serving.server import serve
from fovea.sim.suite import load_suite
from protos.calls import DetectAnswer, DetectQuestion

WAIT_S = 60.0


def test_a_street_frame_is_answered_by_its_doubtful_parts() -> None:
    pixels = load_suite("street-v1").clip("test", "day", 3).frame(30).pixels
    camera = OnnxDetector.open(Bundle.open(zoo.path_of("street-student-int8")), "cpu", threads=1)
    own = camera.detect([pixels])[0].detections
    # One doubtful place is all that is looked at, whatever this frame has.
    lost = np.array([[640, 256, 704, 320]], np.float32)
    mosaic = plan_mosaic(own.above(0.6), lost)
    assert mosaic is not None
    question = DetectQuestion(
        mosaic.cut(pixels), mosaic=mosaic, answers=(TierAnswer(Tier.AGENT, own, camera.labels),)
    )
    camera.close()
    answer = asyncio.run(_asked(question))
    assert answer.detections.image_size == size_of(pixels)
    [agent, edge] = answer.answers
    assert agent.is_whole and edge.looked_xyxy is not None
    x1, y1, x2, y2 = edge.looked_xyxy[0]
    for box in edge.detections.boxes_xyxy:
        assert x1 <= box[0] and y1 <= box[1] and box[2] <= x2 and box[3] <= y2
    assert len(answer.detections) >= len(own.above(0.6)), "what was sure is still told"


async def _asked(question: DetectQuestion) -> DetectAnswer:
    parts = build(EdgeConfig(bundle="zoo:street-edge", device="cpu", threads=1))
    try:
        async with serve(parts.detector, settings=parts.settings, answerer=parts.answerer) as running:
            link = Upstream(running.address)
            try:
                ends_s = time.monotonic() + WAIT_S
                while not link.takes_mosaics:
                    assert time.monotonic() < ends_s, "the edge never said that it takes mosaics"
                    await asyncio.sleep(0.02)
                return await asyncio.to_thread(link.ask, question, WAIT_S)
            finally:
                await asyncio.to_thread(link.close)
    finally:
        parts.detector.close()
