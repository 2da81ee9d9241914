"""From frames and a fitted gate to the figures of the `gate` benchmark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.cascade import Flags, Floats, top_share
from calibration.gain_share import (
    Comparison,
    compare_gain_shares,
    equals_strong_at_pct,
    gain_share,
    misroute_cost,
    misroutes,
    needless_pct,
)
from calibration.gate_rules import (
    DRAWS,
    ORACLE,
    OTHERS,
    OURS,
    RANDOM,
    LinearRule,
    chosen,
    gains_of,
    opinions_of,
    rule_scores,
)
from fovea.bench.gate_replay import Offer, ranked_offer, replay, start_price
from fovea.bench.gate_set import AskSet
from fovea.core.gate import Opinion
from fovea.core.learned_gate import LearnedGate

PCTS = (5, 10, 20, 30)
_MISROUTE_PCT, _NEEDLESS_PCT = 20, 25
_CURVE_PCTS = tuple(range(0, 101, 5))


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What all rules say of the frames of one set."""

    opinions: Sequence[Opinion]
    scores: Mapping[str, Floats]

    @classmethod
    def of(cls, asks: AskSet, gate: LearnedGate, linear: LinearRule) -> Said:
        features = [frame.features for frame in asks.frames]
        own = [frame.features for frame in asks.weighed(gate.class_weights).frames]
        opinions = opinions_of(gate, own)
        scores = rule_scores([frame.view for frame in asks.frames], features, linear)
        return cls(opinions, {OURS: gains_of(opinions), **scores, ORACLE: asks.reward})


@dataclass(frozen=True, slots=True, eq=False)
class GateCurves:
    """What is drawn: against each percentage asked, AP of each rule, objects found and bytes sent a frame."""

    name: str
    pcts: tuple[int, ...]
    ap: Mapping[str, Floats]
    found: Mapping[str, Floats]
    kilobytes: Mapping[str, Floats]
    strong_ap: float


@dataclass(frozen=True, slots=True, eq=False)
class GateEvidence:
    """Figures of one set by name (without the set's), verdicts against each rule by percentage, and curves."""

    figures: Mapping[str, float]
    verdicts: Mapping[str, Mapping[int, Comparison]]
    curves: GateCurves


def evidence(
    name: str, test: AskSet, val: AskSet, gate: LearnedGate, linear: LinearRule, resamples: int = 1000
) -> GateEvidence:
    """Everything that is published of `gate` on `test`, with what is fixed beforehand fixed on `val`.

    gain_share.RULE.PCT is of the rule run by the online controller, gain_share_top.RULE.PCT of its plain top frames.
    """
    said, on_val = Said.of(test, gate, linear), Said.of(val, gate, linear)
    weak, merged = test.table.ap(np.repeat([[False, True]], len(test), axis=0))
    figures = {"ap.weak": float(weak), "ap.strong": test.strong_ap, "ap.merged_all": float(merged)}
    online: dict[int, dict[str, Flags]] = {}
    verdicts: dict[str, dict[int, Comparison]] = {rule: {} for rule in OTHERS}
    for pct in PCTS:
        oracle = top_share(test.reward, pct / 100)
        online[pct] = _online(test, val, said, on_val, pct / 100)
        for rule in (OURS, *OTHERS):
            plain = chosen(rule, said.scores, pct / 100, len(test))
            figures[f"gain_share.{rule}.{pct}"] = gain_share(test.table, online[pct][rule], oracle)
            figures[f"gain_share_top.{rule}.{pct}"] = gain_share(test.table, plain, oracle)
            figures[f"asked_pct.{rule}.{pct}"] = 100 * float(online[pct][rule].mean())
        figures[f"gain_share.{ORACLE}.{pct}"] = 1.0
        others = [online[pct][rule] for rule in OTHERS]
        compared = compare_gain_shares(test.table, online[pct][OURS][:, 0], others, oracle, resamples)
        for rule, comparison in zip(OTHERS, compared, strict=True):
            verdicts[rule][pct] = comparison
    figures |= _verdict_figures(verdicts)
    figures |= _misroute_figures(test, online[_MISROUTE_PCT])
    figures["merged_equals_strong_at_pct"] = equals_strong_at_pct(
        test.table, said.scores[OURS], test.strong_ap
    )
    quarter = top_share(said.scores[OURS], _NEEDLESS_PCT / 100)
    figures[f"needless_ask_pct_at_{_NEEDLESS_PCT}"] = needless_pct(test.reward, quarter)
    return GateEvidence(figures, verdicts, _curves(name, test, said))


def _online(test: AskSet, val: AskSet, said: Said, on_val: Said, share: float) -> dict[str, Flags]:
    """bool[F, D] for ours and each other rule."""
    asked: dict[str, Flags] = {}
    price = start_price(on_val.opinions, val.jpeg_bytes, share)
    asked[OURS] = replay(test.frames, Offer(said.opinions, price, float(val.jpeg_bytes.mean())), share)[
        :, None
    ]
    for rule in OTHERS:
        if rule == RANDOM:
            rng = np.random.default_rng(0)
            pairs = [(rng.random(len(test)), rng.random(len(val))) for _ in range(DRAWS)]
        else:
            pairs = [(said.scores[rule], on_val.scores[rule])]
        draws = [replay(test.frames, ranked_offer(*pair, share), share) for pair in pairs]
        asked[rule] = np.column_stack(draws)
    return asked


def _verdict_figures(verdicts: Mapping[str, Mapping[int, Comparison]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for rule, by_pct in verdicts.items():
        for pct, comparison in by_pct.items():
            figures[f"over.{rule}.{pct}"] = comparison.difference.value
            figures[f"over_low.{rule}.{pct}"] = comparison.difference.low
            figures[f"over_high.{rule}.{pct}"] = comparison.difference.high
    return figures


def _misroute_figures(test: AskSet, online: Mapping[str, Flags]) -> dict[str, float]:
    """At 20 % asked: counts, and what they cost; each over that of the best other rule."""
    window = test.minute
    counted = {rule: misroutes(test.reward, asked, window) for rule, asked in online.items()}
    cost = {rule: misroute_cost(test.reward, asked, window) for rule, asked in online.items()}
    return {
        "misroute_over_best_rule": _ratio(counted[OURS], min(counted[rule] for rule in OTHERS)),
        "misroute_cost_over_best_rule": _ratio(cost[OURS], min(cost[rule] for rule in OTHERS)),
        **{f"misroute_pct.{rule}": 100 * value for rule, value in counted.items()},
    }


def _ratio(value: float, other: float) -> float:
    return value / other if other > 0 else float(value > 0)


def _curves(name: str, test: AskSet, said: Said) -> GateCurves:
    shares = [pct / 100 for pct in _CURVE_PCTS]
    ap, found, kilobytes = {}, {}, {}
    for rule in (OURS, *OTHERS, ORACLE):
        choices = [chosen(rule, said.scores, share, len(test), seed=1)[:, 0] for share in shares]
        ap[rule] = test.table.ap(np.column_stack(choices))
        found[rule] = np.array([test.found_weak + test.found[asked].sum() for asked in choices])
        kilobytes[rule] = np.array([test.jpeg_bytes[asked].sum() for asked in choices]) / len(test) / 1000
    return GateCurves(name, _CURVE_PCTS, ap, found, kilobytes, test.strong_ap)


def decide_cpu_ms(gate: LearnedGate, test: AskSet, rounds: int = 3) -> Floats:
    """f64[rounds * F]: milliseconds of thread time in which the gate judges a frame."""
    features = [frame.features for frame in test.frames]
    spent = []
    for _ in range(rounds):
        for each in features:
            begun_s = time.thread_time()
            gate.judge(each)
            spent.append(1000 * (time.thread_time() - begun_s))
    return np.array(spent)
