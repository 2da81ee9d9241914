"""Adds a camera to a configuration as text, so that the comments in it stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from edge_agent.config import AgentConfig
from fovea.core.errors import Malformed, NotFound
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.config_file import parse_config

_LIST = "cameras"


def add_camera(path: Path, entry: Mapping[str, object]) -> None:
    """Appends `entry` to the cameras in the file at `path`; the file changes only when the whole is a sound
    configuration then. Raises NotFound, and Malformed as `read_config` does or for a name that is taken."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"no configuration file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"cannot read {path}: {error}") from error
    changed = with_camera(text, entry)
    parse_config(changed, AgentConfig, f"{path} with this camera")
    write_atomically(path, changed.encode())


def with_camera(text: str, entry: Mapping[str, object]) -> str:
    """`text` with one more item at the end of its list `cameras`, every other line as it was.

    Raises Malformed where there is no such list at the top level, or one in brackets that is not empty.
    """
    text += "\n" if text and not text.endswith("\n") else ""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Malformed(f"no sound YAML: {' '.join(str(error).split())}") from error
    lines = text.splitlines(keepends=True)
    if root is None:
        return "".join([*lines, f"{_LIST}:\n", *_item(entry, 2)])
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise Malformed("expected keys at the beginning of lines, one below the other")
    found = [(key, value) for key, value in root.value if key.value == _LIST]
    if not found:
        return "".join([*lines, f"{_LIST}:\n", *_item(entry, 2)])
    key, cameras = found[0]
    if isinstance(cameras, yaml.SequenceNode) and cameras.value:
        if cameras.flow_style:
            raise Malformed(f"{_LIST}: expected one camera below the other, got a list in brackets")
        at = _end_of_content(lines, cameras.end_mark.line)
        return "".join([*lines[:at], *_item(entry, cameras.start_mark.column), *lines[at:]])
    if cameras.value in ([], "", "null", "~"):
        line = lines[key.start_mark.line]
        comment = "  #" + line.partition("#")[2].rstrip("\n") if "#" in line else ""
        lines[key.start_mark.line : cameras.end_mark.line + 1] = [f"{_LIST}:{comment}\n", *_item(entry, 2)]
        return "".join(lines)
    raise Malformed(f"{_LIST}: expected a list")


def _item(entry: Mapping[str, object], indent: int) -> list[str]:
    text = yaml.safe_dump(dict(entry), sort_keys=False, allow_unicode=True, width=10_000)
    starts = [" " * indent + "- "] + [" " * indent + "  "] * text.count("\n")
    return [start + line for start, line in zip(starts, text.splitlines(keepends=True), strict=False)]


def _end_of_content(lines: list[str], end: int) -> int:
    """The line after the last one before `end` that is neither empty nor a comment."""
    while end > 0 and (end > len(lines) or lines[end - 1].strip() == "" or lines[end - 1].lstrip()[0] == "#"):
        end -= 1
    return end
