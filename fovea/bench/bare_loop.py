"""The least that looks at frames: letterbox, network, decode and NMS in a loop; what the agent is measured against.

    python -m fovea.bench.bare_loop VIDEO BUNDLE SECONDS

Prints one JSON object: frames per second and CPU time over frames that lie in memory, and frames per second with
reading them from the file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat
from pathlib import Path

import cv2

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.yolo import candidates_of
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import decode
from fovea.runtime.ort import open_session
from fovea.runtime.preprocess import Preprocessor

_WARM_UP_FRAMES = 20
_IN_MEMORY = 60
"""Frames that are kept: more than any cache holds, little enough for a small machine."""


def read_video(path: Path) -> Iterator[ImageArray]:
    """Each frame once, on one thread. Raises Malformed for what is no video."""
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    try:
        if not capture.isOpened():
            raise Malformed(f"{path}: not a video that can be read")
        while True:
            is_there, pixels = capture.read()
            if not is_there:
                return
            yield pixels
    finally:
        capture.release()


def frames_per_s(frames: Iterator[ImageArray], look: Callable[[ImageArray], object], seconds: float) -> float:
    """How many of endless `frames` are looked at in a second, after some to get warm."""
    for _ in range(_WARM_UP_FRAMES):
        look(next(frames))
    begun_s, count = time.perf_counter(), 0
    while (spent_s := time.perf_counter() - begun_s) < seconds:
        look(next(frames))
        count += 1
    return count / spent_s


def bare_look(bundle: Bundle) -> Callable[[ImageArray], object]:
    """Letterbox, network, decode, NMS, and nothing else."""
    manifest = bundle.manifest
    session = open_session(bundle.model, "cpu", 1)
    preprocessor, labels, nms = Preprocessor(manifest.input), manifest.label_set, manifest.nms.settings()
    name, outputs = manifest.input.tensor, manifest.output.tensors

    def look(pixels: ImageArray) -> object:
        tensor, (letterbox,) = preprocessor.fill([pixels])
        raw = decode([each[0] for each in session.run({name: tensor}, outputs)], manifest, nms.min_score)
        return candidates_of(raw, letterbox, labels, nms)

    return look


def main(arguments: list[str]) -> None:
    """Measures and prints."""
    video, bundle, seconds = Path(arguments[0]), Bundle.open(Path(arguments[1])), float(arguments[2])
    cv2.setNumThreads(1)
    look = bare_look(bundle)
    kept = [pixels for pixels, _ in zip(read_video(video), range(_IN_MEMORY), strict=False)]
    cpu_s = time.process_time()
    in_memory = frames_per_s(cycle(kept), look, seconds)
    cpu_ms = 1000 * (time.process_time() - cpu_s) / (in_memory * seconds + _WARM_UP_FRAMES)
    read_again = chain.from_iterable(read_video(path) for path in repeat(video))
    reading = frames_per_s(read_again, look, seconds / 2)
    print(json.dumps({"fps": in_memory, "fps_reading": reading, "cpu_ms_per_frame": round(cpu_ms, 3)}))


if __name__ == "__main__":
    main(sys.argv[1:])
