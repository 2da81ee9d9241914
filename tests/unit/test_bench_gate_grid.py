"""The grid search on recorded answers: what a choice costs and gives, which points get a name, and what is told."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from calibration.grid_search import Found
from fovea.bench.calibration_report import report_html
from fovea.bench.cascade_recording import RecordedFrame
from fovea.bench.gate_grid import (
    BALANCED,
    FRUGAL,
    SHARP,
    GridResult,
    best_tell_from,
    choose,
    qoe_of,
    run_grid,
)
from fovea.bench.gate_grid_report import FRONT_HEADINGS, POLICY_HEADINGS, front_rows, grid_part, policy_row
from fovea.bench.gate_grid_set import CAMERA, CLOUD, EDGE, Costs, GridSet, merge_of
from fovea.bench.tiers_outcome import TierTimes
from fovea.core.detections import Candidates, Detections
from fovea.core.errors import Malformed
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.gate import Opinion
from fovea.core.policy import Policy, policies_from_json
from fovea.core.routing import Reason
from tests.builders import model_ref
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames

TIMES = TierTimes((0.01,), (0.004,), (0.05,), (0.4,), 0.01, 0.002, 0.04, 0.3)
FEATURES = FrameFeatures(**dict.fromkeys(FEATURE_NAMES, 0.1))
MERGE = merge_of({"edge_trust": 0.8, "cloud_trust": 0.5, "absent_share": 0.7})


def detections(candidates: Candidates) -> Detections:
    channel = candidates.class_scores.argmax(axis=1)
    scores = candidates.class_scores.max(axis=1)
    order = np.argsort(-scores, kind="stable")
    ids = np.array(LABELS.ids, np.int32)[channel]
    return Detections(candidates.boxes_xyxy[order], scores[order], ids[order], SIZE, model_ref())


class _Street(RecordedFrame):
    """Knows the labels of the made-up frames."""

    def labels_of(self, tier: object) -> object:  # type: ignore[override]
        return LABELS


def grid_set(count: int, seed: int, prefix: str) -> GridSet:
    """Every other frame is hard: the camera sees nothing in it, and the gate knows. The cloud sees it best."""
    frames, opinions = [], []
    rough, sharp = random_frames(count, seed, jitter_px=8), random_frames(count, seed, jitter_px=1)
    for number, (blurred, clear) in enumerate(zip(rough, sharp, strict=True)):
        assert isinstance(blurred.seen, Candidates) and isinstance(clear.seen, Candidates)
        is_hard = bool(number % 2)
        edge, cloud = detections(blurred.seen), detections(clear.seen)
        camera = Detections.empty(SIZE, model_ref()) if is_hard else edge
        clip = f"{prefix}-{number // 4}"
        frames.append(
            _Street(
                clip, "day", 0, number * 0.5, clear.truth, FEATURES, FEATURES, camera, edge, cloud, 50_000
            )
        )
        gain = 0.2 + 0.2 * math.sin(number) ** 2 if is_hard else 0.01
        opinions.append(Opinion(0.9 if is_hard else 0.2, gain, (Reason.EXPECTED_GAIN,)))
    return GridSet(
        tuple(frames),
        tuple(frame.at_s for frame in frames),
        tuple(opinions),
        tuple(opinions),
        Costs(TIMES),
        LABELS.ids,
    )


@pytest.fixture(scope="module")
def sets() -> tuple[GridSet, GridSet]:
    return grid_set(48, 1, "search"), grid_set(48, 2, "judge")


@pytest.fixture(scope="module")
def found(sets: tuple[GridSet, GridSet], tmp_path_factory: pytest.TempPathFactory) -> GridResult:
    folder = tmp_path_factory.mktemp("grid")
    return run_grid(*sets, "made-up frames", folder, resamples=50, most_points=150)


def test_asking_more_tiers_costs_more_of_everything(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    for name, values in search.means(np.full(len(search), CAMERA)).items():
        dearer = [search.means(np.full(len(search), way))[name].mean() for way in (EDGE, CLOUD)]
        assert values.mean() < dearer[0] < dearer[1], name


def test_latency_and_bytes_are_those_of_the_steps_and_links() -> None:
    costs = Costs(TIMES)
    assert costs.latency_s(CAMERA, 50_000) == pytest.approx(0.01)
    up_and_down_s = (50_000 + TIMES.question_bytes + TIMES.answer_bytes) * 8 / 100e6
    assert costs.latency_s(EDGE, 50_000) == pytest.approx(0.01 + 0.004 + 0.05 + 0.001 + up_and_down_s)
    assert costs.sent_bytes(CAMERA, 50_000) == 0
    assert costs.sent_bytes(CLOUD, 50_000) == 2 * (50_000 + TIMES.question_bytes)


def test_a_budget_is_spent_on_the_frames_that_gain(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    ways = search.ways(0.1, 0.3, 0.0)
    asked = np.flatnonzero(ways == EDGE)
    assert 0.15 <= len(asked) / len(search) <= 0.4
    assert (asked % 2 == 1).mean() > 0.9
    assert not (ways == CLOUD).any()


def test_a_threshold_above_every_opinion_asks_nobody(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    assert not search.ways(0.95, 1.0, 1.0).any()
    assert not search.ways(0.1, 1.0, 1.0, np.zeros(len(search), bool)).any()


def test_only_what_was_asked_goes_on_to_the_cloud(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    ways = search.ways(0.1, 1.0, 1.0)
    assert (ways == CLOUD).any()
    assert (ways[::2] <= EDGE).all()  # of the easy frames the second opinion is low


def test_where_latency_counts_for_all_nobody_is_asked(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    assert not search.preferred(qoe_of(0.7), 0.3).any()
    assert search.preferred(qoe_of(0.0), 0.3)[1::2].all()


def test_the_figures_of_a_choice_are_those_of_its_frames(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    table = search.matched(MERGE)
    nobody, hard = np.zeros(len(search), np.int64), np.arange(len(search)) % 2
    alone, asked = search.figures(table, nobody), search.figures(table, hard)
    assert asked["ap"] > alone["ap"]
    assert (alone["asked_share"], asked["asked_share"]) == (0.0, 0.5)
    assert asked["forwarded_share"] == 0.0


def test_shares_of_trust_become_trust() -> None:
    assert MERGE.edge == pytest.approx(4.0)
    assert MERGE.cloud == pytest.approx(5.0)
    assert MERGE.absent_share == 0.7


def point(ap: float, joules: float) -> Found:
    return Found((ap, joules), {"ap": ap, "joules_per_frame": joules})


def test_names_go_to_the_sharpest_point_and_to_the_cheapest_that_keep_enough() -> None:
    front = [point(0.20, 0.1), point(0.26, 0.3), point(0.38, 1.0), point(0.39, 2.0), point(0.40, 9.0)]
    chosen = choose(front, own_ap=0.1)
    assert [chosen[name].figures["ap"] for name in (FRUGAL, BALANCED, SHARP)] == [0.26, 0.38, 0.40]
    assert list(chosen) == [FRUGAL, BALANCED, SHARP]


def test_a_front_of_one_point_gets_all_names_and_an_empty_one_none() -> None:
    only = point(0.2, 1.0)
    assert set(map(id, choose([only], own_ap=0.2).values())) == {id(only)}
    with pytest.raises(Malformed, match="at least one point"):
        choose([], 0.1)


def test_the_search_finds_that_asking_pays_and_measures_it_on_other_frames(found: GridResult) -> None:
    sharp = found.policies[-1]
    assert sharp.name == SHARP and sharp.measured is not None
    assert sharp.measured.ap.value > found.alone["camera alone"]["ap"]
    assert sharp.measured.ap.low <= sharp.measured.ap.value <= sharp.measured.ap.high
    assert sharp.measured.frames == 48
    joules = [policy.measured.joules_per_frame.value for policy in found.policies if policy.measured]
    assert joules[0] <= joules[-1]


def test_policies_travel_in_the_result(found: GridResult) -> None:
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert policies_from_json({name: data[name] for name in ("format", "policies")}) == found.policies
    assert len(data["front"]) == len(found.front)


def test_the_same_search_again_measures_nothing_and_finds_the_same(
    sets: tuple[GridSet, GridSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_grid(*sets, "made-up frames", tmp_path, resamples=10, most_points=30)
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("grid-*")}
    again = run_grid(*sets, "made-up frames", tmp_path, resamples=10, most_points=30)
    assert {path.name: path.stat().st_size for path in tmp_path.glob("grid-*")} == sizes
    assert [each.point for each in again.front] == [each.point for each in first.front]


def test_frames_that_chose_may_not_judge(sets: tuple[GridSet, GridSet], tmp_path: Path) -> None:
    search, _ = sets
    with pytest.raises(Malformed, match="other clips"):
        run_grid(search, search, "the same", tmp_path)


def test_what_is_told_is_where_f1_is_best(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    everything = search.of_clips(search.matched(MERGE), np.full(len(search), CLOUD))
    assert 0.1 <= best_tell_from(everything) <= 0.9


def test_report_and_tables_hold_every_policy(found: GridResult) -> None:
    part = grid_part(found, "made-up frames")
    page = report_html("All", [part])
    assert all(policy.name in page for policy in found.policies)
    assert page.count("data:image/png;base64,") == 3
    assert all(len(row) == len(FRONT_HEADINGS) for row in front_rows(found))
    assert {row[0] for row in front_rows(found)} >= {each for each in found.chosen if each == SHARP}
    assert len(policy_row(Policy("plain"))) == len(policy_row(found.policies[0])) == len(POLICY_HEADINGS)
    assert all(math.isfinite(value) for value in part.figures.values())


def test_a_policy_without_a_measurement_says_so() -> None:
    assert policy_row(Policy("plain"))[1:3] == ("-", "-")


def test_a_set_without_frames_is_refused(sets: tuple[GridSet, GridSet]) -> None:
    search, _ = sets
    with pytest.raises(Malformed, match="at least one recorded frame"):
        GridSet.of([], 1.0, None, search.costs, LABELS.ids)  # type: ignore[arg-type]
