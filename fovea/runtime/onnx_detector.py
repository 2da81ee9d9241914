"""A bundle that looks at frames: ONNX Runtime behind the Detector contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fovea.core.answering import raw_score_for
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import LOWEST_SCORE, Inference, ModelRef
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.yolo import (
    Layout,
    RawBoxes,
    decode_cut,
    decode_end_to_end,
    decode_one_to_many,
    decode_yolox,
)
from fovea.runtime.bundle import Bundle
from fovea.runtime.graph_check import check_graph, check_outputs, expected_input_shape
from fovea.runtime.manifest import BatchMode, BundleManifest
from fovea.runtime.ort import OrtSession, open_session
from fovea.runtime.pipeline import DetectionPipeline, Recipe, StageTimings

LARGEST_BATCH = 16
"""More frames than this are run in several batches: memory grows with the batch, speed hardly does."""
_HAIR = 0.999
"""Rounding between a logit and its score must not decide."""


class OnnxDetector:
    """Runs the model of a bundle. One caller at a time."""

    def __init__(self, bundle: Bundle, network: OnnxNetwork, nms: NmsSettings) -> None:
        manifest = bundle.manifest
        self._manifest = manifest
        self._network = network
        self._recipe = Recipe(
            ref=bundle.ref,
            labels=manifest.label_set,
            input=manifest.input,
            nms=nms,
            calibration=bundle.calibration(),
            answer_min_score=manifest.answer_min_score,
            tta=manifest.tta,
            largest_batch=LARGEST_BATCH if manifest.input.batch is BatchMode.DYNAMIC else 1,
        )
        self._pipeline = DetectionPipeline(self._recipe, network)

    @classmethod
    def open(
        cls, bundle: Bundle | Path, device: str = "auto", threads: int = 1, nms: NmsSettings | None = None
    ) -> Self:
        """Loads a bundle, checks that graph and manifest agree and looks at one empty frame.

        `nms` replaces the manifest's settings. Raises what `Bundle.open` and `open_session` raise, Incompatible when
        the graph is not what the manifest says, and DetectorFailed when it does not run.
        """
        if isinstance(bundle, Path):
            bundle = Bundle.open(bundle)
        session = open_session(bundle.model, device, threads)
        check_graph(session, bundle.manifest)
        network = OnnxNetwork(session, bundle.manifest)
        network.first_run()
        return cls(bundle, network, nms or bundle.manifest.nms.settings())

    @property
    def ref(self) -> ModelRef:
        return self._recipe.ref

    @property
    def labels(self) -> LabelSet:
        return self._recipe.labels

    @property
    def manifest(self) -> BundleManifest:
        return self._manifest

    @property
    def device(self) -> str:
        """Where it runs: `cpu` or `cuda:N`."""
        return self._network.device

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        """See `fovea.core.ports.Detector`."""
        return self._pipeline.detect_timed(frames)[0]

    def detect_timed(self, frames: Sequence[ImageArray]) -> tuple[list[Inference], StageTimings]:
        """`detect`, and where the time went."""
        return self._pipeline.detect_timed(frames)

    def close(self) -> None:
        self._pipeline.close()


class OnnxNetwork:
    """The graph of a bundle as the pipeline's network."""

    def __init__(self, session: OrtSession, manifest: BundleManifest) -> None:
        self._session = session
        self._manifest = manifest
        self._decode = decoder_of(manifest)

    @property
    def device(self) -> str:
        return self._session.device

    def run(self, tensor: NDArray[Any]) -> list[tuple[FloatArray, ...]]:
        outputs = self._run_raw(tensor)
        return [tuple(output[row] for output in outputs) for row in range(len(tensor))]

    def decode(self, output: tuple[FloatArray, ...], min_score: float) -> RawBoxes:
        return self._decode(output, min_score)

    def close(self) -> None:
        self._session.close()

    def first_run(self) -> None:
        """Runs zeros and checks the shapes that come out. Raises Incompatible, DetectorFailed."""
        spec = self._manifest.input
        shape = [dim or 1 for dim in expected_input_shape(spec)]
        outputs = self._run_raw(np.zeros(shape, spec.dtype.value))
        check_outputs([output.shape for output in outputs], self._manifest)

    def _run_raw(self, tensor: NDArray[Any]) -> list[FloatArray]:
        outputs = self._session.run({self._manifest.input.tensor: tensor}, self._manifest.output.tensors)
        return [np.asarray(output, np.float32) for output in outputs]


def nms_for_answers(bundle: Bundle, looked_at_from: float = 1.0) -> NmsSettings:
    """The bundle's suppression without the candidates that are in no answer: every answer stays what it was, for a
    third of the time in decode and suppression. For callers that look at no candidate weaker than
    `looked_at_from` either.
    """
    manifest, settings = bundle.manifest, bundle.manifest.nms.settings()
    if manifest.tta:  # two weak looks at one thing may make a strong one
        return settings
    answered = raw_score_for(bundle.calibration(), manifest.label_set.ids, manifest.answer_min_score)
    needed = min(answered, looked_at_from) * _HAIR
    return replace(settings, min_score=max(settings.min_score, needed))


def decoder_of(manifest: BundleManifest) -> Callable[[Sequence[FloatArray], float], RawBoxes]:
    """What makes raw boxes of the outputs of one frame (without the batch axis) and the lowest score that is wanted,
    by the layout that the manifest names."""
    layout, strides, size = manifest.output.layout, manifest.output.strides, manifest.input.size
    class_count = len(manifest.labels)
    match layout:
        case Layout.CUT:
            return lambda outputs, lowest: decode_cut(outputs[0], outputs[1], size, strides, lowest)
        case Layout.ONE_TO_MANY:
            return lambda outputs, lowest: decode_one_to_many(outputs[0], lowest)
        case Layout.END_TO_END:
            return lambda outputs, lowest: decode_end_to_end(outputs[0], class_count, lowest)
        case Layout.YOLOX:
            return lambda outputs, lowest: decode_yolox(outputs[0], size, strides, lowest)


def decode(
    outputs: Sequence[FloatArray], manifest: BundleManifest, min_score: float = LOWEST_SCORE
) -> RawBoxes:
    """Raw boxes of one frame, once; see `decoder_of`."""
    return decoder_of(manifest)(outputs, min_score)
