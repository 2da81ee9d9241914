"""Public detectors as the three tiers: what each alone is worth on real photographs, and what they are merged.

The camera runs the smallest, the edge another one, the cloud all three INT8 models as an ensemble. Everything is
inferred once for each model; tiers, merging and gates are then computed from what the models saw, by the product's
own functions. AP wants whole curves, so the tiers answer down to a score of 0.001 here; `ap_answered` is of the
boxes that would be answered, 0.25 or more.

The hand-set gates were tuned to the street and its models. What they think of a photograph still ranks it, but the
usual threshold means nothing for other models: here it is set on train images so that 3 in 10 are asked about, and
half of these go on to the cloud.

Scores of different makers mean different things, and merging compares them. There are two ways here: as they come
("identity"), or fitted on COCO train images ("fitted"). All these models were trained on those very images, so the
fit is too sure of itself; which way is used is decided on train images that the fit did not see, never on val.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import MatchTable, compare, match, report
from calibration.fit_scores import fit_scores
from calibration.matching import BoxSize
from calibration.predict import LabelledFrame
from calibration.truth import EvaluatedFrame
from edge_server.config import GateConfig
from edge_server.second_gate import SecondGate, SecondGateSettings
from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.detections import LOWEST_SCORE, Candidates, Detections, Inference
from fovea.core.errors import Malformed
from fovea.core.features import SceneFacts, contrast_of, frame_features
from fovea.core.gate import RuleGate, RuleGateSettings
from fovea.core.hard_case import TierAnswer
from fovea.core.merging import merge_answers, merged_ref
from fovea.core.ports import Detector
from fovea.core.routing import Tier
from fovea.core.scores import ScoreCalibration
from fovea.runtime.ensemble import EnsembleDetector, Member
from fovea.serving.worker import Looked

CAMERA = "yolox_nano"
EDGE = "yolov8n_int8"
CLOUD = ("yolov8n_int8", "yolo26n_int8", "yolov10n")
TIER_MODELS = tuple(dict.fromkeys((CAMERA, EDGE, *CLOUD)))
ANSWER_FROM = 0.25
"""As bundles of these models answer."""
USUAL_ASK_FROM = 0.7
"""As agent and edge ask, unless they are told otherwise."""
ASKED_SHARE, FORWARDED_SHARE = 0.3, 0.5
"""Of the images, asked of the edge; of these, asked of the cloud: what the thresholds here are set for."""

Calibrations = Mapping[str, ScoreCalibration]


@dataclass(frozen=True, slots=True, eq=False)
class SeenImages:
    """Labelled images, and what each model (by name) saw in each of them."""

    frames: Sequence[LabelledFrame]
    by_model: Mapping[str, Sequence[Candidates]]

    def part(self, rows: slice) -> SeenImages:
        return SeenImages(self.frames[rows], {name: seen[rows] for name, seen in self.by_model.items()})


@dataclass(frozen=True, slots=True, eq=False)
class TierLooks:
    """What the tiers say about one image: each alone, merged, and as the gates would have it."""

    camera: Detections
    edge: Detections
    cloud: Detections
    merged_edge: Detections
    merged_all: Detections
    hybrid: Detections
    p_edge: float
    p_cloud: float
    is_edge_asked: bool
    is_cloud_asked: bool


@dataclass(frozen=True, slots=True)
class AskFrom:
    """The p_ask from which the camera asks the edge, and the edge the cloud."""

    edge: float = USUAL_ASK_FROM
    cloud: float = USUAL_ASK_FROM


WAYS = ("camera", "edge", "cloud", "merged_edge", "merged_all", "hybrid")
"""The answers of a TierLooks, as figures name them."""
COMPARED = tuple(
    (merged, alone) for merged in ("hybrid", "merged_all") for alone in ("camera", "edge", "cloud")
)
"""Whose gain over whom is told."""


def tier_figures(
    val: SeenImages, train: SeenImages, detectors: Mapping[str, Detector], resamples: int = 1000
) -> tuple[dict[str, float], str]:
    """The figures on `val`, and the way of scores ("identity" or "fitted") that they were measured with.

    coco.ap.W, coco.ap50.W, coco.ap_answered.W     for each of WAYS
    coco.ap_identity.W, coco.ap_fitted.W           the same both ways
    coco.asked_pct.edge, coco.asked_pct.cloud      images that `hybrid` asks about
    coco.asked_pct.edge_usual                      those that the usual threshold would ask about
    coco.gain.A_over_B, coco.gain_low., gain_high.  for each of COMPARED: paired, over images
    coco.d_ece.MODEL, coco.d_ece_fitted.MODEL      how far scores are from probabilities
    coco.heldout_ap_identity, coco.heldout_ap_fitted    merged_all on the train images that the choice was made on
    """
    identity: Calibrations = dict.fromkeys(TIER_MODELS, ScoreCalibration.identity())
    fitted = fitted_scores(train)
    even, odd = train.part(slice(0, None, 2)), train.part(slice(1, None, 2))
    heldout = {
        "identity": _merged_ap(odd, looks_of(odd, detectors, identity, LOWEST_SCORE)),
        "fitted": _merged_ap(odd, looks_of(odd, detectors, fitted_scores(even), LOWEST_SCORE)),
    }
    chosen = max(heldout, key=lambda way: heldout[way])
    figures = {f"coco.heldout_ap_{way}": ap for way, ap in heldout.items()}
    tables: dict[str, dict[str, MatchTable]] = {}
    for way, curves in (("identity", identity), ("fitted", fitted)):
        ask_from = ask_from_shares(looks_of(train, detectors, curves, ANSWER_FROM))
        tables[way] = _tables(val, looks_of(val, detectors, curves, LOWEST_SCORE, ask_from))
        figures |= {f"coco.ap_{way}.{name}": report(table).ap for name, table in tables[way].items()}
        if way == chosen:
            answered = looks_of(val, detectors, curves, ANSWER_FROM, ask_from)
    figures |= _chosen_figures(tables[chosen], _tables(val, answered), resamples)
    figures["coco.asked_pct.edge"] = _pct([each.is_edge_asked for each in answered])
    figures["coco.asked_pct.cloud"] = _pct([each.is_cloud_asked for each in answered])
    figures["coco.asked_pct.edge_usual"] = _pct([each.p_edge >= USUAL_ASK_FROM for each in answered])
    for name in TIER_MODELS:
        table = match(_evaluated(val, val.by_model[name]), _class_ids(val), (BoxSize.ALL,))
        figures[f"coco.d_ece.{name}"] = detection_calibration_error(table)
        figures[f"coco.d_ece_fitted.{name}"] = detection_calibration_error(table, fitted[name])
    return figures, chosen


def _chosen_figures(
    whole: Mapping[str, MatchTable], answered: Mapping[str, MatchTable], resamples: int
) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, table in whole.items():
        scores = report(table)
        figures |= {
            f"coco.ap.{name}": scores.ap,
            f"coco.ap50.{name}": scores.ap50,
            f"coco.ap_answered.{name}": report(answered[name]).ap,
        }
    for merged, other in COMPARED:
        gain = compare(whole[merged], whole[other], None, resamples)
        told = f"{merged}_over_{other}"
        figures |= {
            f"coco.gain.{told}": gain.value,
            f"coco.gain_low.{told}": gain.low,
            f"coco.gain_high.{told}": gain.high,
        }
    return figures


def fitted_scores(seen: SeenImages) -> Calibrations:
    """A calibration for each model, fitted on these images; identity for one that is never right on them."""
    fitted: dict[str, ScoreCalibration] = {}
    for name in TIER_MODELS:
        try:
            fitted[name] = fit_scores(_evaluated(seen, seen.by_model[name]), _class_ids(seen))
        except Malformed:
            fitted[name] = ScoreCalibration.identity()
    return fitted


def ask_from_shares(looks: Sequence[TierLooks]) -> AskFrom:
    """Thresholds with which about 3 in 10 of these images are asked about, and half of those go on."""
    edge = _at_least(np.array([each.p_edge for each in looks]), ASKED_SHARE)
    cloud = _at_least(np.array([each.p_cloud for each in looks if each.p_edge >= edge]), FORWARDED_SHARE)
    return AskFrom(edge, cloud)


def looks_of(
    seen: SeenImages,
    detectors: Mapping[str, Detector],
    calibrations: Calibrations,
    answer_from: float,
    ask_from: AskFrom = AskFrom(),
) -> list[TierLooks]:
    """What the tiers say about each image, boxes from a calibrated score of `answer_from` on.

    The gates always judge by what is answered from 0.25 on, and without a memory: photographs have no before.
    """
    tiers, gates = _Tiers(detectors, calibrations), _Gates()
    looks = []
    for row, frame in enumerate(seen.frames):
        saw = tiers.candidates({name: each[row] for name, each in seen.by_model.items()})
        p_edge, p_cloud = gates.judge(tiers.infer(saw, ANSWER_FROM), frame.pixels)
        is_edge_asked = p_edge >= ask_from.edge
        is_cloud_asked = is_edge_asked and p_cloud >= ask_from.cloud
        said = [
            TierAnswer(tier, inference.detections, inference.candidates.labels)
            for tier, inference in tiers.infer(saw, answer_from).items()
        ]
        camera, edge, cloud = (each.detections for each in said)
        merged_edge, merged_all = _merged(said[:2]), _merged(said)
        hybrid = merged_all if is_cloud_asked else merged_edge if is_edge_asked else camera
        looks.append(
            TierLooks(
                camera,
                edge,
                cloud,
                merged_edge,
                merged_all,
                hybrid,
                p_edge,
                p_cloud,
                is_edge_asked,
                is_cloud_asked,
            )
        )
    return looks


class _Tiers:
    """Who runs where, with whose curve."""

    def __init__(self, detectors: Mapping[str, Detector], calibrations: Calibrations) -> None:
        self._ensemble = EnsembleDetector([Member(detectors[name], calibrations[name]) for name in CLOUD])
        # The scores that an ensemble gives are calibrated already.
        identity = ScoreCalibration.identity()
        self._runs = {
            Tier.AGENT: (calibrations[CAMERA], detectors[CAMERA].ref),
            Tier.EDGE: (calibrations[EDGE], detectors[EDGE].ref),
            Tier.CLOUD: (identity, self._ensemble.ref),
        }

    def candidates(self, by_model: Mapping[str, Candidates]) -> dict[Tier, Candidates]:
        return {
            Tier.AGENT: by_model[CAMERA],
            Tier.EDGE: by_model[EDGE],
            Tier.CLOUD: self._ensemble.merge([by_model[name] for name in CLOUD]).candidates,
        }

    def infer(self, saw: Mapping[Tier, Candidates], answer_from: float) -> dict[Tier, Inference]:
        return {
            tier: answer(saw[tier], curves, answer_from, ref) for tier, (curves, ref) in self._runs.items()
        }


class _Gates:
    """The gates of agent and edge with their usual weights."""

    def __init__(self) -> None:
        usual = GateConfig()
        rules = RuleGateSettings(uncertain_boxes=usual.uncertain_boxes, weak_mass=usual.weak_mass)
        self._first = RuleGate()
        self._second = SecondGate(RuleGate(rules), SecondGateSettings(usual.contradictions))

    def judge(self, said: Mapping[Tier, Inference], pixels: ImageArray) -> tuple[float, float]:
        """The p_ask of the camera, and that of the edge if it is asked."""
        camera, edge = said[Tier.AGENT], said[Tier.EDGE]
        scene = SceneFacts(contrast=contrast_of(pixels))
        features = frame_features(camera.candidates, camera.detections, scene)
        below = TierAnswer(Tier.AGENT, camera.detections, camera.candidates.labels)
        looked = Looked(edge, edge.detections.model, edge.candidates.labels, 0.0, 0.0)
        return self._first.judge(features).p_ask, self._second.judge(looked, [below], pixels).p_ask


def _at_least(opinions: NDArray[np.float64], share: float) -> float:
    """The value that `share` of these reach; never 0, which would ask about what nobody doubts."""
    return max(float(np.quantile(opinions, 1 - share)), 1e-6) if len(opinions) else 1.0


def _merged(answers: Sequence[TierAnswer]) -> Detections:
    return merge_answers(answers, merged_ref([each.detections.model for each in answers]))


def _merged_ap(seen: SeenImages, looks: Sequence[TierLooks]) -> float:
    return report(_tables(seen, looks)["merged_all"]).ap


def _tables(seen: SeenImages, looks: Sequence[TierLooks]) -> dict[str, MatchTable]:
    class_ids = _class_ids(seen)
    return {
        way: match(_evaluated(seen, [getattr(each, way) for each in looks]), class_ids, (BoxSize.ALL,))
        for way in WAYS
    }


def _evaluated(seen: SeenImages, answers: Sequence[Candidates | Detections]) -> list[EvaluatedFrame]:
    return [
        EvaluatedFrame(frame.group, frame.truth, said)
        for frame, said in zip(seen.frames, answers, strict=True)
    ]


def _class_ids(seen: SeenImages) -> list[int]:
    return sorted({int(class_id) for frame in seen.frames for class_id in frame.truth.class_ids})


def _pct(values: Sequence[bool]) -> float:
    return 100 * float(np.mean(values))
