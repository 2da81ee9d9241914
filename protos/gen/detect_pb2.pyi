"""Generated from protos/detect.proto: do not edit."""
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]

class ScoreKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORE_KIND_UNSPECIFIED: _ClassVar[ScoreKind]
    SCORE_KIND_PER_CLASS: _ClassVar[ScoreKind]
    SCORE_KIND_ONE_PER_BOX: _ClassVar[ScoreKind]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_LOW: Priority
PRIORITY_NORMAL: Priority
PRIORITY_HIGH: Priority
SCORE_KIND_UNSPECIFIED: ScoreKind
SCORE_KIND_PER_CLASS: ScoreKind
SCORE_KIND_ONE_PER_BOX: ScoreKind

class DetectRequest(_message.Message):
    __slots__ = ("frame_id", "captured_at", "captured_mono_s", "encoded", "raw", "want_candidates", "priority", "answers", "reasons", "send_probability", "mosaic")
    FRAME_ID_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_AT_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_MONO_S_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    WANT_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SEND_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    MOSAIC_FIELD_NUMBER: _ClassVar[int]
    frame_id: FrameId
    captured_at: _timestamp_pb2.Timestamp
    captured_mono_s: float
    encoded: bytes
    raw: RawImage
    want_candidates: bool
    priority: Priority
    answers: _containers.RepeatedCompositeFieldContainer[TierAnswer]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    send_probability: float
    mosaic: Mosaic
    def __init__(self, frame_id: _Optional[_Union[FrameId, _Mapping]] = ..., captured_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., captured_mono_s: _Optional[float] = ..., encoded: _Optional[bytes] = ..., raw: _Optional[_Union[RawImage, _Mapping]] = ..., want_candidates: _Optional[bool] = ..., priority: _Optional[_Union[Priority, str]] = ..., answers: _Optional[_Iterable[_Union[TierAnswer, _Mapping]]] = ..., reasons: _Optional[_Iterable[str]] = ..., send_probability: _Optional[float] = ..., mosaic: _Optional[_Union[Mosaic, _Mapping]] = ...) -> None: ...

class DetectResponse(_message.Message):
    __slots__ = ("detections", "candidates", "revision", "degraded", "timings", "model", "labels", "answers")
    DETECTIONS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    detections: Detections
    candidates: Candidates
    revision: int
    degraded: bool
    timings: Timings
    model: ModelRef
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    answers: _containers.RepeatedCompositeFieldContainer[TierAnswer]
    def __init__(self, detections: _Optional[_Union[Detections, _Mapping]] = ..., candidates: _Optional[_Union[Candidates, _Mapping]] = ..., revision: _Optional[int] = ..., degraded: _Optional[bool] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., model: _Optional[_Union[ModelRef, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., answers: _Optional[_Iterable[_Union[TierAnswer, _Mapping]]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("model", "labels", "limits")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    model: ModelRef
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    limits: Limits
    def __init__(self, model: _Optional[_Union[ModelRef, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class FrameId(_message.Message):
    __slots__ = ("camera", "boot_id", "sequence")
    CAMERA_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    camera: str
    boot_id: str
    sequence: int
    def __init__(self, camera: _Optional[str] = ..., boot_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ImageSize(_message.Message):
    __slots__ = ("width", "height")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    width: int
    height: int
    def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...

class RawImage(_message.Message):
    __slots__ = ("size", "bgr")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BGR_FIELD_NUMBER: _ClassVar[int]
    size: ImageSize
    bgr: bytes
    def __init__(self, size: _Optional[_Union[ImageSize, _Mapping]] = ..., bgr: _Optional[bytes] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("x1", "y1", "x2", "y2")
    X1_FIELD_NUMBER: _ClassVar[int]
    Y1_FIELD_NUMBER: _ClassVar[int]
    X2_FIELD_NUMBER: _ClassVar[int]
    Y2_FIELD_NUMBER: _ClassVar[int]
    x1: float
    y1: float
    x2: float
    y2: float
    def __init__(self, x1: _Optional[float] = ..., y1: _Optional[float] = ..., x2: _Optional[float] = ..., y2: _Optional[float] = ...) -> None: ...

class Mosaic(_message.Message):
    __slots__ = ("frame_size", "size", "tiles")
    FRAME_SIZE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    frame_size: ImageSize
    size: ImageSize
    tiles: _containers.RepeatedCompositeFieldContainer[Tile]
    def __init__(self, frame_size: _Optional[_Union[ImageSize, _Mapping]] = ..., size: _Optional[_Union[ImageSize, _Mapping]] = ..., tiles: _Optional[_Iterable[_Union[Tile, _Mapping]]] = ...) -> None: ...

class Tile(_message.Message):
    __slots__ = ("x", "y", "width", "height", "at_x", "at_y")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    AT_X_FIELD_NUMBER: _ClassVar[int]
    AT_Y_FIELD_NUMBER: _ClassVar[int]
    x: int
    y: int
    width: int
    height: int
    at_x: int
    at_y: int
    def __init__(self, x: _Optional[int] = ..., y: _Optional[int] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., at_x: _Optional[int] = ..., at_y: _Optional[int] = ...) -> None: ...

class ModelRef(_message.Message):
    __slots__ = ("name", "version", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    sha256: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("id", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Detections(_message.Message):
    __slots__ = ("boxes_xyxy", "scores", "class_ids", "image_size", "model")
    BOXES_XYXY_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    CLASS_IDS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    boxes_xyxy: _containers.RepeatedScalarFieldContainer[float]
    scores: _containers.RepeatedScalarFieldContainer[float]
    class_ids: _containers.RepeatedScalarFieldContainer[int]
    image_size: ImageSize
    model: ModelRef
    def __init__(self, boxes_xyxy: _Optional[_Iterable[float]] = ..., scores: _Optional[_Iterable[float]] = ..., class_ids: _Optional[_Iterable[int]] = ..., image_size: _Optional[_Union[ImageSize, _Mapping]] = ..., model: _Optional[_Union[ModelRef, _Mapping]] = ...) -> None: ...

class TierAnswer(_message.Message):
    __slots__ = ("tier", "detections", "labels", "looked")
    TIER_FIELD_NUMBER: _ClassVar[int]
    DETECTIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    tier: int
    detections: Detections
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    looked: _containers.RepeatedCompositeFieldContainer[Box]
    def __init__(self, tier: _Optional[int] = ..., detections: _Optional[_Union[Detections, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., looked: _Optional[_Iterable[_Union[Box, _Mapping]]] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("boxes_xyxy", "pair_boxes", "pair_channels", "pair_scores", "kind", "labels", "image_size")
    BOXES_XYXY_FIELD_NUMBER: _ClassVar[int]
    PAIR_BOXES_FIELD_NUMBER: _ClassVar[int]
    PAIR_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PAIR_SCORES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    boxes_xyxy: _containers.RepeatedScalarFieldContainer[float]
    pair_boxes: _containers.RepeatedScalarFieldContainer[int]
    pair_channels: _containers.RepeatedScalarFieldContainer[int]
    pair_scores: _containers.RepeatedScalarFieldContainer[float]
    kind: ScoreKind
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    image_size: ImageSize
    def __init__(self, boxes_xyxy: _Optional[_Iterable[float]] = ..., pair_boxes: _Optional[_Iterable[int]] = ..., pair_channels: _Optional[_Iterable[int]] = ..., pair_scores: _Optional[_Iterable[float]] = ..., kind: _Optional[_Union[ScoreKind, str]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., image_size: _Optional[_Union[ImageSize, _Mapping]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_ms", "decode_ms", "infer_ms", "above_ms")
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    INFER_MS_FIELD_NUMBER: _ClassVar[int]
    ABOVE_MS_FIELD_NUMBER: _ClassVar[int]
    queue_ms: float
    decode_ms: float
    infer_ms: float
    above_ms: float
    def __init__(self, queue_ms: _Optional[float] = ..., decode_ms: _Optional[float] = ..., infer_ms: _Optional[float] = ..., above_ms: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_request_bytes", "max_pixels", "takes_mosaics")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PIXELS_FIELD_NUMBER: _ClassVar[int]
    TAKES_MOSAICS_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_pixels: int
    takes_mosaics: bool
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_pixels: _Optional[int] = ..., takes_mosaics: _Optional[bool] = ...) -> None: ...
