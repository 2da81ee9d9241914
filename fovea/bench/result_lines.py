"""What an agent wrote into its results file, or sent to a broker, as the figures want it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_UPPER = ("upper_queue", "upper_open", "upper_infer")


@dataclass(frozen=True, slots=True)
class Published:
    """One answer: of which frame, how good, when the frame was captured, and what its stages took."""

    camera: str
    sequence: int
    revision: int
    captured_mono_s: float
    is_asked: bool
    is_looked_at: bool
    stage_ms: dict[str, float]


def published(line: bytes) -> Published:
    """One message as the agent publishes it."""
    told = json.loads(line)
    route = told["decision"]["route"]
    return Published(
        told["camera"],
        told["sequence"],
        told["revision"],
        told["captured_mono_s"],
        route in ("edge", "cloud"),
        route != "skip",
        told["stage_ms"],
    )


def lines_between(path: Path, begin: int, end: int) -> list[Published]:
    """The messages whose lines end between two sizes of a file that is being written."""
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    # A line that was being written when the size was taken belongs to whoever comes next.
    begun = data if begin == 0 else data.partition(b"\n")[2]
    whole = begun.rpartition(b"\n")[0]
    return [published(line) for line in whole.splitlines()]


def escalation_overheads_ms(answers: Iterable[Published]) -> list[float]:
    """For each frame with an answer from above, what asking took beside the looks of both tiers: from the capture to
    the publication of the better answer, less the stages of the frame itself and the time the other side needed."""
    own: dict[tuple[str, int], float] = {}
    overheads_ms = []
    for answer in answers:
        frame = (answer.camera, answer.sequence)
        if answer.revision == 0:
            if answer.is_asked:
                own[frame] = sum(answer.stage_ms.values())
        elif frame in own:
            upper_ms = sum(answer.stage_ms.get(stage, 0.0) for stage in _UPPER)
            overheads_ms.append(max(answer.stage_ms["since_capture"] - own.pop(frame) - upper_ms, 0.0))
    return overheads_ms
