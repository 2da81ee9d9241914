"""What the registry says: models, aliases, and the changes of those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fovea.core.detections import ModelRef


class Alias(StrEnum):
    """A part that one model of a family plays. champion: the fleet runs it. candidate: it is on its way up.
    previous: the champion before, to go back to."""

    CHAMPION = "champion"
    CANDIDATE = "candidate"
    PREVIOUS = "previous"


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """One immutable version. `verdict` is what the promotion gates said, None until they did; `parent_sha256` is the
    manifest digest of the model that it was made from."""

    family: str
    ref: ModelRef
    path: str
    file_sha256: str
    file_bytes: int
    parent_sha256: str | None
    dataset: str
    verdict: Mapping[str, Any] | None
    made_at: datetime
    registered_at: datetime


@dataclass(frozen=True, slots=True)
class AliasChange:
    """From `at` on `alias` named `ref`, or nothing (None)."""

    family: str
    alias: Alias
    ref: ModelRef | None
    at: datetime
    why: str
