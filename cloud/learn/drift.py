"""Has what a camera sees changed? Sequential tests that may be looked at after every report, for ever.

Each watch holds an e-process: evidence against "nothing has changed" whose expectation never exceeds 1 while that
is true, so the chance that it ever reaches 1/alpha, over a stream of any length, is at most alpha (Ville, 1939;
Ramdas and others, "Game-theoretic statistics and safe anytime-valid inference", 2023). No schedule of
looks, no correction for having looked often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import Malformed

Floats = NDArray[np.float64]

_NEWEST_STARTS, _STRONGEST_STARTS = 16, 16
_PRIOR = 0.5
"""Jeffreys: all changes are thought possible, and small ones are found nearly as soon as by who knows them."""
_BETS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
"""Shares of the largest bet that cannot lose everything; small ones find small changes."""


class Evidence(Protocol):
    """How reports become evidence against one way of having stayed the same. What was reported adds up, so that a
    sum says all that has to be remembered of a stretch of time."""

    @property
    def name(self) -> str:
        """What is watched, and against what: states of another name do not fit."""
        ...

    @property
    def size(self) -> int:
        """How many numbers sum up a stretch."""
        ...

    def log_values(self, sums: Floats) -> Floats:
        """f64[S, size] -> f64[S]: the logarithm of the e-value of each stretch; 0 where nothing was reported."""
        ...


@dataclass(frozen=True, slots=True)
class AskedRate:
    """The share of frames that were asked about stays within `tolerance` of `expected`.

    E = Beta mixture of likelihoods / the best likelihood within the tolerance. `weight`: what one frame counts as, as
    neighbours in time resemble each other and are no independent witnesses: 0.1 where they come in tens. (A
    likelihood ratio to a power below 1 has an expectation below 1 as well, so that is never too little care.)
    """

    expected: float
    tolerance: float = 0.02
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.expected < 1 or not 0 <= self.tolerance < 1 or not 0 < self.weight <= 1:
            raise Malformed(f"asked rate: expected shares between 0 and 1, got {self}")

    @property
    def name(self) -> str:
        return f"asked_rate:{self.expected:.6g}+-{self.tolerance:.6g}*{self.weight:.6g}"

    @property
    def size(self) -> int:
        return 2

    def report(self, asked: int, frames: int) -> Floats:
        """Of `frames`, `asked` were asked about. Raises Malformed."""
        if not 0 <= asked <= frames:
            raise Malformed(f"asked rate: expected 0 to {frames} asked of {frames} frames, got {asked}")
        return np.array([asked, frames - asked], np.float64)

    def log_values(self, sums: Floats) -> Floats:
        sums = self.weight * sums
        totals = sums.sum(axis=1)
        rate = np.divide(sums[:, 0], totals, out=np.full(len(sums), self.expected), where=totals > 0)
        low, high = self.expected - self.tolerance, self.expected + self.tolerance
        best = np.clip(rate, max(low, 1e-9), min(high, 1 - 1e-9))
        unchanged = sums[:, 0] * np.log(best) + sums[:, 1] * np.log1p(-best)
        changed = _log_beta_mixture(sums)
        return np.asarray(changed - unchanged, np.float64)


@dataclass(frozen=True, slots=True)
class ScoreShares:
    """No bin of scores holds more than (1 + `tolerance`) times its share of the reference.

    E = Dirichlet mixture of likelihoods / the reference likelihood, times (1 + tolerance)^-n. A change is found when
    its divergence (Kullback-Leibler) exceeds log(1 + tolerance): with 0.1, about where a population stability index
    of 0.2 says "significant". The reference has to hold whole days, or the evening is drift. `weight`: see
    `AskedRate`.
    """

    shares: tuple[float, ...]
    tolerance: float = 0.1
    weight: float = 1.0

    def __post_init__(self) -> None:
        is_sound = len(self.shares) >= 2 and min(self.shares) > 0 and abs(sum(self.shares) - 1) < 1e-6
        if not is_sound or not self.tolerance >= 0 or not 0 < self.weight <= 1:
            raise Malformed(
                "score shares: expected two or more shares above 0 that add up to 1, a tolerance of 0 or more and "
                f"a weight above 0 up to 1, got {self}"
            )

    @classmethod
    def of_counts(cls, counts: Sequence[int], tolerance: float = 0.1, weight: float = 1.0) -> Self:
        """From how many scores of the reference fell into each bin. Raises Malformed."""
        if len(counts) < 2 or min(counts) < 0 or sum(counts) == 0:
            raise Malformed(f"score shares: expected counts of two bins or more, got {list(counts)!r:.200}")
        total = sum(counts) + _PRIOR * len(counts)
        return cls(tuple((count + _PRIOR) / total for count in counts), tolerance, weight)

    @property
    def name(self) -> str:
        shares = ",".join(f"{share:.6g}" for share in self.shares)
        return f"score_shares:{shares}+{self.tolerance:.6g}*{self.weight:.6g}"

    @property
    def size(self) -> int:
        return len(self.shares)

    def report(self, counts: Sequence[int]) -> Floats:
        """How many scores fell into each bin. Raises Malformed."""
        if len(counts) != len(self.shares) or min(counts) < 0:
            raise Malformed(
                f"score shares: expected {len(self.shares)} counts of 0 or more, got {list(counts)!r:.200}"
            )
        return np.asarray(counts, np.float64)

    def log_values(self, sums: Floats) -> Floats:
        sums = self.weight * sums
        unchanged = sums @ np.log(self.shares) + sums.sum(axis=1) * math.log1p(self.tolerance)
        return np.asarray(_log_beta_mixture(sums) - unchanged, np.float64)


@dataclass(frozen=True, slots=True)
class AuditAgreement:
    """The mean agreement with the upper tier, over all frames, is at least `expected`.

    A bet for each audit on its agreement x being less: wealth times 1 + bet * (w / w_max) * (expected - x), with
    w = 1 / send probability, so that frames that are seldom sent count for those that were not. Its expectation is at
    most 1 while the weighted mean is `expected` or more, whatever the distribution (Waudby-Smith and Ramdas,
    "Estimating means of bounded random variables by betting", 2024). Half a dozen bets of different size, averaged.
    """

    expected: float
    least_probability: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.expected < 1 or not 0 < self.least_probability <= 1:
            raise Malformed(f"audit agreement: expected shares between 0 and 1, got {self}")

    @property
    def name(self) -> str:
        return f"audit_agreement:{self.expected:.6g}/{self.least_probability:.6g}"

    @property
    def size(self) -> int:
        return len(_BETS)

    def report(self, agreements: Sequence[float], send_probabilities: Sequence[float]) -> Floats:
        """The agreement of each audit, 0 to 1, and the probability with which its frame was sent. Raises Malformed,
        also for a probability below the least: weights without a bound cannot be bet on."""
        x, p = np.asarray(agreements, np.float64), np.asarray(send_probabilities, np.float64)
        if x.shape != p.shape or x.ndim != 1 or not ((x >= 0) & (x <= 1)).all():
            raise Malformed("audit agreement: expected as many agreements of 0 to 1 as probabilities")
        if not ((p >= self.least_probability) & (p <= 1)).all():
            raise Malformed(f"audit agreement: expected probabilities of {self.least_probability:g} to 1")
        largest_bet = 1 / (1 - self.expected)
        payoff = self.least_probability / p * (self.expected - x)
        bets = largest_bet * np.array(_BETS)
        return np.asarray(np.log1p(bets[None, :] * payoff[:, None]).sum(axis=0), np.float64)

    def log_values(self, sums: Floats) -> Floats:
        top = sums.max(axis=1)
        return np.asarray(top + np.log(np.exp(sums - top[:, None]).mean(axis=1)), np.float64)


@dataclass(slots=True)
class Watch:
    """One stream of reports, watched from its beginning and anew from later moments, so that a change after a long
    calm is found about as soon as one at the start.

    Start j has the weight 1 / (j (j + 1)), which add up to 1; the weighted sum of e-processes is one, and stays one
    when some are forgotten. `alpha`: the chance of a false alarm, ever. A new start is made every `every` reports.
    """

    evidence: Evidence
    alpha: float = 0.01
    every: int = 20
    reports: int = 0
    numbers: list[int] = field(default_factory=list)
    sums: Floats = field(default_factory=lambda: np.empty((0, 0)))
    peak_log: float = -math.inf
    alarmed_at_report: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or self.every < 1:
            raise Malformed(
                f"watch: expected an alpha between 0 and 1 and every of 1 or more, got {self.alpha}, {self.every}"
            )
        if not self.numbers:
            self.sums = np.empty((0, self.evidence.size))

    @property
    def is_alarmed(self) -> bool:
        """Whether it has ever been sure; it stays so until a new watch begins."""
        return self.alarmed_at_report is not None

    @property
    def strength(self) -> float:
        """How much of the way to an alarm the evidence has come at most, 0 to 1 and more, on a log scale."""
        return max(0.0, self.peak_log / -math.log(self.alpha))

    def update(self, report: Floats) -> bool:
        """Takes what `evidence.report` gave; True when it is alarmed."""
        if self.reports % self.every == 0:
            self._start()
        self.reports += 1
        self.sums = self.sums + report[None, :]
        weighted = self._weighted_logs()
        top = float(weighted.max())
        now_log = top + math.log(float(np.exp(weighted - top).sum()))
        self.peak_log = max(self.peak_log, now_log)
        if self.alarmed_at_report is None and now_log >= -math.log(self.alpha):
            self.alarmed_at_report = self.reports
        return self.is_alarmed

    def to_json(self) -> dict[str, Any]:
        """All that has to survive a restart, as JSON has it."""
        return {
            "evidence": self.evidence.name,
            "alpha": self.alpha,
            "every": self.every,
            "reports": self.reports,
            "numbers": list(self.numbers),
            "sums": self.sums.tolist(),
            "peak_log": self.peak_log if math.isfinite(self.peak_log) else None,
            "alarmed_at_report": self.alarmed_at_report,
        }

    @classmethod
    def from_json(cls, evidence: Evidence, state: Mapping[str, Any]) -> Self:
        """Goes on where `to_json` was. Raises Malformed for what is no state, or one of another evidence: then the
        reference has changed, and a new watch has to begin."""
        try:
            if state["evidence"] != evidence.name:
                raise Malformed(f"watch: expected a state of {evidence.name}, got {state['evidence']!r:.200}")
            numbers = [int(number) for number in state["numbers"]]
            sums = np.array(state["sums"], np.float64).reshape(len(numbers), evidence.size)
            peak_log, alarmed = state["peak_log"], state["alarmed_at_report"]
            return cls(
                evidence,
                float(state["alpha"]),
                int(state["every"]),
                int(state["reports"]),
                numbers,
                sums,
                -math.inf if peak_log is None else float(peak_log),
                None if alarmed is None else int(alarmed),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"watch: expected a state as it was written, {error!r:.100} is wrong") from error

    def _start(self) -> None:
        number = 1 + self.reports // self.every
        self.numbers.append(number)
        self.sums = np.vstack([self.sums, np.zeros((1, self.evidence.size))])
        old = len(self.numbers) - _NEWEST_STARTS
        if old > _STRONGEST_STARTS:
            weakest = int(np.argmin(self._weighted_logs()[:old]))
            del self.numbers[weakest]
            self.sums = np.delete(self.sums, weakest, axis=0)

    def _weighted_logs(self) -> Floats:
        numbers = np.array(self.numbers, np.float64)
        return np.asarray(self.evidence.log_values(self.sums) - np.log(numbers * (numbers + 1)), np.float64)


def _log_beta_mixture(sums: Floats) -> Floats:
    """f64[S, D] -> f64[S]: the log of the mean likelihood of such counts, over all shares under a Dirichlet prior."""
    size = sums.shape[1]
    gammas = np.array([[math.lgamma(_PRIOR + count) for count in row] for row in sums]).reshape(sums.shape)
    totals = np.array([math.lgamma(_PRIOR * size + total) for total in sums.sum(axis=1)])
    none = size * math.lgamma(_PRIOR) - math.lgamma(_PRIOR * size)
    return np.asarray(gammas.sum(axis=1) - totals - none, np.float64)
