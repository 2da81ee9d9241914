"""Frozen dataclasses as plain JSON values and back, strictly: the declaration of the fields is the format."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from fovea.core.errors import Malformed

_T = TypeVar("_T")


def to_json_form(value: Any) -> Any:
    """`value` with dataclasses as dicts, tuples as lists, times as ISO 8601 in UTC; NaN never gets here (checked)."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_json_form(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple | list):
        return [to_json_form(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json_form(item) for key, item in value.items()}
    return value


def from_json_form(kind: type[_T], value: Any, what: str) -> _T:
    """The dataclass `kind` in a JSON object. Raises Malformed that names the field (`what.field`): one that is
    missing, unknown, or of another kind. Fields with a default may be left out."""
    if not isinstance(value, Mapping):
        raise Malformed(f"{what}: expected an object, got {_told(value)}")
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(str(key) for key in value if key not in declared):
        raise Malformed(f"{what}: unknown field {unknown[0]!r:.80}; known are {', '.join(declared)}")
    hints = _hints(typing.cast(Hashable, kind))
    given = {}
    for name, each in declared.items():
        if name in value:
            given[name] = _read(hints[name], value[name], f"{what}.{name}")
        elif _is_needed(each):
            raise Malformed(f"{what}.{name}: missing")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _is_needed(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _read(hint: Any, value: Any, what: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in inner:
            return None
        return _read(next(each for each in inner if each is not type(None)), value, what)
    if origin is tuple:
        return _read_tuple(inner, value, what)
    if origin is Mapping:
        return _read_mapping(value, what)
    if hint is datetime:
        return _read_time(value, what)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        known = [member.value for member in hint]
        if value not in known:
            raise Malformed(f"{what}: expected one of {', '.join(known)}, got {_told(value)}")
        return hint(value)
    if is_dataclass(hint):
        return from_json_form(typing.cast(type[Any], hint), value, what)
    return _read_plain(hint, value, what)


def _read_plain(hint: Any, value: Any, what: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Malformed(f"{what}: expected a finite number, got {_told(value)}")
        return number
    if type(value) is not hint:
        names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise Malformed(f"{what}: expected {names[hint]}, got {_told(value)}")
    return value


def _read_tuple(inner: tuple[Any, ...], value: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Malformed(f"{what}: expected a list, got {_told(value)}")
    if inner[-1] is Ellipsis:
        return tuple(_read(inner[0], item, f"{what}[{index}]") for index, item in enumerate(value))
    if len(value) != len(inner):
        raise Malformed(f"{what}: expected {len(inner)} items, got {len(value)}")
    return tuple(
        _read(hint, item, f"{what}[{index}]")
        for index, (hint, item) in enumerate(zip(inner, value, strict=True))
    )


def _read_mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Malformed(f"{what}: expected an object, got {_told(value)}")
    return dict(value)


def _read_time(value: Any, what: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise Malformed(f"{what}: expected a time like 2026-01-31T12:00:00Z, got {_told(value)}")


def _told(value: Any) -> str:
    return f"{value!r:.60}" if isinstance(value, str | int | float | None) else type(value).__name__
