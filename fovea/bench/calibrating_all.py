"""`fovea calibrate all` and `fovea calibrate grid`, step by step: bundles and frames in, a calibrated bundle and the
sections of one report out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibration.align import AlignSettings, align
from calibration.align_models import align_bundles
from calibration.align_pairs import ModelAnswers, calibrated_boxes
from calibration.align_report import AlignmentReport
from calibration.matching import BoxSize, MatchTable, match
from calibration.truth import EvaluatedFrame
from fovea.bench.calibrating import (
    CalibratedPair,
    fit_gates,
    new_version,
    scores_part,
    with_gate,
    with_scores,
)
from fovea.bench.calibration_report import ReportPart
from fovea.bench.cascade_recording import RecordedFrame, Trio
from fovea.bench.gate_figures import evidence
from fovea.bench.gate_fit import (
    CAMERA_ASKS,
    EDGE_ASKS,
    GateSample,
    Pair,
    Step,
    fit_and_price,
    recorded,
)
from fovea.bench.gate_grid import GridResult, run_grid
from fovea.bench.gate_grid_report import grid_part
from fovea.bench.gate_grid_set import Costs, GridSet
from fovea.bench.gate_grid_times import tier_times
from fovea.bench.gate_set import AskSet
from fovea.bench.own_images import Parts, SeenImage, class_ids_of, recorded_images
from fovea.bench.scores import FittedScores, fit_bundle_scores, fit_matched_scores, street_frames_of
from fovea.bench.street_frames import CLASS_IDS, SUITE
from fovea.bench.tiers_policy import Gates
from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference
from fovea.runtime.bundle import Bundle
from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import load_suite

_TIMED_FRAMES = 10
_ALIGN_CLIPS = 4

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many resamples of the clips are drawn for intervals, and how many ways of asking are measured at most."""

    resamples: int = 300
    most_points: int = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """What came of it: the bundles that were written, by who runs them, the sections, and the search."""

    camera: Path
    edge: Path
    parts: tuple[ReportPart, ...]
    grid: GridResult


def calibrate_on_street(
    trio: Trio,
    sample: GateSample,
    folder: Path,
    out: Path,
    version: str,
    note: Note,
    effort: Effort = Effort(),
) -> Calibrated:
    """Scores of the camera's bundle, its alignment with the edge's, both gates, and the policies, on street clips
    that no model was trained on. Raises what fitting raises."""
    own, edge = Bundle.open(trio.camera), Bundle.open(trio.edge)
    note("scores: looking at frames")
    fitted = fit_bundle_scores(
        own,
        street_frames_of("train", max(sample.fit_clips // 2, 5)),
        street_frames_of("val", min(sample.val_clips, 6)),
    )
    calibrated = with_scores(own, fitted, version)
    note("alignment: looking at frames")
    frames = ((frame.group, frame.pixels) for frame in street_frames_of("val", _ALIGN_CLIPS))
    alignment = align_bundles(calibrated, edge, frames)
    trio = replace(trio, camera=calibrated.write(out))
    pairs = fit_gates(trio, sample, folder, _step(note), note, resamples=effort.resamples)
    trio = _with_gates(trio, pairs, version, out)
    grid = grid_on_street(trio, sample, folder, note, effort)
    parts = (
        scores_part(own, fitted),
        align_part(alignment),
        *(pair.part for pair in pairs),
        grid_part(grid.result, grid.on),
    )
    return Calibrated(with_policies(trio.camera, grid.result, out), trio.edge, parts, grid.result)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A search, and on which frames it was judged, in words."""

    result: GridResult
    on: str


def grid_on_street(
    trio: Trio, sample: GateSample, folder: Path, note: Note, effort: Effort = Effort()
) -> Grid:
    """Searches on validation clips, judges on test clips; gates are those of the bundles."""
    search, judge = (recorded(sample, split, trio, folder, _step(note)) for split in ("val", "test"))
    lasts_s = {split: sample.spans(split)[0].lasts_s for split in ("val", "test")}
    note("times of the models")
    times = tier_times(trio, _street_pixels(), folder / f"times-{_names(trio)}.json")
    gates, costs = Gates.of(trio), Costs(times)
    on = f"{len(judge)} test frames of the street ({sample.test_clips} clips in each of {len(CONDITIONS)} conditions)"
    result = run_grid(
        GridSet.of(search, lasts_s["val"], gates, costs, CLASS_IDS),
        GridSet.of(judge, lasts_s["test"], gates, costs, CLASS_IDS),
        on,
        folder,
        note,
        effort.resamples,
        effort.most_points,
    )
    return Grid(result, on)


def with_policies(camera: Path, result: GridResult, out: Path, version: str = "") -> Path:
    """Writes the camera's bundle with the policies that were found."""
    own = Bundle.open(camera)
    out.mkdir(parents=True, exist_ok=True)
    return own.with_policies(result.policies, **new_version(own, version)).write(out)


def calibrate_on_images(
    trio: Trio,
    images: Sequence[SeenImage],
    folder: Path,
    out: Path,
    version: str,
    note: Note,
    effort: Effort = Effort(),
) -> Calibrated:
    """The same on somebody's own images: scores of all three bundles (who merges needs them all), the alignment of
    the camera's with the edge's, both gates, and the policies."""
    parts = Parts.of(images)
    bundles, sections = [], []
    for place, path in enumerate((trio.camera, trio.edge, trio.cloud)):
        note(f"scores of {path.stem}")
        own = Bundle.open(path)
        fitted = _image_scores(own, place, parts)
        bundles.append(with_scores(own, fitted, version))
        sections.append(scores_part(own, fitted))
    note("alignment")
    sections.append(align_part(_aligned(bundles[0], bundles[1], [*parts.fit, *parts.search])))
    trio = Trio(*(bundle.write(out) for bundle in bundles))
    fit, search, judge = (recorded_images(part, bundles) for part in (parts.fit, parts.search, parts.judge))
    class_ids = class_ids_of(images)
    pairs = []
    for pair in (CAMERA_ASKS, EDGE_ASKS):
        note(f"gate of the {pair.asks}")
        pairs.append(_image_gate(pair, (fit, search, judge), class_ids, effort.resamples))
    trio = _with_gates(trio, pairs, version, out)
    sections += [pair.part for pair in pairs]
    note("times of the models")
    pixels = [image.pixels for image in images[:_TIMED_FRAMES]]
    costs = Costs(tier_times(trio, pixels, folder / f"times-{_names(trio)}.json"))
    gates, on = Gates.of(trio), f"{len(judge)} of your images"
    result = run_grid(
        GridSet.of(search, 1.0, gates, costs, class_ids),
        GridSet.of(judge, 1.0, gates, costs, class_ids),
        on,
        folder,
        note,
        effort.resamples,
        effort.most_points,
    )
    sections.append(grid_part(result, on))
    return Calibrated(with_policies(trio.camera, result, out), trio.edge, tuple(sections), result)


def align_part(report: AlignmentReport) -> ReportPart:
    """The section about what camera and edge disagree on. Nothing is corrected: scores were just fitted."""
    confusions = "; ".join(
        f"{each.share:.0%} of what the camera calls {each.weak_says} is {each.strong_says} to the edge"
        for each in report.confusions
    )
    text = (
        f"{report.pairs} boxes that both see in {report.frames} frames, {report.agreement:.1%} of one class. "
        f"{report.summary}",
        *([f"{confusions}."] if confusions else []),
    )
    figures = {
        "class_kl": report.class_kl,
        "class_kl_threshold": report.class_kl_threshold,
        "score_kl": report.score_kl,
        "score_kl_threshold": report.score_kl_threshold,
        "agreement": report.agreement,
    }
    return ReportPart("Alignment of camera and edge", text, figures)


def _image_scores(bundle: Bundle, place: int, parts: Parts) -> FittedScores:
    def matched(images: Sequence[SeenImage]) -> MatchTable:
        seen = [EvaluatedFrame(each.clip, each.truth, each.candidates[place]) for each in images]
        return match(seen, bundle.manifest.label_set.ids, (BoxSize.ALL,))

    return fit_matched_scores(bundle, matched(parts.fit), matched([*parts.search, *parts.judge]))


def _aligned(camera: Bundle, edge: Bundle, images: Sequence[SeenImage]) -> AlignmentReport:
    settings = AlignSettings()

    def said(bundle: Bundle, place: int) -> ModelAnswers:
        calibration = bundle.calibration()
        boxes = [
            calibrated_boxes(_inference(bundle, image, place), calibration, settings.min_score)
            for image in images
        ]
        clips = tuple(image.clip for image in images)
        return ModelAnswers(str(bundle.ref), bundle.manifest.label_set, tuple(boxes), clips)

    return align(said(camera, 0), said(edge, 1), settings)


def _inference(bundle: Bundle, image: SeenImage, place: int) -> Inference:
    return answer(image.candidates[place], bundle.calibration(), 0.0, bundle.ref)


def _image_gate(
    pair: Pair, frames: tuple[Sequence[RecordedFrame], ...], class_ids: Sequence[int], resamples: int
) -> CalibratedPair:
    fit, search, judge = (AskSet.of(pair.frames_of(part, 1.0), class_ids) for part in frames)
    fitted = fit_and_price(fit, search)
    found = evidence(pair.asks, judge, search, fitted.gate, fitted.linear, resamples)
    return CalibratedPair(pair.asks, fitted, found)


def _with_gates(trio: Trio, pairs: Sequence[CalibratedPair], version: str, out: Path) -> Trio:
    camera, edge = (
        with_gate(Bundle.open(path), pair, version).write(out)
        for path, pair in zip((trio.camera, trio.edge), pairs, strict=True)
    )
    return replace(trio, camera=camera, edge=edge)


def _street_pixels() -> list[ImageArray]:
    clip = load_suite(SUITE).clip("val", CONDITIONS[0], 0)
    return [clip.frame(number * clip.fps // 2).pixels for number in range(_TIMED_FRAMES)]


def _names(trio: Trio) -> str:
    digests = (Bundle.open(path).ref.sha256[:6] for path in (trio.camera, trio.edge, trio.cloud))
    return "-".join(digests)


def _step(note: Note) -> Step:
    return lambda split, done, every: note(f"recording {split}: {done} of {every} clips")
