"""The steps of `fovea calibrate scores | gate | all`: frames and bundles in, calibrated bundles and a report out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.gate_rules import OTHERS, OURS
from fovea.bench.calibration_report import ReportPart
from fovea.bench.cascade_recording import Trio
from fovea.bench.gate_figures import GateEvidence, evidence
from fovea.bench.gate_fit import (
    CAMERA_ASKS,
    EDGE_ASKS,
    FittedGate,
    GateSample,
    Pair,
    Step,
    fit_and_price,
    recorded,
)
from fovea.bench.gate_plots import curves_png, reliability_png
from fovea.bench.scores import FittedScores
from fovea.core.learned_gate import gate_to_json
from fovea.runtime.bundle import GATE, POLICIES, Bundle
from fovea.runtime.manifest import ParentRef


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedPair:
    """The gate of who asks ("camera" or "edge") and how it does on validation clips."""

    asks: str
    fitted: FittedGate
    found: GateEvidence

    @property
    def report(self) -> dict[str, float | str]:
        """What the bundle's manifest says of its gate."""
        shares = {
            f"gate.gain_share.{pct}": self.found.figures[f"gain_share.{OURS}.{pct}"] for pct in (10, 20, 30)
        }
        return {"gate.form": self._form, **shares}

    @property
    def _form(self) -> str:
        """What was taken, where forms were tried at all."""
        if not self.fitted.trials:
            return "prior"
        return str(max(self.fitted.trials, key=lambda trial: trial.mean).form)

    @property
    def part(self) -> ReportPart:
        trials = "; ".join(
            f"{trial.form} {', '.join(f'{share:.3f}' for share in trial.shares)}"
            for trial in self.fitted.trials
        )
        price = self.fitted.gate.price
        tried = (
            f"Gain share at 10, 20 and 30 % on clips left out: {trials}. Taken: {self._form}."
            if trials
            else "Few frames: no form was tried, the gate hardly leaves its prior."
        )
        text = (
            tried,
            f"Price to begin with: {price.gain_per_byte:.3g} of AP a byte; a question has {price.ask_bytes:,.0f}.",
            "The curves and figures are of the validation clips, on which only the price was found; the benchmark "
            "`fovea bench gate` has those of the test clips.",
            *(
                f"{rule}: {', '.join(f'{pct} % {each.verdict}' for pct, each in self.found.verdicts[rule].items())}"
                for rule in OTHERS
            ),
        )
        return ReportPart(
            f"Gate: the {self.asks} asks", text, self.found.figures, curves_png(self.found.curves)
        )


def fit_gates(
    trio: Trio,
    sample: GateSample,
    folder: Path,
    step: Step,
    note: Callable[[str], None],
    pairs: tuple[Pair, ...] = (CAMERA_ASKS, EDGE_ASKS),
    resamples: int = 300,
) -> list[CalibratedPair]:
    """Records, fits and prices a gate for each pair. Raises Malformed when nothing can be learned."""
    frames = {split: recorded(sample, split, trio, folder, step) for split in ("train", "val")}
    lasts_s = {split: sample.spans(split)[0].lasts_s for split in frames}
    done = []
    for pair in pairs:
        note(f"gate of the {pair.asks}: rewards")
        fit, val = (pair.ask_set(frames[split], lasts_s[split]) for split in ("train", "val"))
        note(f"gate of the {pair.asks}: fitting")
        fitted = fit_and_price(fit, val)
        done.append(
            CalibratedPair(
                pair.asks, fitted, evidence(pair.asks, val, val, fitted.gate, fitted.linear, resamples)
            )
        )
    return done


def scores_part(bundle: Bundle, fitted: FittedScores) -> ReportPart:
    """The section about the scores of a bundle."""
    text = (
        "How often a box is right (IoU 0.5) against its score, on frames that the calibration was not fitted on. "
        f"D-ECE {fitted.raw.d_ece:.3f} raw, {fitted.present.d_ece:.3f} as the bundle had it, "
        f"{fitted.after.d_ece:.3f} now; LaECE {fitted.raw.la_ece:.3f}, {fitted.present.la_ece:.3f}, "
        f"{fitted.after.la_ece:.3f}.",
    )
    picture = {"reliability": reliability_png(fitted.raw, fitted.after)}
    return ReportPart(f"Scores of {bundle.manifest.name}", text, fitted.figures, picture)


def with_gate(bundle: Bundle, pair: CalibratedPair, version: str = "") -> Bundle:
    """The bundle with this gate."""
    fields = _fields(bundle, pair.report, version)
    return bundle.with_gate(gate_to_json(pair.fitted.gate), **fields)


def with_scores(bundle: Bundle, fitted: FittedScores, version: str = "") -> Bundle:
    """The bundle with this score calibration, and without gate and policies: those fitted for other scores are
    wrong now."""
    changed = bundle.with_calibration(fitted.calibration, **_fields(bundle, fitted.figures, version))
    return changed.with_parts({GATE: None, POLICIES: None})


def new_version(bundle: Bundle, version: str) -> dict[str, Any]:
    """Manifest fields of a bundle that comes from this one; none where the version stays."""
    if not version or version == bundle.manifest.version:
        return {}
    return {"version": version, "parent": ParentRef.of(bundle.ref)}


def _fields(bundle: Bundle, report: Mapping[str, float | str], version: str) -> dict[str, Any]:
    return {"report": {**bundle.manifest.report, **report}, **new_version(bundle, version)}
