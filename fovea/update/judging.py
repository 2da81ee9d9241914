"""May this device follow an order? Pure decisions over what was signed and what this device has seen before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from fovea.core.errors import Incompatible, UntrustedRelease
from fovea.core.release import Compat, DesiredState, ModelPin, TargetFacts
from fovea.update.floors import Floors, order_digest


@dataclass(frozen=True, slots=True)
class Machine:
    """What this device is. arch as `platform.machine()` says it; device_class as its operator calls it, or empty."""

    arch: str
    runtime: str
    agent: str
    device_class: str = ""


def check_desired(desired: DesiredState, group: str, family: str, floors: Floors, now: datetime) -> None:
    """Raises UntrustedRelease for an order that is for others, has run out, or is older than one that was
    accepted."""
    if (desired.group, desired.family) != (group, family):
        raise UntrustedRelease(
            f"desired state: expected one for group {group} and family {family}, "
            f"got one for {desired.group} and {desired.family}"
        )
    if now >= desired.expires_at:
        raise UntrustedRelease(
            f"expired: the desired state {desired.serial} of {group} was good until "
            f"{desired.expires_at:%Y-%m-%d %H:%M} UTC; an old state is being held before this device "
            "(freeze), or it was not signed again in time"
        )
    floor = floors.group(group)
    if desired.serial < floor.serial:
        raise UntrustedRelease(
            f"rollback: the desired state {desired.serial} of {group} is older than {floor.serial}, "
            "which this device has accepted"
        )
    if desired.serial == floor.serial and order_digest(desired) != floor.sha256:
        raise UntrustedRelease(
            f"mix-and-match: the desired state {desired.serial} of {group} has another content than the one of that "
            "number that this device has accepted"
        )


def check_facts(facts: TargetFacts, pin: ModelPin, desired: DesiredState, floors: Floors) -> None:
    """Raises UntrustedRelease when the signer of the model means another one, and for a downgrade: a release below
    the committed one that no newer order takes back to."""
    if facts.pin != pin:
        raise UntrustedRelease(
            f"mix-and-match: {pin.target} is signed as {facts.pin.ref}, the desired state names {pin.ref}"
        )
    floor = floors.family(pin.family)
    if facts.counter < floor.counter and desired.issued_at <= floor.ordered_at:
        raise UntrustedRelease(
            f"downgrade: {pin.ref} is release {facts.counter} of {pin.family}, this device has committed "
            f"{floor.counter}, and no newer order takes that back"
        )


def check_compat(compat: Compat, machine: Machine) -> None:
    """Raises Incompatible with everything that does not fit, in one sentence."""
    wrong = []
    if compat.device_classes and machine.device_class not in compat.device_classes:
        classes, own = _any_of(compat.device_classes), machine.device_class or "of none"
        wrong.append(f"it is for devices of class {classes}, this one is {own}")
    if compat.arch and machine.arch not in compat.arch:
        wrong.append(f"it is for {_any_of(compat.arch)}, this is {machine.arch}")
    if _numbers(machine.runtime) < _numbers(compat.runtime_min):
        wrong.append(f"it needs ONNX Runtime {compat.runtime_min}, here is {machine.runtime}")
    if _numbers(machine.agent) < _numbers(compat.min_agent):
        wrong.append(f"it needs agent {compat.min_agent}, this is {machine.agent}")
    if wrong:
        raise Incompatible(f"not for this device: {'; '.join(wrong)}")


def _any_of(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def _numbers(version: str) -> tuple[int, ...]:
    """1.27.0 and 1.27 are the same; what follows the numbers (rc1, +local) does not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
