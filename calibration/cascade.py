"""What a cascade is worth: AP of any mixture of weak and merged answers, frame by frame.

Every frame stands twice in one match table: as the weak model alone sees it, and as the merged answer has it after
the next tier was asked. A mixture is then a weighting of the table's groups, so the AP of thousands of mixtures, and
of resamples of their clips, is counted from one matching.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.evaluate import MatchTable, match
from calibration.matching import BoxSize, ClassMatches
from calibration.precision import average_precisions
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.detections import Candidates, Detections
from fovea.core.errors import Malformed

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CascadeFrame:
    """One frame: its truth, what the weak model sees alone, and the answer when the next tier is asked too.
    `clip` is the unit that intervals are drawn over."""

    clip: str
    truth: GroundTruth
    weak: Candidates | Detections
    merged: Candidates | Detections


@dataclass(frozen=True, slots=True, eq=False)
class CascadeTable:
    """F frames of C clips, ready to be mixed; `clip_of` i64[F] is the index of each frame's clip."""

    clips: tuple[str, ...]
    clip_of: NDArray[np.int64]
    table: MatchTable
    weak_rows: NDArray[np.int64]
    merged_rows: NDArray[np.int64]

    @classmethod
    def of(cls, frames: Sequence[CascadeFrame], class_ids: Iterable[int]) -> CascadeTable:
        """Matches all answers once. Raises Malformed without frames or classes."""
        if not frames:
            raise Malformed("cascade: expected at least one frame, got none")
        # Fixed-width names sort in frame order, weak before merged, so rows can be computed.
        both = [
            EvaluatedFrame(f"{index:08d}-{variant}", frame.truth, seen)
            for index, frame in enumerate(frames)
            for variant, seen in enumerate((frame.weak, frame.merged))
        ]
        clips = tuple(sorted({frame.clip for frame in frames}))
        position = {clip: index for index, clip in enumerate(clips)}
        rows = np.arange(len(frames), dtype=np.int64) * 2
        return cls(
            clips,
            np.array([position[frame.clip] for frame in frames], np.int64),
            match(both, class_ids, (BoxSize.ALL,)),
            rows,
            rows + 1,
        )

    def __len__(self) -> int:
        return len(self.clip_of)

    def ap(self, asked: Flags, clip_weights: Floats | None = None) -> Floats:
        """AP50-95 f64[B] of B mixtures: `asked` bool[F, B] (or bool[F] for one) says which frames have the merged
        answer; `clip_weights` f64[C, B] how often each clip counts (once, when left out)."""
        columns = np.atleast_2d(asked.T).T
        if columns.shape[0] != len(self):
            raise Malformed(f"cascade asked: expected {len(self)} rows, got {columns.shape[0]}")
        counts = np.ones(columns.shape) if clip_weights is None else clip_weights[self.clip_of]
        weights = np.zeros((len(self.table.groups), columns.shape[1]))
        weights[self.merged_rows] = counts * columns
        weights[self.weak_rows] = counts * ~columns
        return mean_ap(self.table, weights)

    def mixed(self, asked: Flags) -> MatchTable:
        """The matches of one mixture, `asked` bool[F], with whole clips as groups: small enough for thousands of
        resamples of the clips."""
        clip_of_row = np.full(2 * len(self), -1, np.int32)
        clip_of_row[np.where(asked, self.merged_rows, self.weak_rows)] = self.clip_of
        return regrouped(self.table, clip_of_row, self.clips)


def regrouped(table: MatchTable, group_of: NDArray[np.int32], groups: tuple[str, ...]) -> MatchTable:
    """The same matches in other groups: `group_of` i32[G] is the new group of each old one, -1: it is left out."""
    counts = np.bincount(group_of[group_of >= 0], minlength=len(groups)).astype(np.int64)
    matches = {key: _of_groups(each, group_of, len(groups)) for key, each in table.matches.items()}
    return MatchTable(groups, counts, table.class_ids, matches)


def _of_groups(matches: ClassMatches, group_of: NDArray[np.int32], groups: int) -> ClassMatches:
    """The matches of the old groups that have a new one (-1: none), in that."""
    kept = group_of[matches.group] >= 0
    has_new = group_of >= 0
    return ClassMatches(
        matches.scores[kept],
        group_of[matches.group[kept]],
        matches.correct[:, kept],
        matches.ignored[:, kept],
        np.bincount(group_of[has_new], matches.positives[has_new], minlength=groups).astype(np.float64),
    )


def mean_ap(table: MatchTable, weights: Floats) -> Floats:
    """AP f64[B] as the mean over the classes that have a true box under each weighting; 0 where none has."""
    by_class = average_precisions(table, weights, BoxSize.ALL).mean(axis=1)
    present = ~np.isnan(by_class)
    total = np.where(present, by_class, 0).sum(axis=0)
    mean: Floats = total / np.maximum(present.sum(axis=0), 1)
    return mean


def top_share(scores: Floats, share: float, rng: np.random.Generator | None = None) -> Flags:
    """bool[F]: the `share` (0..1) of frames with the highest scores; ties in frame order, or at random by `rng`.

    Raises Malformed for scores that are not finite or a share outside 0..1.
    """
    if not np.isfinite(scores).all():
        raise Malformed(
            f"ask scores: expected finite numbers, got {np.count_nonzero(~np.isfinite(scores))} others"
        )
    if not 0 <= share <= 1:
        raise Malformed(f"asked share: expected 0 to 1, got {share}")
    tie = np.arange(len(scores)) if rng is None else rng.permutation(len(scores))
    order = np.lexsort((tie, -scores))
    asked = np.zeros(len(scores), bool)
    asked[order[: round(share * len(scores))]] = True
    return asked
