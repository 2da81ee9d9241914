"""The manifest of a bundle: everything that is needed to run one model, to judge it and to name it exactly."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fovea.core.detections import ModelRef
from fovea.core.errors import Incompatible, Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Placement
from fovea.core.yolo import Layout

SCHEMA_VERSION: Final = 1

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Version = Annotated[str, Field(pattern=r"^\d{1,6}(\.\d{1,6}){0,3}$")]
Side = Annotated[int, Field(ge=16, le=8192)]
Triple = tuple[float, float, float]


class TensorLayout(StrEnum):
    """Order of the axes of the model's input."""

    NCHW = "nchw"
    NHWC = "nhwc"


class InputDtype(StrEnum):
    """Number type of the model's input."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    UINT8 = "uint8"


class ColorOrder(StrEnum):
    """Order of the colour channels that the model was trained with."""

    RGB = "rgb"
    BGR = "bgr"


class BatchMode(StrEnum):
    """DYNAMIC: several frames per run. FIXED: the graph takes exactly one."""

    DYNAMIC = "dynamic"
    FIXED = "fixed"


class Precision(StrEnum):
    """What most of the weights and activations are computed in."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


class View(StrEnum):
    """An extra look at the frame at test time, merged with the plain one."""

    HFLIP = "hflip"


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class InputSpec(_Part):
    """How a frame becomes the input tensor: value = (pixel * scale - mean) / std, per channel in `color` order.

    `pad_value` is a pixel value (0 to 255) and goes through the same formula. A uint8 input takes pixels as they
    are.
    """

    tensor: str = "images"
    width: Side
    height: Side
    layout: TensorLayout = TensorLayout.NCHW
    dtype: InputDtype = InputDtype.FLOAT32
    color: ColorOrder = ColorOrder.RGB
    scale: Annotated[float, Field(gt=0)] = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    pad_value: Annotated[int, Field(ge=0, le=255)] = 114
    placement: Placement = Placement.CENTER
    batch: BatchMode = BatchMode.FIXED

    @property
    def size(self) -> ImageSize:
        return ImageSize(width=self.width, height=self.height)

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if min(self.std) <= 0:
            raise ValueError(f"std: expected values above 0, got {self.std}")
        plain = (self.scale, self.mean, self.std) == (1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        if self.dtype is InputDtype.UINT8 and not plain:
            raise ValueError("a uint8 input takes pixels as they are: expected scale 1, mean 0, std 1")
        return self


class OutputSpec(_Part):
    """What comes out: the layout (see `fovea.core.yolo`) and the tensors that carry it.

    `tensors` is (boxes, logits) for the cut layout and one name for all others. `reg_max` is the number of distance
    bins per side of a cut graph.
    """

    layout: Layout
    tensors: tuple[str, ...]
    strides: tuple[Annotated[int, Field(ge=1, le=256)], ...] = (8, 16, 32)
    reg_max: Annotated[int, Field(ge=1, le=64)] = 16

    @model_validator(mode="after")
    def _check_tensors(self) -> Self:
        wanted = 2 if self.layout is Layout.CUT else 1
        if len(self.tensors) != wanted or len(set(self.tensors)) != wanted:
            raise ValueError(
                f"tensors: expected {wanted} names for layout {self.layout}, got {list(self.tensors)}"
            )
        if not self.strides or list(self.strides) != sorted(set(self.strides)):
            raise ValueError(f"strides: expected rising numbers, got {list(self.strides)}")
        return self


class NmsSpec(_Part):
    """Suppression; see `fovea.core.geometry.NmsSettings`."""

    iou: Annotated[float, Field(gt=0, le=1)] = 0.65
    max_pairs: Annotated[int, Field(ge=1, le=100_000)] = 1000
    max_boxes: Annotated[int, Field(ge=1, le=1000)] = 300

    def settings(self) -> NmsSettings:
        return NmsSettings(iou=self.iou, max_pairs=self.max_pairs, max_boxes=self.max_boxes)


class PartDigest(_Part):
    """Digest and length of one part of the bundle."""

    sha256: Sha256
    bytes: Annotated[int, Field(ge=0)]


class ParentRef(_Part):
    """The model that this one was made from."""

    name: Name
    version: Name
    sha256: Sha256

    def ref(self) -> ModelRef:
        return ModelRef(self.name, self.version, self.sha256)

    @classmethod
    def of(cls, ref: ModelRef) -> ParentRef:
        return cls(name=ref.name, version=ref.version, sha256=ref.sha256)


class BundleManifest(_Part):
    """Everything about one model but its weights. `parts` is filled in when the bundle is built.

    `answer_min_score` is a calibrated score: weaker candidates are not answered. `trust` is the weight of this
    model's boxes when tiers are merged. `report` holds published figures, `min_agent` the oldest agent that can
    run it.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Name
    version: Name
    created_at: AwareDatetime
    description: str = ""
    licence: Annotated[str, Field(min_length=1)]
    parent: ParentRef | None = None
    dataset: str = ""
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    input: InputSpec
    output: OutputSpec
    precision: Precision = Precision.FP32
    nms: NmsSpec = NmsSpec()
    answer_min_score: Annotated[float, Field(ge=0, le=1)] = 0.25
    tta: tuple[View, ...] = ()
    trust: Annotated[float, Field(gt=0)] = 1.0
    min_agent: Version = "0"
    parameters: Annotated[int, Field(ge=0)] | None = None
    report: dict[str, float | str] = Field(default_factory=dict)
    parts: dict[str, PartDigest] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        try:
            names = LabelSet.from_names(self.labels).names
        except Malformed as error:
            raise ValueError(str(error)) from error
        if names != self.labels:
            wrong = next(given for given, plain in zip(self.labels, names, strict=True) if given != plain)
            raise ValueError(f"labels: expected the plain spelling of each name, got {wrong!r}")
        return self

    @property
    def label_set(self) -> LabelSet:
        return LabelSet.from_names(self.labels)

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.fovea"

    def canonical_bytes(self) -> bytes:
        """The manifest as it stands in the bundle: compact JSON with sorted keys."""
        return canonical_json(self.model_dump(mode="json"))

    def ref(self) -> ModelRef:
        """Names this exact manifest, and through the digests of its parts this exact model."""
        return ModelRef(self.name, self.version, hashlib.sha256(self.canonical_bytes()).hexdigest())


def parse_manifest(data: bytes) -> BundleManifest:
    """The manifest in `data`. Raises Incompatible for another schema version, Malformed with every mistake named
    (key, what was wrong, what was given), and when the bytes are not the canonical ones."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"manifest.json: expected JSON, got {data[:40]!r} ({error})") from error
    if not isinstance(raw, dict):
        raise Malformed(f"manifest.json: expected an object, got {type(raw).__name__}")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise Incompatible(f"manifest.json: expected schema version {SCHEMA_VERSION}, got {version!r:.40}")
    try:
        manifest = BundleManifest.model_validate_json(data)
    except ValidationError as error:
        raise Malformed(f"manifest.json: {explain_validation(error)}") from error
    if manifest.canonical_bytes() != data:
        raise Malformed(
            "manifest.json: not in canonical form (compact, sorted keys, every field written out)"
        )
    return manifest


def new_manifest(**fields: Any) -> BundleManifest:
    """A checked manifest; Malformed names every mistake. For makers of bundles (readers use `Bundle.open`)."""
    try:
        return BundleManifest(**fields)
    except ValidationError as error:
        raise Malformed(f"manifest: {explain_validation(error)}") from error


def explain_validation(error: ValidationError) -> str:
    """All mistakes of a pydantic error in one line: `key: what was wrong (got value)`."""
    mistakes = []
    for entry in error.errors(include_url=False):
        key = ".".join(str(step) for step in entry["loc"]) or "manifest"
        given = (
            ""
            if isinstance(entry["input"], dict | list | tuple | BaseModel)
            else f" (got {entry['input']!r:.60})"
        )
        mistakes.append(f"{key}: {entry['msg']}{given}")
    return "; ".join(mistakes)


def canonical_json(value: Any) -> bytes:
    """Compact UTF-8 JSON with sorted keys and no NaN: equal values give equal bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
