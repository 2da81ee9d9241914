"""Detectors that run on torch, for servers only: torchvision's by name, Ultralytics checkpoints by file."""

from __future__ import annotations

import hashlib
import importlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import LOWEST_SCORE, Inference, ModelRef, ScoreKind
from fovea.core.errors import DetectorFailed, Incompatible, Malformed, NotFound, Unavailable
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Placement
from fovea.core.scores import ScoreCalibration
from fovea.core.yolo import RawBoxes, decode_end_to_end, decode_one_to_many
from fovea.runtime.manifest import BatchMode, InputSpec, View
from fovea.runtime.ort import checked_device
from fovea.runtime.pipeline import DetectionPipeline, Network, Recipe, StageTimings
from fovea.runtime.wrong_file import explain_failed_download
from fovea.serving.vendor_env import load_ultralytics

LARGEST_BATCH = 8
_SKIPPED_CATEGORIES: Final = ("__background__", "N/A")
_MULTIPLE_PX = 32
_LOAD_ERRORS = (
    RuntimeError, TypeError, ValueError, KeyError, AttributeError, EOFError, ImportError, OSError,
    pickle.UnpicklingError,
)  # fmt: skip


class TorchDetector:
    """A torch network behind the Detector contract. Frames are letterboxed to one input size, so a frame's answer
    does not depend on the sizes of its neighbours. One caller at a time."""

    def __init__(self, recipe: Recipe, network: Network) -> None:
        self._recipe = recipe
        self._pipeline = DetectionPipeline(recipe, network)

    @classmethod
    def torchvision(
        cls,
        architecture: str,
        weights: Path | None = None,
        categories: Sequence[str] | None = None,
        device: str = "auto",
        input_size: ImageSize | None = None,
        answer_min_score: float = 0.25,
        calibration: ScoreCalibration | None = None,
        tta: tuple[View, ...] = (),
    ) -> Self:
        """A torchvision detector such as `fasterrcnn_resnet50_fpn_v2`.

        `weights` is a state dict on disk; None takes the published COCO weights from torchvision's cache or site.
        `categories` names the channels, background first; None is the COCO list of the published weights. Raises
        NotFound (architecture, file), Malformed (not such weights), Unavailable (site cannot be reached),
        Incompatible (no torch, no such device).
        """
        network = _load_torchvision(architecture, weights, categories, _torch_device(device), input_size)
        ref = _ref_of(architecture, network.model)
        return cls(_recipe(ref, network, answer_min_score, calibration, tta), network)

    @classmethod
    def ultralytics(
        cls,
        checkpoint: Path,
        device: str = "auto",
        input_size: ImageSize = ImageSize(640, 640),
        answer_min_score: float = 0.25,
        calibration: ScoreCalibration | None = None,
        tta: tuple[View, ...] = (),
        config_folder: Path | None = None,
    ) -> Self:
        """An Ultralytics detection checkpoint (YOLO or RT-DETR, `.pt`), with the one-to-many head where it has both.

        Raises NotFound, Malformed (not such a checkpoint), Incompatible (no torch, no such device, other task).
        """
        network = _load_ultralytics_network(checkpoint, _torch_device(device), input_size, config_folder)
        ref = _ref_of(checkpoint.stem, network.model)
        return cls(_recipe(ref, network, answer_min_score, calibration, tta), network)

    @property
    def ref(self) -> ModelRef:
        return self._recipe.ref

    @property
    def labels(self) -> LabelSet:
        return self._recipe.labels

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        """See `fovea.core.ports.Detector`."""
        return self._pipeline.detect_timed(frames)[0]

    def detect_timed(self, frames: Sequence[ImageArray]) -> tuple[list[Inference], StageTimings]:
        """`detect`, and where the time went."""
        return self._pipeline.detect_timed(frames)

    def close(self) -> None:
        self._pipeline.close()


class _TorchNetwork(ABC):
    """A module on a device, and what the pipeline has to know of it."""

    def __init__(
        self, model: Any, device: str, labels: LabelSet, size: ImageSize, placement: Placement
    ) -> None:
        self.model = model.eval().to(device)
        self.labels = labels
        self.size = size
        self.placement = placement
        self._device = device

    def run(self, tensor: NDArray[Any]) -> list[Any]:
        import torch

        if self.model is None:
            raise DetectorFailed("the model was closed")
        try:
            with torch.inference_mode():
                return self._forward(torch.from_numpy(tensor).to(self._device))
        except RuntimeError as error:
            raise DetectorFailed(f"the model did not run: {str(error).splitlines()[0][:300]}") from error

    def close(self) -> None:
        self.model = None

    @abstractmethod
    def _forward(self, batch: Any) -> list[Any]:
        """One output per image of the batch, on the CPU."""

    @abstractmethod
    def decode(self, output: Any, min_score: float) -> RawBoxes:
        """See `fovea.runtime.pipeline.Network`."""


class _TorchvisionNetwork(_TorchNetwork):
    """Torchvision answers boxes, scores and category numbers after its own suppression."""

    def __init__(self, model: Any, device: str, categories: Sequence[str], size: ImageSize) -> None:
        kept = [index for index, name in enumerate(categories) if name not in _SKIPPED_CATEGORIES]
        labels = LabelSet.from_names(categories[index] for index in kept)
        super().__init__(model, device, labels, size, Placement.CENTER)
        self._channel_of = np.full(len(categories), -1)
        self._channel_of[kept] = np.arange(len(kept))

    def _forward(self, batch: Any) -> list[Any]:
        answers = self.model(list(batch))
        return [
            {key: answer[key].cpu().numpy() for key in ("boxes", "scores", "labels")} for answer in answers
        ]

    def decode(self, output: dict[str, NDArray[Any]], min_score: float) -> RawBoxes:
        channels = self._channel_of[output["labels"]]
        kept = np.flatnonzero((channels >= 0) & (output["scores"] >= min_score))
        scores = np.zeros((len(kept), len(self.labels)), np.float32)
        scores[np.arange(len(kept)), channels[kept]] = np.clip(output["scores"][kept], 0, 1)
        return RawBoxes(output["boxes"][kept].astype(np.float32), scores, ScoreKind.ONE_PER_BOX)


class _UltralyticsNetwork(_TorchNetwork):
    """Ultralytics' heads: class scores for every anchor, a list of the best boxes, or RT-DETR's queries."""

    def __init__(self, model: Any, device: str, labels: LabelSet, size: ImageSize) -> None:
        head = model.model[-1]
        self._is_rtdetr = type(head).__name__ == "RTDETRDecoder"
        self._is_end_to_end = bool(getattr(head, "end2end", False))
        # RT-DETR was trained on stretched frames.
        placement = Placement.STRETCH if self._is_rtdetr else Placement.CENTER
        super().__init__(model, device, labels, size, placement)

    def _forward(self, batch: Any) -> list[Any]:
        answer = self.model(batch)
        predictions = answer[0] if isinstance(answer, tuple | list) else answer
        return list(predictions.float().cpu().numpy())

    def decode(self, output: FloatArray, min_score: float) -> RawBoxes:
        if self._is_rtdetr:
            return decode_end_to_end(self._corners_in_px(output), len(self.labels), min_score)
        if self._is_end_to_end:
            return decode_end_to_end(output, len(self.labels), min_score)
        return decode_one_to_many(output, min_score)

    def _corners_in_px(self, rows: FloatArray) -> FloatArray:
        """RT-DETR's cx, cy, w, h in 0..1, score, class with the box as corners in px."""
        scale = np.array([self.size.width, self.size.height], np.float32)
        centre, half = rows[:, :2] * scale, rows[:, 2:4] * scale / 2
        return np.concatenate([centre - half, centre + half, rows[:, 4:]], axis=1)


def _recipe(
    ref: ModelRef,
    network: _TorchNetwork,
    answer_min_score: float,
    calibration: ScoreCalibration | None,
    tta: tuple[View, ...],
) -> Recipe:
    return Recipe(
        ref=ref,
        labels=network.labels,
        input=InputSpec(
            width=network.size.width,
            height=network.size.height,
            placement=network.placement,
            batch=BatchMode.DYNAMIC,
        ),
        nms=NmsSettings(),
        calibration=calibration or ScoreCalibration.identity(),
        answer_min_score=answer_min_score,
        tta=tta,
        largest_batch=LARGEST_BATCH,
    )


def _load_torchvision(
    architecture: str,
    weights: Path | None,
    categories: Sequence[str] | None,
    device: str,
    input_size: ImageSize | None,
) -> _TorchvisionNetwork:
    models = importlib.import_module("torchvision.models")
    known = models.list_models(module=models.detection, exclude=["keypoint*", "mask*"])
    if architecture not in known:
        raise NotFound(f"torchvision has no detector {architecture!r}; it has {', '.join(known)}")
    published = models.get_model_weights(architecture).DEFAULT
    names = list(categories or published.meta["categories"])
    try:
        state = published.get_state_dict(check_hash=True) if weights is None else _read_state(weights)
    except OSError as error:
        raise Unavailable(f"the published weights of {architecture} cannot be fetched: {error}") from error
    model = models.get_model(architecture, weights=None, weights_backbone=None, num_classes=len(names))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise Malformed(
            f"weights are not those of {architecture} with {len(names)} categories: {error}"
        ) from error
    size = input_size or _usual_size(model.transform)
    _fix_input(model, size)
    return _TorchvisionNetwork(model, device, names, size)


def _read_state(path: Path) -> Any:
    import torch

    _check_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except _LOAD_ERRORS as error:
        raise Malformed(f"{path.name} is no state dict: {_first_line(error)}") from error


def _usual_size(transform: Any) -> ImageSize:
    if transform.fixed_size is not None:
        return ImageSize(*transform.fixed_size)
    height, width = transform.min_size[-1], transform.max_size
    return ImageSize(_rounded_up(width), _rounded_up(height))


def _rounded_up(side_px: int) -> int:
    return -(-side_px // _MULTIPLE_PX) * _MULTIPLE_PX


def _fix_input(model: Any, size: ImageSize) -> None:
    """No resize of torchvision's own after ours, and boxes down to the lowest score that candidates keep."""
    transform = model.transform
    if transform.fixed_size is not None:
        transform.fixed_size = (size.width, size.height)
    transform.min_size, transform.max_size = (min(size.width, size.height),), max(size.width, size.height)
    judge = getattr(model, "roi_heads", model)
    judge.score_thresh, judge.detections_per_img = LOWEST_SCORE, NmsSettings().max_boxes


def _load_ultralytics_network(
    checkpoint: Path, device: str, size: ImageSize, config_folder: Path | None
) -> _UltralyticsNetwork:
    _check_file(checkpoint)
    if size.width % _MULTIPLE_PX or size.height % _MULTIPLE_PX:
        raise Malformed(f"input size: expected multiples of {_MULTIPLE_PX} px, got {size}")
    load_ultralytics(config_folder)
    from ultralytics.nn import tasks

    try:
        model, _ = tasks.load_checkpoint(checkpoint.absolute(), device="cpu")
        names = [model.names[channel] for channel in range(len(model.names))]
    except _LOAD_ERRORS as error:
        raise Malformed(f"{checkpoint.name} is no Ultralytics checkpoint: {_first_line(error)}") from error
    if getattr(model, "task", None) != "detect":
        raise Incompatible(f"{checkpoint.name}: expected task detect, got {getattr(model, 'task', None)}")
    if getattr(model.model[-1], "one2one_cv2", None) is None:
        # Fusing a model with two heads would throw the one-to-many head away.
        model = model.fuse(verbose=False)
    return _UltralyticsNetwork(model, device, LabelSet.from_names(names), size)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            wrong = explain_failed_download(file.read(1024))
    except FileNotFoundError as error:
        raise NotFound(f"no weights file {path}") from error
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from error
    if wrong is not None:
        raise Malformed(f"{path.name}: expected torch weights, got {wrong}")


def _torch_device(device: str) -> str:
    """The device to use; a CUDA device that is named has to be there."""
    wanted = checked_device(device)
    try:
        import torch
    except (ImportError, OSError) as error:
        raise Incompatible(f"torch cannot be loaded on this machine: {error}") from error
    if wanted == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and int(wanted[5:]) >= torch.cuda.device_count():
        raise Incompatible(f"device {wanted}: torch sees {torch.cuda.device_count()} CUDA devices")
    return wanted


def _ref_of(name: str, model: Any) -> ModelRef:
    """Names the weights themselves: the digest of every tensor in the order of their names."""
    digest = hashlib.sha256(name.encode())
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return ModelRef(name, digest.hexdigest()[:12], digest.hexdigest())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
