"""Desired and reported state: what is written is what is read, and a device that is in stays in."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.release import (
    Agreement,
    Asked,
    Compat,
    DesiredState,
    Health,
    ModelPin,
    Phase,
    Probation,
    ReportedState,
    ShadowReport,
    Stage,
    TargetFacts,
    channel_target,
    cohort_place,
)

OLD = ModelPin("models/street/street-1.0.fovea", "street", "1.0", "a" * 64)
NEW = ModelPin("models/street/street-1.1.fovea", "street", "1.1", "b" * 64)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def desired(stage: Stage = Stage.CANARY, run_share: float = 0.05, **changes: Any) -> DesiredState:
    fields: dict[str, Any] = {
        "group": "north",
        "family": "street",
        "serial": 7,
        "issued_at": AT,
        "expires_at": AT + timedelta(days=7),
        "champion": OLD,
        "candidate": None if stage in (Stage.IDLE, Stage.BACK) else NEW,
        "stage": stage,
        "shadow_share": 0.1,
        "run_share": run_share,
        "salt": "s1",
        "probation": Probation(100, 60.0, 80.0),
        "policy": {"tell_from": 0.3},
    }
    return DesiredState(**(fields | changes))


def facts() -> TargetFacts:
    return TargetFacts(NEW, 12, AT, Compat(("aarch64", "x86_64"), "1.27", "0.1.0", (384, 640), ("camera",)))


def reported(**changes: Any) -> ReportedState:
    fields: dict[str, Any] = {
        "device": "cam-1",
        "group": "north",
        "agent_version": "0.1.0",
        "boot_id": "b00t",
        "at": AT,
        "clock_synced": True,
        "serial": 7,
        "counter_floor": 12,
        "running": NEW,
        "last_good": OLD,
        "phase": Phase.PROBATION,
        "reason": None,
        "health": Health(1000, 0, 31.5, 140.0, 3600.0),
        "asked": Asked(1000, 30),
        "agreement": Agreement("b" * 64).plus(0.8, 1.0).plus(0.5, 20.0),
        "shadow": ShadowReport("b" * 64, 50, 0, None, 0.9),
    }
    return ReportedState(**(fields | changes))


def over_the_wire(value: Any) -> Any:
    return json.loads(json.dumps(value.to_json(), allow_nan=False))


@pytest.mark.parametrize("stage", list(Stage))
def test_a_desired_state_of_every_stage_comes_back_as_it_was_written(stage: Stage) -> None:
    state = desired(stage)
    assert DesiredState.from_json(over_the_wire(state)) == state


def test_pins_facts_and_reported_states_come_back_as_they_were_written() -> None:
    assert ModelPin.from_json(over_the_wire(NEW)) == NEW
    assert TargetFacts.from_json(over_the_wire(facts())) == facts()
    assert ReportedState.from_json(over_the_wire(reported())) == reported()
    bare = reported(running=None, last_good=None, reason="no model yet", agreement=None, shadow=None)
    assert ReportedState.from_json(over_the_wire(bare)) == bare


_times = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
_shares = st.floats(0, 1)
_pins = st.builds(
    lambda name, digit: ModelPin(f"models/street/{name}.fovea", name, "1.2", digit * 64),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True),
    st.sampled_from("0123456789abcdef"),
)
_policies = st.none() | st.dictionaries(
    st.text(max_size=8),
    st.none() | st.booleans() | st.integers(-9, 9) | _shares | st.lists(st.text(max_size=3)),
)


@given(
    times=st.tuples(_times, st.timedeltas(timedelta(seconds=1), timedelta(days=3000))),
    stage=st.sampled_from(Stage),
    pins=st.tuples(_pins, _pins),
    shares=st.tuples(_shares, _shares),
    salt=st.text(max_size=10),
    probation=st.builds(Probation, st.integers(0, 10**6), st.floats(0, 1e6), st.none() | st.floats(0.1, 1e6)),
    policy=_policies,
)
def test_whatever_is_well_formed_survives_json(
    times: tuple[datetime, timedelta],
    stage: Stage,
    pins: tuple[ModelPin, ModelPin],
    shares: tuple[float, float],
    salt: str,
    probation: Probation,
    policy: Any,
) -> None:
    state = desired(
        stage,
        shares[1],
        issued_at=times[0],
        expires_at=times[0] + times[1],
        champion=pins[0],
        candidate=None if stage in (Stage.IDLE, Stage.BACK) else pins[1],
        shadow_share=shares[0],
        salt=salt,
        probation=probation,
        policy=policy,
    )
    assert DesiredState.from_json(over_the_wire(state)) == state


@given(device=st.text(min_size=1, max_size=30), salt=st.text(max_size=10), shares=st.tuples(_shares, _shares))
def test_a_device_of_the_cohort_stays_in_it_as_the_share_rises(
    device: str, salt: str, shares: tuple[float, float]
) -> None:
    few, many = sorted(shares)
    is_in_few = desired(run_share=few, salt=salt).for_device(device).run == NEW
    is_in_many = desired(Stage.QUARTER, run_share=many, salt=salt).for_device(device).run == NEW
    assert is_in_many or not is_in_few
    assert desired(Stage.ALL, run_share=1.0, salt=salt).for_device(device).run == NEW
    assert desired(run_share=0.0, salt=salt).for_device(device).run == OLD


def test_the_cohort_is_about_as_large_as_its_share_and_another_salt_draws_others() -> None:
    devices = [f"cam-{number}" for number in range(2000)]
    first = {each for each in devices if cohort_place("a", each) < 0.25}
    second = {each for each in devices if cohort_place("b", each) < 0.25}
    assert 400 < len(first) < 600
    assert 50 < len(first & second) < 220


def test_in_shadow_everyone_runs_the_champion_and_looks_with_the_candidate_too() -> None:
    assigned = desired(Stage.SHADOW, run_share=1.0).for_device("cam-1")
    assert (assigned.run, assigned.shadow, assigned.shadow_share) == (OLD, NEW, 0.1)
    assert assigned.policy == {"tell_from": 0.3}


@pytest.mark.parametrize("stage", [Stage.IDLE, Stage.BACK])
def test_without_a_candidate_everyone_runs_the_champion_alone(stage: Stage) -> None:
    assigned = desired(stage, run_share=1.0).for_device("cam-1")
    assert (assigned.run, assigned.shadow, assigned.shadow_share) == (OLD, None, 0.0)


_MISTAKES = {
    "serial of 0": ({"serial": 0}, "serial: expected 1 or more, got 0"),
    "serial of true": ({"serial": True}, "desired state.serial: expected a whole number, got True"),
    "serial as text": ({"serial": "7"}, "desired state.serial: expected a whole number, got '7'"),
    "share over 1": ({"run_share": 1.5}, "run_share: expected 0 to 1, got 1.5"),
    "share of NaN": ({"run_share": math.nan}, "desired state.run_share: expected a finite number, got nan"),
    "huge share": ({"run_share": 10**400}, "desired state.run_share: expected a finite number"),
    "unknown stage": ({"stage": "half"}, "desired state.stage: expected one of idle, shadow"),
    "stage as a list": ({"stage": ["all"]}, "desired state.stage: expected one of idle, shadow"),
    "no candidate": ({"candidate": None}, "expected a candidate in stage canary"),
    "naive time": ({"issued_at": "2026-01-01T00:00:00"}, "desired state.issued_at: expected a time like"),
    "time as a number": ({"issued_at": 12}, "desired state.issued_at: expected a time like"),
    "expired at birth": ({"expires_at": "2025-01-01T00:00:00Z"}, "expected a time after issued_at"),
    "a path for a group": ({"group": "../x"}, "desired state group: expected lower-case letters"),
    "foreign family": ({"family": "shop"}, "champion: expected a model of shop"),
    "escaping target": (
        {"champion": OLD.to_json() | {"target": "models/street/../../etc/x.fovea"}},
        "expected models/<family>/<file>.fovea",
    ),
    "short digest": ({"champion": OLD.to_json() | {"sha256": "ab"}}, "sha256 of 64 hex digits"),
    "a pin as text": ({"champion": "street"}, "desired state.champion: expected an object, got 'street'"),
    "unknown field": ({"speed": 1}, "desired state: unknown field 'speed'"),
    "policy as a list": ({"policy": [1]}, "desired state.policy: expected an object"),
    "negative probation": (
        {"probation": {"frames": -1, "seconds": 1, "max_ms_p95": None}},
        "probation frames: expected 0 or more",
    ),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_a_mistake_in_a_desired_state_is_named(mistake: str) -> None:
    change, said = _MISTAKES[mistake]
    with pytest.raises(Malformed, match=r"desired state|model pin|probation|model ref") as caught:
        DesiredState.from_json(desired().to_json() | change)
    assert said in str(caught.value)


@pytest.mark.parametrize("field", sorted(set(desired().to_json()) - {"policy"}))
def test_a_field_that_is_missing_is_named(field: str) -> None:
    value = desired().to_json()
    del value[field]
    with pytest.raises(Malformed, match=rf"desired state\.{field}: missing"):
        DesiredState.from_json(value)


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Malformed, match="desired state: expected an object"):
        DesiredState.from_json(value)


def test_facts_with_a_side_too_few_or_a_version_that_is_none_are_refused() -> None:
    value = facts().to_json()
    with pytest.raises(Malformed, match=r"target facts\.compat\.input_hw: expected 2 items, got 1"):
        TargetFacts.from_json(value | {"compat": value["compat"] | {"input_hw": [640]}})
    with pytest.raises(Malformed, match="compat runtime_min: expected a version"):
        TargetFacts.from_json(value | {"compat": value["compat"] | {"runtime_min": "latest"}})
    with pytest.raises(Malformed, match="counter: expected 1 or more"):
        TargetFacts.from_json(value | {"counter": 0})


def test_agreement_sums_are_those_of_the_weighted_frames() -> None:
    total = Agreement("b" * 64).plus(0.8, 1.0).plus(0.5, 20.0)
    assert (total.n, total.sum_w, total.sum_ww) == (2, 21.0, 401.0)
    assert total.sum_wx == pytest.approx(10.8)
    assert total.sum_wxx == pytest.approx(0.64 + 5.0)


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(Malformed, match="expected 0 to 3 of 3 frames, got 4"):
        Asked(3, 4)
    with pytest.raises(Malformed, match="health frames: expected 0 or more"):
        Health(-1, 0, None, 1.0, 1.0)


def test_the_channel_of_a_group_has_one_path() -> None:
    assert channel_target("north") == "channels/north.json"
