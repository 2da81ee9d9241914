"""From a freshly trained student to the artefact that ships: INT8, with its own scores, gate and golden answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import match
from calibration.fit_scores import fit_scores_of
from calibration.matching import BoxSize
from calibration.predict import LabelledFrame, ap_score, see
from calibration.quant_search import SearchSettings, Trial
from calibration.quantize import quantize_bundle
from cloud.learn.gate_fitting import AskedFrame, FittedGate, asked_share, fit_gate_on, upper_answer
from cloud.learn.looked_at import KnownFrame, Seen, look
from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import gate_to_json
from fovea.runtime.bundle import GATE, POLICIES, Bundle
from fovea.runtime.golden import make_golden
from fovea.runtime.images import decode_image
from fovea.runtime.manifest import ParentRef
from fovea.runtime.onnx_detector import OnnxDetector

_MOST_RANGE_FRAMES = 60


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A bundle and what was found on the way to it."""

    bundle: Bundle
    facts: Mapping[str, Any]


def as_version(student: Bundle, parent: Bundle, version: str) -> Bundle:
    """The trained student under a version that nobody has yet."""
    return student.with_parts({}, version=version, parent=ParentRef.of(parent.ref))


def quantized(
    student: Bundle,
    name: str,
    ranges: Sequence[bytes],
    fit: Sequence[LabelledFrame],
    recipes: int,
    note: Callable[[Trial], None],
) -> Made:
    """The INT8 bundle by the recipe with the best AP on the frames that are kept for fitting. `ranges` are pictures
    that set the ranges of activations. Raises Malformed and Incompatible as `quantize_bundle` does."""
    score = ap_score(fit, student.manifest.label_set.ids)
    pixels = (decode_image(jpeg) for jpeg in ranges[:_MOST_RANGE_FRAMES])
    found = quantize_bundle(student, pixels, score, SearchSettings(most_trials=recipes), note, name)
    best = found.search.best
    facts = {
        "recipe": best.label,
        "recipes": len(found.search.trials),
        "ap_fp32": round(found.fp32_score, 4),
        "ap_int8": round(best.score, 4),
        "speedup": round(best.speedup, 2),
        "model_bytes": len(best.model),
    }
    report = {**student.manifest.report, **found.bundle.manifest.report}
    return Made(found.bundle.with_parts({POLICIES: None}, report=report), facts)


def with_fitted_scores(bundle: Bundle, fit: Sequence[KnownFrame]) -> Made:
    """The bundle with the score calibration of its own artefact. Raises Malformed where no box of it is right."""
    detector = OnnxDetector.open(bundle, "cpu", threads=1)
    try:
        seen = list(see(detector, (frame.labelled() for frame in fit)))
    finally:
        detector.close()
    table = match(seen, bundle.manifest.label_set.ids, (BoxSize.ALL,))
    calibration = fit_scores_of(table)
    # Both are of the frames that fitted it: whether it holds elsewhere is asked on golden frames that judge.
    before = detection_calibration_error(table)
    after = detection_calibration_error(table, calibration)
    facts = {"d_ece_before": round(before, 4), "d_ece_after": round(after, 4), "frames": len(fit)}
    report = {
        **bundle.manifest.report,
        "d_ece.before": facts["d_ece_before"],
        "d_ece.after": facts["d_ece_after"],
    }
    return Made(bundle.with_calibration(calibration, report=report), facts)


def with_fitted_gate(
    bundle: Bundle,
    champion: Bundle,
    fit: Sequence[KnownFrame],
    teacher: Mapping[str, Detections],
    teacher_labels: LabelSet,
    asked_before: float | None = None,
) -> Made:
    """The bundle with a gate of its own, and with the champion's golden pictures as it sees them itself.

    `teacher` gives a teacher's answers by case; `asked_before` is the share of frames that may be asked, None: as
    many as the champion's gate asks about. Where too little is known to fit one it carries none: the hand-set
    gate runs then, which knows no model and so cannot be stale.
    """
    own = _seen_by(bundle, fit)
    if asked_before is None:
        asked_before = asked_share(_seen_by(champion, fit), champion)
    frames = [
        AskedFrame(seen, upper)
        for seen in own
        if (upper := upper_answer(seen, teacher.get(seen.frame.case.id), teacher_labels)) is not None
    ]
    try:
        fitted = fit_gate_on(frames, bundle.manifest.label_set, asked_before)
    except Malformed as error:
        plain = bundle.with_parts({GATE: None, **_golden(bundle, champion)})
        return Made(plain, {"form": "rules", "why": str(error), "frames": len(frames)})
    return Made(_carrying(bundle, champion, fitted), _gate_facts(fitted, asked_before))


def _carrying(bundle: Bundle, champion: Bundle, fitted: FittedGate) -> Bundle:
    report = {**bundle.manifest.report, "gate.form": fitted.form, "gate.frames": fitted.frames}
    carrying = bundle.with_gate(gate_to_json(fitted.gate), report=report)
    return carrying.with_parts(_golden(carrying, champion))


def _gate_facts(fitted: FittedGate, asked_before: float) -> dict[str, Any]:
    return {
        "form": "learned",
        "frames": fitted.frames,
        "share": round(fitted.share, 4),
        "champion_share": round(asked_before, 4),
        "mean_gain": round(fitted.mean_gain, 4),
        "gain_per_byte": fitted.gate.price.gain_per_byte,
    }


def _seen_by(bundle: Bundle, frames: Sequence[KnownFrame]) -> list[Seen]:
    detector = OnnxDetector.open(bundle, "cpu", threads=1)
    try:
        return list(look(detector, bundle, frames))
    finally:
        detector.close()


def _golden(bundle: Bundle, champion: Bundle) -> dict[str, bytes | None]:
    """The champion's golden pictures with what this model sees in them: no picture of a site leaves it in a model."""
    pictures: list[ImageArray] = [
        np.asarray(decode_image(data))
        for name, data in sorted(champion.parts.items())
        if name.startswith("golden/") and name.endswith(".png")
    ]
    if not pictures:
        return {}
    detector = OnnxDetector.open(bundle, "cpu", threads=1)
    try:
        return {**make_golden(detector, pictures, bundle.manifest.answer_min_score)}
    finally:
        detector.close()
