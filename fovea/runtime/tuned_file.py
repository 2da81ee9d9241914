"""What a micro-benchmark found best on this machine, as a file: written by autotune, read when a process starts."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fovea.core.errors import Malformed
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.autotune import Trial, Tuned, usable_cores

_log = logging.getLogger(__name__)

_MOST_THREADS = 256


@dataclass(frozen=True, slots=True)
class TunedModel:
    """The bundle (a path, or zoo:NAME) and the threads that were chosen, and on which machine: see `this_machine`."""

    bundle: str
    threads: int
    machine: str


def this_machine() -> str:
    """What makes a measurement hold: the kind of processor, and the cores that this process may use."""
    return f"{platform.machine()}, {usable_cores()} cores"


def write_tuned(path: Path, tuned: Tuned, name_of: Callable[[Path], str]) -> None:
    """Writes what was chosen and all that was tried, whole or not at all. `name_of` a bundle's file is what a
    configuration calls it. Raises BrokenError."""

    def plain(trial: Trial) -> dict[str, object]:
        variant = trial.variant
        return {
            "bundle": name_of(variant.path),
            "model": variant.name,
            "threads": variant.threads,
            "input": [variant.input_size.width, variant.input_size.height],
            "quality": variant.quality,
            "p50_ms": trial.p50_ms,
            "p95_ms": trial.p95_ms,
            "frames": trial.frames,
        }

    found = {
        "machine": this_machine(),
        "chosen": plain(tuned.choice.trial),
        "meets_target": tuned.choice.meets_target,
        "reason": tuned.choice.reason,
        "trials": [plain(trial) for trial in tuned.trials],
        "refused": [{"bundle": name, "why": why} for name, why in tuned.refused],
    }
    write_atomically(path, (json.dumps(found, indent=2) + "\n").encode())


def find_tuned(path: Path) -> TunedModel | None:
    """What was chosen for this machine; None, which is said, where nothing was measured yet, or on another machine.
    Raises Malformed for a file that is none of ours."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        _log.info("nothing was tuned for this machine yet: no file %s", path)
        return None
    except OSError as error:
        raise Malformed(f"tuned_file: cannot read {path}: {error.strerror}") from error
    tuned = _parsed(data, path.name)
    if tuned.machine != this_machine():
        _log.warning("%s holds for %s, and this is %s: not used", path, tuned.machine, this_machine())
        return None
    return tuned


def _parsed(data: bytes, name: str) -> TunedModel:
    try:
        found: Any = json.loads(data)
        bundle, threads = found["chosen"]["bundle"], found["chosen"]["threads"]
        machine = found["machine"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed(f"tuned_file {name}: expected what `autotune` wrote, got something else") from error
    is_sound = isinstance(bundle, str) and bundle and isinstance(machine, str) and type(threads) is int
    if not is_sound or not 1 <= threads <= _MOST_THREADS:
        raise Malformed(
            f"tuned_file {name}: expected a bundle, 1 to {_MOST_THREADS} threads and a machine, got "
            f"{bundle!r:.80}, {threads!r:.20}, {machine!r:.80}"
        )
    return TunedModel(bundle, threads, machine)
