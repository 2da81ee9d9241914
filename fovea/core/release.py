"""What a fleet is told to run, and what each device says it runs: the values of releases and rollouts."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed
from fovea.core.json_form import from_json_form, to_json_form

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODEL_TARGET: Final = re.compile(
    r"models/([a-z0-9][a-z0-9._-]{0,63})/([A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.fovea)"
)
_VERSION: Final = re.compile(r"\d+(\.\d+){0,3}")


class Stage(StrEnum):
    """How far a candidate has come. Nobody runs it in idle, shadow and back; in the others the cohort does."""

    IDLE = "idle"
    SHADOW = "shadow"
    CANARY = "canary"
    QUARTER = "quarter"
    ALL = "all"
    BACK = "back"


_RUNNING_STAGES: Final = (Stage.CANARY, Stage.QUARTER, Stage.ALL)


class Phase(StrEnum):
    """What a device is doing about what it was told to run."""

    IDLE = "idle"
    FETCHING = "fetching"
    VERIFYING = "verifying"
    TRYING = "trying"
    PROBATION = "probation"
    COMMITTED = "committed"
    STEPPED_BACK = "stepped_back"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ModelPin:
    """One model artefact and where it lies: `target` is its TUF path `models/<family>/<name>-<version>.fovea`,
    `sha256` the digest of its manifest, as in ModelRef (not that of the file)."""

    target: str
    name: str
    version: str
    sha256: str

    def __post_init__(self) -> None:
        if not _MODEL_TARGET.fullmatch(self.target):
            raise Malformed(
                f"model pin target: expected models/<family>/<file>.fovea, got {self.target!r:.120}"
            )
        ModelRef(self.name, self.version, self.sha256)

    @property
    def ref(self) -> ModelRef:
        return ModelRef(self.name, self.version, self.sha256)

    @property
    def family(self) -> str:
        return self.target.split("/")[1]

    def to_json(self) -> dict[str, Any]:
        return _object(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises Malformed, as every `from_json` here, and names the field."""
        return from_json_form(cls, value, "model pin")


@dataclass(frozen=True, slots=True)
class Probation:
    """How long a switched-to model has to hold before it is committed; `max_ms_p95` is of one frame's inference."""

    frames: int
    seconds: float
    max_ms_p95: float | None = None

    def __post_init__(self) -> None:
        _not_negative("probation frames", self.frames)
        _not_negative("probation seconds", self.seconds)
        if self.max_ms_p95 is not None and not 0 < self.max_ms_p95 < math.inf:
            raise Malformed(f"probation max_ms_p95: expected more than 0, got {self.max_ms_p95}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one device has to do: run one model, and look at `shadow_share` of its frames with another one as well."""

    run: ModelPin
    shadow: ModelPin | None
    policy: Mapping[str, Any] | None
    shadow_share: float = 0.0


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What the devices of one group have to run; the content of the signed target `channels/<group>.json`.

    serial        only rises; going back to an old model is a new serial whose champion is that model
    candidate     the model on its way up, None in the stages idle and back
    shadow_share  share of frames on which the candidate runs beside the champion, in stage shadow
    run_share     share of the devices that run the candidate, in the stages canary, quarter and all
    salt          draws the cohort: another salt, other devices
    policy        settings for the devices (thresholds, budgets), or None to leave them alone
    """

    group: str
    family: str
    serial: int
    issued_at: datetime
    expires_at: datetime
    champion: ModelPin
    candidate: ModelPin | None
    stage: Stage
    shadow_share: float
    run_share: float
    salt: str
    probation: Probation
    policy: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_name("desired state group", self.group)
        check_name("desired state family", self.family)
        if self.serial < 1:
            raise Malformed(f"desired state serial: expected 1 or more, got {self.serial}")
        _with_zone("desired state issued_at", self.issued_at)
        _with_zone("desired state expires_at", self.expires_at)
        if self.expires_at <= self.issued_at:
            raise Malformed("desired state expires_at: expected a time after issued_at")
        for name, share in (("shadow_share", self.shadow_share), ("run_share", self.run_share)):
            if not 0 <= share <= 1:
                raise Malformed(f"desired state {name}: expected 0 to 1, got {share}")
        is_under_way = self.stage not in (Stage.IDLE, Stage.BACK)
        if is_under_way != (self.candidate is not None):
            wanted = "a candidate" if is_under_way else "no candidate"
            raise Malformed(f"desired state candidate: expected {wanted} in stage {self.stage.value}")
        for name, pin in (("champion", self.champion), ("candidate", self.candidate)):
            if pin is not None and pin.family != self.family:
                raise Malformed(f"desired state {name}: expected a model of {self.family}, got {pin.target}")

    def for_device(self, device_id: str) -> Assignment:
        """What this device has to do. A device that is in the running cohort stays in it as `run_share` rises."""
        if self.candidate is None:
            return Assignment(self.champion, None, self.policy)
        if self.stage is Stage.SHADOW:
            return Assignment(self.champion, self.candidate, self.policy, self.shadow_share)
        is_in = self.stage in _RUNNING_STAGES and cohort_place(self.salt, device_id) < self.run_share
        return Assignment(self.candidate if is_in else self.champion, None, self.policy)

    def to_json(self) -> dict[str, Any]:
        return _object(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        return from_json_form(cls, value, "desired state")


def cohort_place(salt: str, device_id: str) -> float:
    """Where a device stands in the order in which it gets new models: 0 (first) up to, but never, 1."""
    digest = hashlib.sha256(f"{salt}/{device_id}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / (
        1 << 48
    )  # 48 bits: exact as a float, so never rounded up to 1


@dataclass(frozen=True, slots=True)
class Compat:
    """Which devices can run a model. arch as `platform.machine()` says it, device_classes as operators name them: an
    empty tuple means any. runtime_min and min_agent are versions of ONNX Runtime and of the agent."""

    arch: tuple[str, ...]
    runtime_min: str
    min_agent: str
    input_hw: tuple[int, int]
    device_classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, version in (("runtime_min", self.runtime_min), ("min_agent", self.min_agent)):
            if not _VERSION.fullmatch(version):
                raise Malformed(f"compat {name}: expected a version like 1.27, got {version!r:.40}")
        if min(self.input_hw) < 1:
            raise Malformed(f"compat input_hw: expected sides of 1 px or more, got {self.input_hw}")


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What the signer says of a bundle: the `custom` of its TUF target. `counter` rises with every release of the
    family, whatever its version is called; a device goes back below it only when a newer desired state says so."""

    pin: ModelPin
    counter: int
    released_at: datetime
    compat: Compat

    def __post_init__(self) -> None:
        if self.counter < 1:
            raise Malformed(f"target facts counter: expected 1 or more, got {self.counter}")
        _with_zone("target facts released_at", self.released_at)

    def to_json(self) -> dict[str, Any]:
        return _object(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        return from_json_form(cls, value, "target facts")


@dataclass(frozen=True, slots=True)
class Health:
    """How a device does. frames, failures (frames on which the model broke) and restarts since it booted;
    detect_ms_p95 of the model that runs now, None until it has looked at enough frames."""

    frames: int
    restarts: int
    detect_ms_p95: float | None
    rss_mb: float
    uptime_s: float
    failures: int = 0

    def __post_init__(self) -> None:
        for name in ("frames", "restarts", "rss_mb", "uptime_s", "failures"):
            _not_negative(f"health {name}", getattr(self, name))
        if self.detect_ms_p95 is not None:
            _not_negative("health detect_ms_p95", self.detect_ms_p95)


@dataclass(frozen=True, slots=True)
class Asked:
    """Of `frames` looked at, `asked` were sent upwards."""

    frames: int
    asked: int

    def __post_init__(self) -> None:
        if not 0 <= self.asked <= self.frames:
            raise Malformed(f"asked: expected 0 to {self.frames} of {self.frames} frames, got {self.asked}")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well a model's answers agree with the upper tier's on the frames that were sent: sums over x, the F1 of the
    boxes (IoU 0.5, same class) in 0..1, and w, 1 / the probability with which the frame was sent."""

    model_sha256: str
    n: int = 0
    sum_w: float = 0.0
    sum_wx: float = 0.0
    sum_wxx: float = 0.0
    sum_ww: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n", "sum_w", "sum_wx", "sum_wxx", "sum_ww"):
            _not_negative(f"agreement {name}", getattr(self, name))

    def plus(self, x: float, weight: float) -> Agreement:
        """With one more frame."""
        return Agreement(
            self.model_sha256,
            self.n + 1,
            self.sum_w + weight,
            self.sum_wx + weight * x,
            self.sum_wxx + weight * x * x,
            self.sum_ww + weight * weight,
        )


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What a candidate did beside the champion on the same frames. d = its agreement with the upper tier minus that
    of the champion, in -1..1, weighted as in Agreement."""

    candidate_sha256: str
    frames: int
    crashes: int
    candidate_ms_p95: float | None
    agreement_with_champion_mean: float | None
    paired_n: int = 0
    sum_w: float = 0.0
    sum_wd: float = 0.0
    sum_wdd: float = 0.0
    sum_ww: float = 0.0

    def __post_init__(self) -> None:
        for name in ("frames", "crashes", "paired_n", "sum_w", "sum_wdd", "sum_ww"):
            _not_negative(f"shadow report {name}", getattr(self, name))


@dataclass(frozen=True, slots=True)
class ReportedState:
    """What a device says of itself. `serial` is the desired state that it acts on (0: none yet), `at` its own clock,
    which counts only where `clock_synced`; `reason` says why it refused or stepped back."""

    device: str
    group: str
    agent_version: str
    boot_id: str
    at: datetime
    clock_synced: bool
    serial: int
    counter_floor: int
    running: ModelPin | None
    last_good: ModelPin | None
    phase: Phase
    reason: str | None
    health: Health
    asked: Asked
    agreement: Agreement | None = None
    shadow: ShadowReport | None = None

    def __post_init__(self) -> None:
        if not self.device or not self.boot_id:
            raise Malformed("reported state: expected a device and a boot_id, got an empty one")
        _with_zone("reported state at", self.at)
        _not_negative("reported state serial", self.serial)
        _not_negative("reported state counter_floor", self.counter_floor)

    def to_json(self) -> dict[str, Any]:
        return _object(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        return from_json_form(cls, value, "reported state")


def check_name(what: str, name: str) -> None:
    """Malformed unless `name` can stand in a path and in a topic: groups and families."""
    if not _NAME.fullmatch(name):
        raise Malformed(f"{what}: expected lower-case letters, digits, . _ and -, got {name!r:.80}")


def channel_target(group: str) -> str:
    """The TUF path of a group's desired state."""
    return f"channels/{group}.json"


def _object(value: Any) -> dict[str, Any]:
    form: dict[str, Any] = to_json_form(value)
    return form


def _not_negative(what: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise Malformed(f"{what}: expected 0 or more, got {value}")


def _with_zone(what: str, at: datetime) -> None:
    if at.tzinfo is None:
        raise Malformed(f"{what}: expected a time with a zone (UTC), got one without")
