"""Generated from protos/cases.proto: do not edit."""
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from protos.gen import detect_pb2 as _detect_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliverRequest(_message.Message):
    __slots__ = ("case",)
    CASE_FIELD_NUMBER: _ClassVar[int]
    case: HardCase
    def __init__(self, case: _Optional[_Union[HardCase, _Mapping]] = ...) -> None: ...

class DeliverResponse(_message.Message):
    __slots__ = ("id", "is_new")
    ID_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    id: str
    is_new: bool
    def __init__(self, id: _Optional[str] = ..., is_new: _Optional[bool] = ...) -> None: ...

class HardCase(_message.Message):
    __slots__ = ("jpeg", "frame_id", "captured_at", "answers", "reasons", "send_probability")
    JPEG_FIELD_NUMBER: _ClassVar[int]
    FRAME_ID_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_AT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SEND_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    jpeg: bytes
    frame_id: _detect_pb2.FrameId
    captured_at: _timestamp_pb2.Timestamp
    answers: _containers.RepeatedCompositeFieldContainer[_detect_pb2.TierAnswer]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    send_probability: float
    def __init__(self, jpeg: _Optional[bytes] = ..., frame_id: _Optional[_Union[_detect_pb2.FrameId, _Mapping]] = ..., captured_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., answers: _Optional[_Iterable[_Union[_detect_pb2.TierAnswer, _Mapping]]] = ..., reasons: _Optional[_Iterable[str]] = ..., send_probability: _Optional[float] = ...) -> None: ...
