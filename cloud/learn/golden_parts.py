"""What each golden frame is for: to judge by, to learn from, or to fit scores and gate on; never two of them.

Whole blocks of a camera's ten minutes go one way, by a hash of their name: what judged in one round is not trained on
in any other, nor is anything that was taken in the same block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from cloud.cases.stored_case import StoredCase
from cloud.golden.golden_set import FrameState, GoldenFrame
from cloud.labels.label import PersonLabel
from cloud.learn.dataset import BLOCK_S
from cloud.learn.shown import shown_condition

JUDGE_SHARE: Final = 0.6
LEARN_SHARE: Final = 0.2


class GoldenPart(StrEnum):
    """judge: promotion. learn: training. fit: INT8 recipe, scores and gate."""

    JUDGE = "judge"
    LEARN = "learn"
    FIT = "fit"


@dataclass(frozen=True, slots=True, eq=False)
class GoldenCase:
    """A golden frame that a person has labelled. `group`: frames that resemble each other, of one condition."""

    case: StoredCase
    label: PersonLabel
    part: GoldenPart
    condition: str
    group: str


class Cases(Protocol):
    """What is needed of the case store."""

    def find(self, digest: str) -> StoredCase | None: ...


def block_of(case: StoredCase) -> str:
    """Camera and ten minutes."""
    return f"{case.frame_id.camera}/{int(case.captured_at.timestamp()) // BLOCK_S}"


def part_of(block: str) -> GoldenPart:
    """The part that a block has, whenever and wherever it is asked."""
    share = int.from_bytes(hashlib.sha256(f"golden/{block}".encode()).digest()[:8], "big") / 2**64
    if share < JUDGE_SHARE:
        return GoldenPart.JUDGE
    return GoldenPart.LEARN if share < JUDGE_SHARE + LEARN_SHARE else GoldenPart.FIT


def golden_cases(frames: Iterable[GoldenFrame], cases: Cases) -> list[GoldenCase]:
    """The frames that people have labelled, with what each is for; in the order given."""
    found = []
    for frame in frames:
        case = cases.find(frame.case_id) if frame.state is FrameState.DONE else None
        if case is not None and frame.label is not None:
            block, condition = block_of(case), shown_condition(case)
            found.append(GoldenCase(case, frame.label, part_of(block), condition, f"{block}/{condition}"))
    return found


def kept_apart(golden: Iterable[GoldenCase]) -> set[str]:
    """Blocks of which nothing may be trained on."""
    return {block_of(each.case) for each in golden if each.part is not GoldenPart.LEARN}
