"""Ultralytics' own predict loop over a video, to measure the agent against.

    python -m fovea.bench.ultralytics_loop VIDEO ONNX HEIGHT WIDTH SECONDS

Prints one JSON object: frames per second, after a first pass over the video.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any


def _results(model: Any, video: str, size: tuple[int, int]) -> Iterator[Any]:
    while True:
        yield from model.predict(source=video, stream=True, imgsz=size, device="cpu", verbose=False)


def main(arguments: list[str]) -> None:
    """Measures and prints."""
    from fovea.serving.vendor_env import load_ultralytics

    load_ultralytics()
    import cv2
    import torch
    from ultralytics import YOLO

    video, weights, height, width, seconds = arguments
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    model = YOLO(weights, task="detect")
    results = _results(model, video, (int(height), int(width)))
    for _ in range(20):
        next(results)
    begun_s, count, boxes = time.perf_counter(), 0, 0
    while (spent_s := time.perf_counter() - begun_s) < float(seconds):
        boxes += len(next(results))
        count += 1
    print(json.dumps({"fps": count / spent_s, "boxes_per_frame": boxes / max(count, 1)}))


if __name__ == "__main__":
    main(sys.argv[1:])
