"""The least that looks at frames: letterbox, network, decode and NMS in a loop; what the agent is measured against.

    python -m fovea.bench.bare_loop VIDEO BUNDLE SECONDS

Prints one JSON object: frames per second and CPU time over frames that lie in memory, CPU time of its steps, and
what reading the frames from the file adds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, cycle, pairwise, repeat
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates
from fovea.core.errors import Malformed
from fovea.core.letterbox import Letterbox
from fovea.core.yolo import candidates_of
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import decoder_of, nms_for_answers
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


class BareLook:
    """Letterbox, network, decode, NMS, and nothing else; candidates that are in no answer are left out, as the agent
    leaves them out."""

    def __init__(self, bundle: Bundle) -> None:
        manifest = bundle.manifest
        self._session = open_session(bundle.model, "cpu", 1)
        self._preprocessor, self._labels = Preprocessor(manifest.input), manifest.label_set
        self._nms, self._decode = nms_for_answers(bundle), decoder_of(manifest)
        self._name, self._outputs = manifest.input.tensor, manifest.output.tensors

    def __call__(self, pixels: ImageArray) -> Candidates:
        tensor, (letterbox,) = self._preprocessor.fill([pixels])
        return self._boxes(self._session.run({self._name: tensor}, self._outputs), letterbox)

    def parts_ms(self, frames: Iterable[ImageArray]) -> dict[str, float]:
        """CPU time of the steps, the median of some frames."""
        took_ms: list[tuple[float, ...]] = []
        for pixels in frames:
            begun_ns = time.thread_time_ns()
            tensor, (letterbox,) = self._preprocessor.fill([pixels])
            filled_ns = time.thread_time_ns()
            outputs = self._session.run({self._name: tensor}, self._outputs)
            ran_ns = time.thread_time_ns()
            self._boxes(outputs, letterbox)
            ends_ns = (filled_ns, ran_ns, time.thread_time_ns())
            took_ms.append(tuple((end - begin) / 1e6 for begin, end in pairwise((begun_ns, *ends_ns))))
        return dict(zip(("letterbox", "run", "decode"), np.median(took_ms, axis=0).tolist(), strict=True))

    def _boxes(self, outputs: list[NDArray[Any]], letterbox: Letterbox) -> Candidates:
        raw = self._decode([each[0] for each in outputs], self._nms.min_score)
        return candidates_of(raw, letterbox, self._labels, self._nms)


def main(arguments: list[str]) -> None:
    """Measures and prints."""
    video, bundle, seconds = Path(arguments[0]), Bundle.open(Path(arguments[1])), float(arguments[2])
    cv2.setNumThreads(1)
    look = BareLook(bundle)
    kept = [pixels for pixels, _ in zip(read_video(video), range(_IN_MEMORY), strict=False)]
    fps, cpu_ms = _measured(cycle(kept), look, seconds)
    read_again = chain.from_iterable(read_video(path) for path in repeat(video))
    fps_reading, reading_cpu_ms = _measured(read_again, look, seconds / 2)
    parts_ms = look.parts_ms(kept) | {"reading": max(reading_cpu_ms - cpu_ms, 0.0)}
    told = {"fps": fps, "fps_reading": fps_reading, "cpu_ms_per_frame": round(cpu_ms, 3), "cpu_ms": parts_ms}
    print(json.dumps(told))


def _measured(frames: Iterator[ImageArray], look: BareLook, seconds: float) -> tuple[float, float]:
    """Frames per second, and CPU time of a frame in ms."""
    cpu_s = time.process_time()
    fps = frames_per_s(frames, look, seconds)
    return fps, 1000 * (time.process_time() - cpu_s) / (fps * seconds + _WARM_UP_FRAMES)


if __name__ == "__main__":
    main(sys.argv[1:])
