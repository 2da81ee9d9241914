"""Golden frames: a model that sees the same passes, and every kind of difference is named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fovea.core.arrays import ImageArray
from fovea.core.errors import Incompatible, Malformed
from fovea.runtime.bundle import Bundle
from fovea.runtime.golden import EXPECTED, check_golden, make_golden, read_golden
from fovea.runtime.onnx_detector import OnnxDetector
from tests.builders import scene, tiny_bundle
from tests.fakes import FakeDetector, Seen

BOX = (5.0, 5.0, 35.0, 30.0)
PERSON: Seen = [(BOX, 0.8, 0)]


def seeing(seen: Seen) -> FakeDetector:
    def look(_pixels: ImageArray) -> Seen:
        return seen

    return FakeDetector(look)


GOLDEN = make_golden(seeing(PERSON), [scene(), scene(seed=1)], answer_min_score=0.25)


def test_a_real_model_passes_its_own_golden_frames_after_the_way_through_a_file() -> None:
    bundle = tiny_bundle()
    detector = OnnxDetector.open(bundle, device="cpu")
    golden = make_golden(detector, [scene(seed=seed) for seed in range(3)], bundle.manifest.answer_min_score)
    again = Bundle.from_bytes(bundle.with_parts(golden).to_bytes())
    verdict = check_golden(again.parts, OnnxDetector.open(again, device="cpu"))
    assert verdict.is_same, verdict.reason
    assert verdict.reason == "3 golden frames were seen as expected"


def test_another_model_fails_the_golden_frames() -> None:
    bundle = tiny_bundle()
    golden = make_golden(OnnxDetector.open(bundle, device="cpu"), [scene()], 0.1)
    other = bundle.with_parts({}, input=bundle.manifest.input.model_copy(update={"scale": 0.001}))
    verdict = check_golden(golden, OnnxDetector.open(other, device="cpu"))
    assert not verdict.is_same
    assert "golden frame 00.png" in verdict.reason


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        ([], "expected person with score 0.800"),
        ([(BOX, 0.8, 1)], "expected person"),
        ([(BOX, 0.74, 0)], "expected person"),
        ([((5.0, 5.0, 35.0, 25.0), 0.8, 0)], "expected person"),
        ([*PERSON, ((40.0, 5.0, 50.0, 20.0), 0.5, 1)], "unexpected box of class 2 with score 0.500"),
        ([*PERSON, *PERSON], "unexpected box"),
    ],
    ids=["missed", "other class", "other score", "moved", "one more", "doubled"],
)
def test_each_difference_is_named(seen: Seen, word: str) -> None:
    verdict = check_golden(GOLDEN, seeing(seen))
    assert not verdict.is_same
    assert word in verdict.reason


@pytest.mark.parametrize(
    "seen",
    [
        PERSON,
        [((5.5, 5.0, 35.0, 30.0), 0.76, 0)],
        [*PERSON, ((40.0, 5.0, 50.0, 20.0), 0.29, 1)],
        [((40.0, 5.0, 50.0, 20.0), 0.26, 1), *PERSON],
    ],
    ids=["same", "within the tolerance", "weak newcomer", "order"],
)
def test_differences_within_the_tolerance_pass(seen: Seen) -> None:
    verdict = check_golden(GOLDEN, seeing(seen))
    assert verdict.is_same, verdict.reason


def test_a_box_at_the_answer_threshold_may_go_missing() -> None:
    golden = make_golden(seeing([(BOX, 0.27, 0)]), [scene()], answer_min_score=0.25)
    assert check_golden(golden, seeing([])).is_same


def test_what_nobody_would_be_told_of_may_differ_between_processors() -> None:
    faint: Seen = [((40.0, 5.0, 43.0, 14.0), 0.21, 0)]
    golden = make_golden(seeing([*PERSON, *faint]), [scene()], answer_min_score=0.05)
    assert check_golden(golden, seeing(PERSON)).is_same
    assert check_golden(golden, seeing([*PERSON, ((41.0, 5.0, 44.0, 13.0), 0.14, 0)])).is_same
    assert not check_golden(golden, seeing(faint)).is_same


def test_a_bundle_without_golden_frames_has_nothing_to_differ() -> None:
    verdict = check_golden(tiny_bundle(model=b"graph").parts, seeing(PERSON))
    assert verdict.is_same
    assert "no golden frames" in verdict.reason


def test_no_frames_and_too_many_are_refused() -> None:
    with pytest.raises(Malformed, match="1 to 100"):
        make_golden(seeing(PERSON), [], 0.25)
    with pytest.raises(Malformed, match="1 to 100"):
        make_golden(seeing(PERSON), [scene()] * 101, 0.25)


def _without_frame(parts: dict[str, bytes]) -> None:
    del parts["golden/01.png"]


def _with_stray_frame(parts: dict[str, bytes]) -> None:
    parts["golden/02.png"] = parts["golden/01.png"]


def _without_list(parts: dict[str, bytes]) -> None:
    del parts[EXPECTED]


def _with_short_scores(parts: dict[str, bytes]) -> None:
    expected = json.loads(parts[EXPECTED])
    expected["frames"][0]["scores"] = []
    parts[EXPECTED] = json.dumps(expected).encode()


def _with_text(parts: dict[str, bytes]) -> None:
    parts[EXPECTED] = b"expected"


@pytest.mark.parametrize(
    "damage", [_without_frame, _with_stray_frame, _without_list, _with_short_scores, _with_text]
)
def test_damaged_golden_parts_are_refused_when_the_bundle_is_built(
    damage: Callable[[dict[str, bytes]], None],
) -> None:
    parts = dict(GOLDEN)
    damage(parts)
    with pytest.raises(Malformed, match="golden"):
        tiny_bundle(model=b"graph", parts=parts)


def test_another_schema_of_golden_frames_is_incompatible() -> None:
    expected = json.loads(GOLDEN[EXPECTED])
    expected["schema_version"] = 2
    with pytest.raises(Incompatible, match="schema version 1"):
        read_golden({**GOLDEN, EXPECTED: json.dumps(expected).encode()})
