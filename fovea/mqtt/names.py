"""How anything becomes a part of a topic, and the topics that agents and the cloud share."""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import quote

from fovea.core.errors import Malformed

ROOT: Final = "fovea"
MODELS_REPORTED: Final = f"{ROOT}/+/model/reported"
"""The filter that the reported states of all devices match."""

_LONGEST_PART: Final = 80
_KEPT_OF_LONG: Final = 40


def topic_part(name: str) -> str:
    """One level of a topic for a name; different names give different parts, whatever they hold.

    Letters, digits, `_`, `.` and `-` stay. Every other byte of the name's UTF-8 becomes %XX, as in a URL. What is
    then longer than 80 characters is cut to 40 and gets `~` and 32 hex digits of the name's SHA-256; no other part
    holds a `~`. Raises Malformed for an empty name.
    """
    if not name:
        raise Malformed("topic name: expected at least one character, got none")
    raw = name.encode("utf-8", "surrogatepass")
    escaped = quote(raw, safe="").replace("~", "%7E")
    if len(escaped) <= _LONGEST_PART:
        return escaped
    return f"{escaped[:_KEPT_OF_LONG]}~{hashlib.sha256(raw).hexdigest()[:32]}"


def device_prefix(device: str) -> str:
    """Every topic of the device begins with this and a slash. Raises Malformed for an empty name."""
    return f"{ROOT}/{topic_part(device)}"


def model_reported(device: str) -> str:
    """Where the device retains what it runs, as a ReportedState in JSON."""
    return f"{device_prefix(device)}/model/reported"


def model_desired(device: str) -> str:
    """Where the cloud retains that there is something to look at: `{"look": SERIAL}`. It is a hint; what the device
    has to run is in the signed release."""
    return f"{device_prefix(device)}/model/desired"


def client_id_of(name: str) -> str:
    """23 letters and digits, which every broker has to take; the same for the same name."""
    return f"{ROOT}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:18]}"
