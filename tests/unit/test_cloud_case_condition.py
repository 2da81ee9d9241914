"""The light of a picture: a word for each, that follows from what was measured, and is counted."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.cases.condition import Condition, condition_of
from cloud.cases.picture_facts import measured
from cloud.cases.store import CaseStore, KeepRules, StoreAddress
from cloud.cases.stored_case import CaseFilter, ConditionCount
from fovea.runtime.images import encode_jpeg
from fovea.sim.suite import load_suite
from tests.unit.hard_cases import hard_case


@pytest.mark.parametrize(
    ("luminance", "contrast", "hour", "expected"),
    [
        (120, 50, 12, Condition.DAY),
        (120, 50, 3, Condition.DAY),
        (120, 10, 12, Condition.HAZE),
        (55, 20, 19, Condition.DUSK),
        (55, 20, 6, Condition.DAWN),
        (55, 20, 23, Condition.NIGHT),
        (55, 20, 4.9, Condition.NIGHT),
        (20, 30, 12, Condition.NIGHT),
        (0, 0, 0, Condition.NIGHT),
        (255, 0, 12, Condition.HAZE),
    ],
)
def test_a_picture_has_the_condition_that_its_light_and_its_hour_say(
    luminance: float, contrast: float, hour: float, expected: Condition
) -> None:
    assert condition_of(luminance, contrast, hour) is expected


@given(st.floats(0, 255), st.floats(0, 128), st.floats(0, 24, exclude_max=True))
def test_every_picture_has_a_condition(luminance: float, contrast: float, hour: float) -> None:
    assert condition_of(luminance, contrast, hour) in Condition


@pytest.mark.parametrize(
    ("named", "expected"),
    [("day", Condition.DAY), ("night", Condition.NIGHT), ("fog", Condition.HAZE), ("dusk", Condition.DUSK)],
)
def test_the_street_looks_like_what_it_is_called(named: str, expected: Condition) -> None:
    suite = load_suite("street-v1")
    found = []
    for index in range(3):
        facts = measured(encode_jpeg(suite.clip("val", named, index).frame(0).pixels))
        found.append(condition_of(facts.luminance, facts.contrast, 18))
    assert found.count(expected) >= 2, found


def grey(level: int, size: int = 64) -> bytes:
    """Half a bit darker, half a bit brighter than `level`, by 30 each."""
    pixels = np.full((size, size, 3), level - 30, np.uint8)
    pixels[:, size // 2 :] = level + 30
    return encode_jpeg(pixels)


def test_cases_are_counted_by_camera_and_condition_in_the_time_zone_of_the_site(tmp_path: Path) -> None:
    rules = KeepRules(time_zone=ZoneInfo("Asia/Tokyo"))
    store = CaseStore.open(StoreAddress.in_folder(tmp_path), rules)
    noon_in_london = datetime(2025, 3, 1, 12, tzinfo=ZoneInfo("Europe/London"))
    bright, dim, dark = grey(150), grey(55), grey(35)
    store.add(hard_case(1, jpeg=bright, camera="b"))
    store.add(hard_case(2, jpeg=dim, camera="a", captured_at=noon_in_london))
    store.add(hard_case(3, jpeg=dark, camera="a", reasons=("audit",)))
    counts = store.count_by_condition()
    assert counts == (
        ConditionCount("a", "dusk", 1, 0, 0, len(dim)),
        ConditionCount("a", "night", 1, 1, 0, len(dark)),
        ConditionCount("b", "day", 1, 0, 0, len(bright)),
    )
    assert [case.frame_id.sequence for case in store.walk(CaseFilter(condition="night"))] == [3]
    store.close()
