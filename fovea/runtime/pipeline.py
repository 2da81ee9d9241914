"""The way of a frame through any local network: check, prepare, run, decode, suppress, map back, calibrate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, Inference, ModelRef
from fovea.core.errors import DetectorFailed, Malformed
from fovea.core.frame import checked_pixels
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox
from fovea.core.scores import ScoreCalibration
from fovea.core.yolo import RawBoxes, candidates_of
from fovea.runtime.manifest import InputSpec, View
from fovea.runtime.preprocess import Preprocessor
from fovea.runtime.two_views import merge_views


class Network(Protocol):
    """What a runtime adds to the pipeline: running a tensor, and reading its own outputs."""

    def run(self, tensor: NDArray[Any]) -> Sequence[Any]:
        """One raw output per frame of the input tensor. Raises DetectorFailed."""
        ...

    def decode(self, output: Any, min_score: float) -> RawBoxes:
        """Boxes in px of the input, with scores. Raises Malformed for an output that makes no sense."""
        ...

    def close(self) -> None:
        """Frees the network; twice is fine."""
        ...


@dataclass(frozen=True, slots=True)
class StageTimings:
    """Milliseconds that one call of a detector spent in each stage, all its frames and views together."""

    preprocess_ms: float
    run_ms: float
    decode_ms: float

    @property
    def total_ms(self) -> float:
        return self.preprocess_ms + self.run_ms + self.decode_ms


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything about a detector but its network. At most `largest_batch` frames are run together."""

    ref: ModelRef
    labels: LabelSet
    input: InputSpec
    nms: NmsSettings
    calibration: ScoreCalibration
    answer_min_score: float
    tta: tuple[View, ...] = ()
    largest_batch: int = 1


class DetectionPipeline:
    """Takes frames through a network. One caller at a time."""

    def __init__(self, recipe: Recipe, network: Network) -> None:
        self._recipe = recipe
        self._network = network
        self._preprocessor = Preprocessor(recipe.input)
        self._is_closed = False

    def detect_timed(self, frames: Sequence[ImageArray]) -> tuple[list[Inference], StageTimings]:
        """See `fovea.core.ports.Detector.detect`; also says where the time went."""
        if self._is_closed:
            raise DetectorFailed(f"{self._recipe.ref}: detect was called after close")
        checked = [checked_pixels(pixels) for pixels in frames]
        inferences: list[Inference] = []
        spent_s = np.zeros(3)
        for start in range(0, len(checked), self._recipe.largest_batch):
            candidates = self._look(checked[start : start + self._recipe.largest_batch], spent_s)
            begun = perf_counter()
            inferences += [self._answer(seen) for seen in candidates]
            spent_s[2] += perf_counter() - begun
        preprocess_ms, run_ms, decode_ms = (1000.0 * spent_s).tolist()
        return inferences, StageTimings(preprocess_ms, run_ms, decode_ms)

    def close(self) -> None:
        self._is_closed = True
        self._network.close()

    def _look(self, frames: list[ImageArray], spent_s: NDArray[np.float64]) -> list[Candidates]:
        plain = self._look_once(frames, spent_s, flipped=False)
        if View.HFLIP not in self._recipe.tta:
            return plain
        mirrored = self._look_once(frames, spent_s, flipped=True)
        most = self._recipe.nms.max_boxes
        return [merge_views(a, b, most) for a, b in zip(plain, mirrored, strict=True)]

    def _look_once(
        self, frames: list[ImageArray], spent_s: NDArray[np.float64], flipped: bool
    ) -> list[Candidates]:
        begun = perf_counter()
        tensor, letterboxes = self._preprocessor.fill(frames, flipped)
        filled = perf_counter()
        outputs = self._network.run(tensor)
        ran = perf_counter()
        seen = [self._decode(output, box) for output, box in zip(outputs, letterboxes, strict=True)]
        spent_s += (filled - begun, ran - filled, perf_counter() - ran)
        return seen

    def _decode(self, output: Any, letterbox: Letterbox) -> Candidates:
        recipe = self._recipe
        try:
            raw = self._network.decode(output, recipe.nms.min_score)
            return candidates_of(raw, letterbox, recipe.labels, recipe.nms)
        except Malformed as error:
            # The frame was checked at the door: what is malformed here is what the model said.
            raise DetectorFailed(f"{recipe.ref}: {error}") from error

    def _answer(self, candidates: Candidates) -> Inference:
        recipe = self._recipe
        return answer(candidates, recipe.calibration, recipe.answer_min_score, recipe.ref)
