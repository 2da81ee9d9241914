"""A round of learning as a process of its own, followed from outside by what the cloud's database says of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud.learn.round_plan import RoundRecord, Step
from cloud.learn.rounds import RoundStore
from fovea.cli.demo_loop_findings import RoundFindings, StepFindings
from fovea.cli.tiers import fovea_command
from fovea.core.errors import BrokenError, Unavailable
from fovea.process.tied_process import tied

_STOP_S = 5.0


def round_command(config: Path, condition: str, minutes: float) -> tuple[str, ...]:
    """`fovea loop run` for a condition."""
    words = ("--condition", condition, "--minutes", f"{minutes:g}", "--why", "the demo", "--json")
    return fovea_command("loop", "run", "--config", str(config), *words)


class RoundRun:
    """A command that runs a round. A context: it does not outlive the block."""

    def __init__(self, argv: Sequence[str], minutes: float, log: Path, database: str) -> None:
        """Begins it; `minutes` of training are told to people. Raises Unavailable when it cannot be started."""
        self._log, self._minutes = log, minutes
        self._rounds = RoundStore.open(database)
        try:
            with log.open("wb") as said:
                self._process = subprocess.Popen(
                    tied(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    start_new_session=True,
                )
        except OSError as error:
            self._rounds.close()
            raise Unavailable(f"fovea loop run cannot be started: {error.strerror}") from error

    def __enter__(self) -> RoundRun:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._rounds.close()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def told(self) -> str:
        """Which step it is at, in a few words."""
        record = self._rounds.find_running()
        return "beginning" if record is None else step_told(record, self._minutes)

    def findings(self) -> RoundFindings:
        """Of a round that is over. Raises BrokenError, with its last words, where it came to no verdict for no reason
        of its own."""
        assert self._process.stdout is not None
        said = self._process.stdout.read().decode("utf-8", "replace")
        lines = [line for line in said.splitlines() if line.startswith("{")]
        if not lines:
            last = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
            raise BrokenError(f"fovea loop run ended with {self._process.returncode}: {' '.join(last)}")
        return findings_of(json.loads(lines[-1]))


def step_told(record: RoundRecord, minutes: float) -> str:
    """The step of a round that is at work: its number, and how far a training is as its time says."""
    names = list(Step)
    at = record.steps[-1] if record.steps else None
    if at is None:
        return f"{names[0]} (1 of {len(names)})"
    told = f"{at.step} ({names.index(at.step) + 1} of {len(names)})"
    return f"{told}, {minutes:g} minutes of training" if at.step is Step.DISTIL else told


def findings_of(facts: Mapping[str, Any]) -> RoundFindings:
    """From what `fovea loop run --json` says."""
    steps: Mapping[str, Any] = facts["steps"]
    judged = steps.get(Step.JUDGE.value, {}).get("facts", {})
    reasons: Sequence[str] = facts["reasons"]
    return RoundFindings(
        verdict=str(facts["verdict"] or facts["state"]),
        reasons=tuple(reasons),
        steps=tuple(
            StepFindings(name, float(step["spent_s"] or 0.0), str(step["said"]))
            for name, step in steps.items()
        ),
        golden_frames=int(judged.get("golden_frames", 0)),
    )
