"""What is said, byte for byte as the documentation shows it, and never something that is not JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.publish.clock_sync import is_clock_synced
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.messages import (
    event_message,
    health_message,
    read_command,
    result_message,
    shown_time,
    state_message,
    status_message,
    to_json,
)
from edge_agent.publish.publishing import CameraCondition, CameraStatus, EventKind, Feature
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import Label, label_named
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from tests.published_values import MODEL, NOON, moment, some_event, some_result, some_track, some_tracking

NAMES = LabelNames()
DOCUMENTED = re.findall(
    r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text(), re.DOTALL
)


def strictly(data: bytes) -> Any:
    """JSON as the strictest reader takes it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


@pytest.mark.parametrize(
    "said",
    [
        lambda: result_message("box", "gate", some_result(), some_tracking(some_track()), NAMES, True),
        lambda: event_message("box", some_event()),
        lambda: status_message("gate", CameraStatus(CameraCondition.LOST, NOON, "no frame for 10 s")),
        lambda: health_message("box", {"temperature_c": 48.5}, True),
    ],
)
def test_the_examples_in_the_documentation_are_what_is_said(said: Callable[[], bytes]) -> None:
    assert strictly(said()) in [json.loads(example) for example in DOCUMENTED]


def test_a_later_answer_says_who_gave_it_and_why_it_was_asked_for() -> None:
    decision = RouteDecision(Route.EDGE, (Reason.UNCERTAIN_BOXES, Reason.AUDIT), 0.125, 0.5, 0.25)
    result = some_result(
        revision=1, answered_by=Tier.EDGE, decision=decision, degraded="cloud_lost", detections=_nothing()
    )
    said = strictly(result_message("box", "gate", result, some_tracking(), NAMES, None))
    assert (said["revision"], said["tier"], said["degraded"]) == (1, "edge", "cloud_lost")
    assert said["decision"]["reasons"] == ["uncertain_boxes", "audit"]
    assert (said["decision"]["expected_gain"], said["decision"]["send_probability"]) == (0.125, 0.25)
    assert (said["detections"], said["tracks"], said["clock_synced"]) == ([], [], None)


def _nothing() -> Detections:
    return Detections.empty(ImageSize(1, 1), MODEL)


def test_real_names_are_in_the_json_whatever_they_hold() -> None:
    for name in ("back yard/+#$", "Küche", "x" * 300, 'quote " and \\', "\ud800 lone"):
        said = strictly(result_message(name, name, some_result(), some_tracking(), NAMES, True))
        assert said["camera"] == said["device"] == name.encode("utf-8", "replace").decode()


def test_boxes_moved_over_the_border_are_cut_there_in_shares_only() -> None:
    track = some_track(box_xyxy=(-32.0, 0.0, 700.0, 481.0))
    said = strictly(result_message("box", "gate", some_result(), some_tracking(track), NAMES, True))
    assert said["tracks"][0]["box"] == [0, 0, 1, 1]
    assert said["tracks"][0]["box_px"] == [-32, 0, 700, 481]


@given(st.tuples(*[st.floats(-1e4, 1e4)] * 4), st.floats(0, 1))
def test_a_box_is_said_with_its_numbers_rounded(box: tuple[float, float, float, float], score: float) -> None:
    track = some_track(box_xyxy=box, score=score)
    tracking = some_tracking(track)
    said = strictly(result_message("box", "gate", some_result(), tracking, NAMES, True))["tracks"][0]
    size = tracking.image_size
    shares = [box[0] / size.width, box[1] / size.height, box[2] / size.width, box[3] / size.height]
    assert said["score"] == round(score, 4)
    assert said["box_px"] == [round(side, 2) for side in box]
    assert said["box"] == [round(min(max(share, 0.0), 1.0), 6) for share in shares]


def test_a_box_without_a_place_is_said_as_null_and_the_others_as_they_are() -> None:
    lost, there = some_track(box_xyxy=(math.nan, 0.0, 10.0, 10.0)), some_track()
    said = strictly(result_message("box", "gate", some_result(), some_tracking(lost, there), NAMES, True))
    assert said["tracks"][0]["box_px"] == [None, 0, 10, 10]
    assert None not in said["tracks"][1]["box_px"]


def test_a_label_may_hold_anything() -> None:
    for name in ('quote " and \\', "Küche", "\ud800 lone", "%s %d"):
        names = LabelNames([Label(424242, name)])
        track = some_track(class_id=424242)
        said = strictly(result_message("box", "gate", some_result(), some_tracking(track), names, True))
        assert said["tracks"][0]["label"] == name.encode("utf-8", "replace").decode()


def test_labels_of_models_that_answered_are_known_and_others_have_a_stand_in() -> None:
    names = LabelNames([label_named("forklift")])
    names.learn([Label(5000, "crate"), Label(5000, "later name"), Label(0, "human")])
    assert names.name_of(label_named("forklift").id) == "forklift"
    assert names.name_of(5000) == "crate"
    assert names.name_of(0) == "person"
    assert names.name_of(424242) == "class-424242"


def test_the_end_of_an_object_has_its_time() -> None:
    said = strictly(event_message("box", some_event(EventKind.END, ended_at=moment(2.5))))
    assert said["type"] == "end"
    assert said["after"]["end_time"] == NOON.timestamp() + 2.5
    assert said["after"]["active"] is False


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.floats(),
            st.integers(),
            st.text(),
            st.binary(),
            st.floats(width=32).map(np.float32),
            st.just(np.array([1.0, np.nan])),
        ),
        lambda inner: st.one_of(
            st.lists(inner), st.dictionaries(st.one_of(st.text(), st.integers(), st.floats()), inner)
        ),
        max_leaves=20,
    )
)
def test_anything_at_all_becomes_strict_json(value: object) -> None:
    strictly(to_json(value))


def test_numbers_that_are_not_finite_become_null() -> None:
    facts = {
        "nan": float("nan"),
        "inf": [float("inf"), -1.5],
        "np": np.float32("nan"),
        "at": NOON,
        "tier": Tier.EDGE,
    }
    said = strictly(health_message("box", facts, False))
    assert said["nan"] is None and said["inf"] == [None, -1.5] and said["np"] is None
    assert said["at"] == "2025-06-01T12:00:00.000Z"


def test_times_are_utc_whatever_zone_they_come_in() -> None:
    assert (
        shown_time(datetime(2025, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))) == "2024-12-31T23:00:00.000Z"
    )
    assert shown_time(datetime(2025, 1, 1, tzinfo=UTC)).endswith("Z")


@pytest.mark.parametrize(
    ("feature", "payload", "value"),
    [
        (Feature.DETECT, b"ON", True),
        (Feature.DETECT, b" off\n", False),
        (Feature.GATE, b"On", True),
        (Feature.FPS, b"5", 5.0),
        (Feature.FPS, b"0.5", 0.5),
    ],
)
def test_commands_are_read(feature: Feature, payload: bytes, value: object) -> None:
    assert read_command(feature, payload) == value


@pytest.mark.parametrize(
    ("feature", "payload"),
    [
        (Feature.DETECT, b""),
        (Feature.DETECT, b"1"),
        (Feature.GATE, b"\xff"),
        (Feature.FPS, b"ON"),
        (Feature.FPS, b"nan"),
        (Feature.FPS, b"inf"),
        (Feature.FPS, b"-1"),
        (Feature.FPS, b"0"),
        (Feature.FPS, b"241"),
        (Feature.FPS, b"9" * 100_000),
    ],
)
def test_what_is_no_command_is_refused_and_says_what_was_expected(feature: Feature, payload: bytes) -> None:
    with pytest.raises(Malformed, match="expected") as refused:
        read_command(feature, payload)
    assert len(str(refused.value)) < 300


@given(st.sampled_from(Feature), st.binary(max_size=200))
def test_no_bytes_break_the_reader(feature: Feature, payload: bytes) -> None:
    try:
        value = read_command(feature, payload)
    except Malformed:
        return
    assert read_command(feature, state_message(feature, value)) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(
    ("feature", "value"), [(Feature.DETECT, 1.0), (Feature.FPS, True), (Feature.FPS, 0.0)]
)
def test_a_state_of_the_wrong_kind_is_refused(feature: Feature, value: float) -> None:
    with pytest.raises(Malformed, match="expected"):
        state_message(feature, value)


def test_the_kernel_is_asked_about_the_clock() -> None:
    assert is_clock_synced() in (True, False, None)
