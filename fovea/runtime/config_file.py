"""Reads a YAML configuration into a checked value; all its mistakes are told together, each with line and key."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from fovea.core.errors import Incompatible, Malformed, NotFound

Model = TypeVar("Model", bound=BaseModel)
_Key = tuple[str | int, ...]

_LARGEST_FILE_BYTES = 1_000_000
_DEEPEST = 20


class _Mistake(NamedTuple):
    line: int
    text: str


def read_config(path: Path, kind: type[Model]) -> Model:
    """The configuration in a file. Raises NotFound, Malformed with every mistake on a line of its own, and
    Incompatible where no YAML reader is installed."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(f"no configuration file {path}") from error
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _LARGEST_FILE_BYTES:
        raise Malformed(f"{path}: expected a configuration of at most {_LARGEST_FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: expected UTF-8 text: {error}") from error
    return parse_config(text, kind, str(path))


def parse_config(text: str, kind: type[Model], name: str) -> Model:
    """The configuration in `text`, which `name` stands for in messages. Raises as `read_config` does."""
    value, lines, mistakes = _parse_yaml(text, name)
    try:
        config = kind.model_validate(value)
    except ValidationError as error:
        mistakes += [_mistake(entry, kind, lines) for entry in error.errors(include_url=False)]
    if mistakes:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        told = [f"  line {mistake.line}, {mistake.text}" for mistake in sorted(mistakes)]
        raise Malformed("\n".join([f"{name}: {count}", *told]))
    return config


def _parse_yaml(text: str, name: str) -> tuple[Any, dict[_Key, int], list[_Mistake]]:
    """The value, the line of each key, and what is wrong before the keys are even looked at."""
    try:
        import yaml
    except ImportError as error:
        raise Incompatible(f"reading {name} needs PyYAML: {error}") from error
    lines: dict[_Key, int] = {(): 1}
    mistakes: list[_Mistake] = []
    try:
        # An alias may stand for itself, or for a billion others; no configuration needs one.
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise Malformed(f"{name}: expected values written out, got the alias *{event.anchor}")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            return {}, lines, mistakes
        for key, line in _keys(root, ()):
            if key in lines:
                mistakes.append(_Mistake(line, f"{_dotted(key)}: given twice, first in line {lines[key]}"))
            lines[key] = line
        value = yaml.safe_load(text)
    except RecursionError as error:
        raise Malformed(f"{name}: expected at most {_DEEPEST} levels of nesting") from error
    except (yaml.YAMLError, ValueError) as error:
        raise Malformed(f"{name}: no sound YAML: {' '.join(str(error).split())}") from error
    return value, lines, mistakes


def _keys(node: Any, above: _Key) -> Iterator[tuple[_Key, int]]:
    """Every key of a node tree in the order of the file, with its line."""
    if len(above) > _DEEPEST:
        raise RecursionError
    match node.id:
        case "mapping":
            for key_node, value_node in node.value:
                key = (*above, str(key_node.value))
                yield key, key_node.start_mark.line + 1
                yield from _keys(value_node, key)
        case "sequence":
            for index, value_node in enumerate(node.value):
                key = (*above, index)
                yield key, value_node.start_mark.line + 1
                yield from _keys(value_node, key)


def _mistake(entry: Any, kind: type[BaseModel], lines: dict[_Key, int]) -> _Mistake:
    key: _Key = tuple(entry["loc"])
    known = key
    while known not in lines:
        known = known[:-1]
    name = _dotted(key) or "the whole file"
    match entry["type"]:
        case "extra_forbidden":
            text = f"{name}: no such key; {_suggestion(key, kind)}"
        case "missing":
            text = f"{name}: missing; {_about(key, kind)}"
        case "model_type":
            text = f"{name}: expected keys with values, got {entry['input']!r:.80}"
        case _:
            said = entry["msg"].removeprefix("Value error, ")
            given = entry["input"]
            text = f"{name}: {said}" + ("" if _is_unfit_to_show(key, given) else f", got {given!r:.80}")
    return _Mistake(lines[known], text)


def _is_unfit_to_show(key: _Key, given: object) -> bool:
    """Too long, or a secret: a password, or an address that may hold one."""
    is_secret = "password" in str(key[-1:]).lower() or (isinstance(given, str) and "@" in given)
    return is_secret or isinstance(given, dict | list)


def _suggestion(key: _Key, kind: type[BaseModel]) -> str:
    parent = _part_at(key[:-1], kind)
    allowed = sorted(parent.model_fields) if parent else []
    close = get_close_matches(str(key[-1]), allowed, n=1)
    return f"expected one of {', '.join(allowed)}" + (f" (meant {close[0]}?)" if close else "")


def _about(key: _Key, kind: type[BaseModel]) -> str:
    parent = _part_at(key[:-1], kind)
    field = parent.model_fields.get(str(key[-1])) if parent else None
    return f"expected {field.description}" if field and field.description else "expected a value"


def _part_at(key: _Key, kind: type[BaseModel]) -> type[BaseModel] | None:
    """The model that checks what stands at `key`."""
    part: type[BaseModel] | None = kind
    for step in key:
        if isinstance(step, int):  # an entry of a list, which is what the key of the list says
            continue
        field = part.model_fields.get(step) if part else None
        part = _model_in(field.annotation) if field else None
    return part


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(one) for one in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)


def _dotted(key: _Key) -> str:
    return ".".join(str(step) for step in key)
