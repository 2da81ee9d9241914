"""The reward of asking the next tier about one frame: what its merged answer adds to the AP of a whole set.

AP is no sum over frames: a box only counts by its rank among the boxes of other frames. So a frame's gain is measured
in context (the offloading reward of ORIC): AP of a random mixture of weak and merged answers with this frame merged,
minus the same mixture with this frame weak, averaged over mixtures. DCSB's discriminator looks at counts instead:
true objects that the merged answer finds and the weak one misses; `found_more` is that, graded.
"""

from __future__ import annotations

import numpy as np

from calibration.cascade import CascadeTable, Flags, Floats
from fovea.core.errors import Malformed

_SHARES = (0.0, 0.15, 0.3, 0.5)
"""How much of the context is merged already: a gate asks little, so mixtures near the weak end weigh most."""


def context_reward(table: CascadeTable, contexts_per_share: int = 4, seed: int = 0) -> Floats:
    """Gain f64[F] in AP50-95 of the whole set, times the number of frames (so that sets of any size compare).

    Raises Malformed for a set of fewer than two frames.
    """
    frames = len(table)
    if frames < 2:
        raise Malformed(f"context reward: expected two frames or more, got {frames}")
    rng = np.random.default_rng(seed)
    gains = np.zeros(frames)
    contexts = [np.zeros(frames, bool)]
    contexts += [rng.random(frames) < share for share in _SHARES[1:] for _ in range(contexts_per_share)]
    for context in contexts:
        gains += _gains_in(table, context)
    mean: Floats = gains * frames / len(contexts)
    return mean


def _gains_in(table: CascadeTable, context: Flags) -> Floats:
    """AP with frame i merged minus AP with frame i weak, all others as in `context`; f64[F]."""
    frames = len(table)
    flipped = np.repeat(context[:, None], frames, axis=1)
    flipped[np.arange(frames), np.arange(frames)] ^= True
    change = table.ap(flipped) - table.ap(context)[0]
    gains: Floats = np.where(context, -change, change)
    return gains


def found_more(table: CascadeTable) -> Floats:
    """f64[F]: true objects that the merged answer finds and the weak one misses, averaged over the IoU thresholds
    0.50 to 0.95, at a score of 0.5 times the best in its frame or more; negative where merging lost some."""
    hits = np.zeros(len(table.table.groups))
    for matches in table.table.matches.values():
        best = np.zeros(len(hits))
        np.maximum.at(best, matches.group, matches.scores)
        counted = matches.scores >= 0.5 * best[matches.group]
        share = (matches.correct[:, counted]).mean(axis=0)
        hits += np.bincount(matches.group[counted], share, minlength=len(hits))
    more: Floats = hits[table.merged_rows] - hits[table.weak_rows]
    return more
