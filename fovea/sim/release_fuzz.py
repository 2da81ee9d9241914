"""Spoils the files of a release at random and lets a device judge them: none may pass as another release."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fovea.core.errors import FoveaError, RetryableError
from fovea.core.ports import Clock
from fovea.core.release import DesiredState, TargetFacts
from fovea.runtime.bundle import Bundle
from fovea.sim.release_web import MemoryWeb
from fovea.update.download import DownloadLimits, fetch_file
from fovea.update.floors import Floors
from fovea.update.judging import check_desired, check_facts
from fovea.update.ports import Surroundings
from fovea.update.time_floor import TimeFloor
from fovea.update.trust import Trust

_PLENTY: Final = 1 << 40
_LIMITS: Final = DownloadLimits(tries=2, first_pause_s=0.0, spare_bytes=0)


@dataclass(slots=True)
class FuzzTally:
    """refused: with a reason. unreachable: as if the server were away. harmless: what came out is what was signed (a
    change that says the same). accepted: it is not, and no check saw it; has to be 0. crashed: the device broke on
    it; has to be 0."""

    tried: int = 0
    refused: int = 0
    unreachable: int = 0
    harmless: int = 0
    accepted: int = 0
    crashed: int = 0
    first_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a device would run after all checks."""

    desired: DesiredState
    facts: TargetFacts
    bundle: bytes


class ReleaseFuzz:
    """`files` are those of a repository with a good release for `group`; `folder` is scratch, best in memory.
    Only the files that a device reads are spoilt."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        pinned_root: bytes,
        group: str,
        family: str,
        folder: Path,
        clock: Clock,
        built_at: datetime,
        seed: int = 0,
    ) -> None:
        """Raises what a device would say to the release as it is, if it refuses that."""
        self._files = dict(files)
        self._pinned_root = pinned_root
        self._group, self._family = group, family
        self._folder = folder
        self._clock = clock
        self._built_at = built_at
        self._rng = random.Random(seed)
        web = MemoryWeb(self._files)
        self._good = self._judge(web)
        self._read = sorted({path for path in web.asked if path in self._files})

    def run(self, count: int) -> FuzzTally:
        tally = FuzzTally()
        for _ in range(count):
            self._try_one(tally)
        return tally

    def _try_one(self, tally: FuzzTally) -> None:
        changed, said = self._spoilt()
        tally.tried += 1
        try:
            outcome = self._judge(MemoryWeb(changed))
        except RetryableError:
            tally.unreachable += 1
        except FoveaError:
            tally.refused += 1
        except Exception as error:  # the finding itself: nothing but the errors of the product may come out
            tally.crashed += 1
            tally.first_fault = tally.first_fault or f"{said}: {error!r}"
        else:
            if outcome == self._good:
                tally.harmless += 1
            else:
                tally.accepted += 1
                tally.first_fault = tally.first_fault or f"{said}: accepted"

    def _judge(self, web: MemoryWeb) -> Outcome:
        """All that a device checks, with an empty metadata folder: nothing is known from before."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        time_floor = TimeFloor(self._clock, self._built_at)
        trust = Trust(
            self._folder / "metadata", self._pinned_root, web.base_url, web, self._clock, time_floor
        )
        signed = trust.refresh()
        desired, floors = signed.desired(self._group), Floors()
        check_desired(desired, self._group, self._family, floors, time_floor.now())
        pin = desired.candidate or desired.champion
        target = signed.target(pin)
        check_facts(target.facts, pin, desired, floors)
        around = Surroundings(self._clock, self._rng.random, lambda _: None, lambda _: _PLENTY)
        path = self._folder / "model.fovea"
        fetch_file(web, target.wanted, path, _LIMITS, around)
        Bundle.open(path)
        return Outcome(desired, target.facts, path.read_bytes())

    def _spoilt(self) -> tuple[dict[str, bytes], str]:
        changed = dict(self._files)
        said = []
        for _ in range(1 + (self._rng.random() < 0.2)):
            name = self._rng.choice(self._read)
            how = self._rng.choice(_WAYS)
            other = changed[self._rng.choice(self._read)]
            changed[name] = how(changed[name], other, self._rng)
            said.append(f"{how.__name__.strip('_')} in {name}")
        return changed, ", ".join(said)


def _flipped_bit(data: bytes, _: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(data or b"\0")
    spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def _cut_short(data: bytes, _: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _taken_out(data: bytes, _: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + data[begin + rng.randrange(1, 40) :]


def _put_in(data: bytes, other: bytes, rng: random.Random) -> bytes:
    begin, source = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    return data[:begin] + other[source : source + rng.randrange(1, 200)] + data[begin:]


def _exchanged(_: bytes, other: bytes, __: random.Random) -> bytes:
    return other


def _noise(_: bytes, __: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(300))


def _changed_value(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Well-formed JSON in which one value is another one."""
    try:
        value = json.loads(data)
    except ValueError:
        return _flipped_bit(data, other, rng)
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    if not places:
        return _flipped_bit(data, other, rng)
    holder, key = rng.choice(places)
    old = holder[key]
    if rng.random() < 0.15 and isinstance(holder, dict):
        del holder[key]
    elif isinstance(old, bool | int) and rng.random() < 0.7:
        holder[key] = old + rng.choice([-1, 1, 100, -(10**6)])
    elif isinstance(old, str) and old and rng.random() < 0.7:
        at = rng.randrange(len(old))
        holder[key] = old[:at] + rng.choice("09afzZ:/.-") + old[at + 1 :]
    else:
        holder[key] = rng.choice([None, 0, -1, "", "x", [], {}, 1e308, True, [None], {"a": 1}])
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        places.append((value, key))
        _collect(value[key], places)


_WAYS: Final[tuple[Callable[[bytes, bytes, random.Random], bytes], ...]] = (
    _flipped_bit,
    _cut_short,
    _taken_out,
    _put_in,
    _exchanged,
    _noise,
    _changed_value,
    _changed_value,
    _changed_value,
)
