"""What devices report by MQTT: read defensively, kept many at once, and never the end of the thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.fleet.fleet_link import FleetLink
from cloud.fleet.inbox import LARGEST_REPORT_BYTES, Letter, ReportInbox, read_report
from cloud.rollout.report_rows import Heard
from fovea.core.errors import FoveaError, Malformed, StoreCorrupt, Unavailable
from fovea.core.release import Asked, Health, ModelPin, Phase, ReportedState
from fovea.mqtt.names import model_desired, model_reported
from fovea.mqtt.settings import MqttSettings
from tests.broker_process import BrokerProcess, broker
from tests.mqtt_listener import listening, wait_until

PIN = ModelPin("models/street/street-1.fovea", "street", "1", "a" * 64)


def state(device: str, **changes: Any) -> ReportedState:
    fields: dict[str, Any] = {
        "device": device, "group": "yard", "agent_version": "0.1.0", "boot_id": "b",
        "at": datetime(2026, 5, 1, tzinfo=UTC), "clock_synced": True, "serial": 1, "counter_floor": 1,
        "running": PIN, "last_good": PIN, "phase": Phase.COMMITTED, "reason": None,
        "health": Health(1, 0, 30.0, 200.0, 9.0), "asked": Asked(1, 0),
    }  # fmt: skip
    return ReportedState(**(fields | changes))


def payload(device: str, **changes: Any) -> bytes:
    return json.dumps(state(device, **changes).to_json()).encode()


class Kept:
    """Who keeps reports; can be away."""

    def __init__(self) -> None:
        self.batches: list[list[Heard]] = []
        self.errors: list[FoveaError] = []
        self.changed = threading.Event()

    def __call__(self, heard: Sequence[Heard]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.batches.append(list(heard))
        self.changed.set()

    @property
    def devices(self) -> set[str]:
        return {each.state.device for batch in self.batches for each in batch}


def test_a_report_is_read_where_topic_and_device_agree() -> None:
    name = "Süd/Hof #1"
    assert read_report(Letter(model_reported(name), payload(name), False)) == state(name)


def test_a_device_cannot_speak_for_another_one() -> None:
    with pytest.raises(Malformed, match="another topic"):
        read_report(Letter(model_reported("a"), payload("b"), False))


@pytest.mark.parametrize(
    "said",
    [b"", b"\xff\xfe", b"[]", b"null", b"{}", b'"x"', b"[" * 50_000, b'{"device": NaN}', b"1e999"],
)
def test_what_is_no_report_is_refused(said: bytes) -> None:
    with pytest.raises(Malformed):
        read_report(Letter(model_reported("a"), said, False))


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_be_refused(said: bytes) -> None:
    with pytest.raises(Malformed):
        read_report(Letter(model_reported("a"), said, False))


@given(
    st.sampled_from(sorted(state("a").to_json())), st.one_of(st.none(), st.integers(), st.text(), st.floats())
)
def test_a_field_of_another_kind_is_refused_or_read(name: str, value: object) -> None:
    said = json.dumps(state("a").to_json() | {name: value}).encode()
    with suppress(Malformed):
        assert read_report(Letter(model_reported("a"), said, False)).device == "a"


def test_the_last_word_of_a_device_counts_and_the_rest_is_counted() -> None:
    inbox = ReportInbox(most_waiting=2)
    inbox.put("a", b"1", True)
    inbox.put("a", b"2", False)
    inbox.put("b", b"1", False)
    inbox.put("c", b"1", False)
    inbox.put("b", b"", True)
    inbox.put("b", b"x" * (LARGEST_REPORT_BYTES + 1), False)
    assert inbox.counts["waiting"] == 2
    assert inbox.take(0) == [Letter("a", b"2", False), Letter("b", b"1", False)]
    counts = inbox.counts
    assert (counts["overtaken"], counts["dropped"], counts["cleared"], counts["too_large"]) == (1, 1, 1, 1)


def test_what_came_later_stands_when_letters_are_put_back() -> None:
    inbox = ReportInbox()
    inbox.put("a", b"1", False)
    inbox.put("b", b"1", False)
    letters = inbox.take(0)
    inbox.put("a", b"2", False)
    inbox.put_back(letters)
    assert {letter.topic: letter.payload for letter in inbox.take(0)} == {"a": b"2", "b": b"1"}


def test_a_closed_inbox_hands_out_what_it_has_and_then_nothing() -> None:
    inbox = ReportInbox()
    inbox.put("a", b"1", False)
    inbox.close()
    assert len(inbox.take(0)) == 1
    assert inbox.take(0) == []


def linked(kept: Kept, at: BrokerProcess) -> FleetLink:
    return FleetLink(MqttSettings(at.host, at.port), kept, lambda group: 7, pause_s=0.01)


@pytest.fixture(scope="module")
def at() -> Any:
    pytest.importorskip("amqtt", reason="the embedded broker is not installed")
    with broker() as process:
        yield process


def with_link(kept: Kept, at: BrokerProcess, use: Callable[[FleetLink, Any], None]) -> None:
    link = linked(kept, at)
    with listening(at.host, at.port) as devices:
        link.start()
        try:
            wait_until(lambda: link.is_connected)
            use(link, devices)
        finally:
            link.stop(5.0)


def test_reports_come_in_and_bad_ones_end_nothing(at: BrokerProcess) -> None:
    kept = Kept()

    def use(link: FleetLink, devices: Any) -> None:
        devices.say(model_reported("a"), b"\xff")
        devices.say(model_reported("b"), payload("a"))
        wait_until(lambda: link.counts["malformed"] == 2)
        devices.say(model_reported("c"), payload("c"))
        wait_until(lambda: link.counts["taken"] == 1)

    with_link(kept, at, use)
    assert kept.devices == {"c"}


def test_a_store_that_is_away_is_tried_again_and_one_that_is_corrupt_is_not(at: BrokerProcess) -> None:
    kept = Kept()
    kept.errors = [Unavailable("busy"), Unavailable("busy")]

    def use(link: FleetLink, devices: Any) -> None:
        devices.say(model_reported("a"), payload("a"))
        wait_until(lambda: link.counts["taken"] == 1)
        assert link.trouble is None
        kept.errors = [StoreCorrupt("broken")]
        devices.say(model_reported("b"), payload("b"))
        wait_until(lambda: link.counts["dropped"] == 1)
        assert link.trouble == "broken"

    with_link(kept, at, use)
    assert kept.devices == {"a"}


def test_an_error_that_nobody_foresaw_does_not_end_the_reader(at: BrokerProcess) -> None:
    kept = Kept()
    kept.errors = [ZeroDivisionError()]  # type: ignore[list-item]

    def use(link: FleetLink, devices: Any) -> None:
        devices.say(model_reported("a"), payload("a"))
        wait_until(lambda: link.counts["dropped"] == 1)
        devices.say(model_reported("a"), payload("a"))
        wait_until(lambda: link.counts["taken"] == 1)

    with_link(kept, at, use)


def test_the_hint_is_retained_and_names_the_serial(at: BrokerProcess) -> None:
    def use(link: FleetLink, devices: Any) -> None:
        link.look("yard", ["Front door"])
        assert devices.wait_for(model_desired("Front door")).json == {"look": 7}

    with_link(Kept(), at, use)


def test_reports_of_a_whole_fleet_are_kept_in_few_batches(at: BrokerProcess) -> None:
    kept = Kept()

    def use(link: FleetLink, devices: Any) -> None:
        for number in range(300):
            devices.say(model_reported(f"camera-{number}"), payload(f"camera-{number}"))
        wait_until(lambda: link.counts["taken"] == 300)

    with_link(kept, at, use)
    assert len(kept.devices) == 300
    assert len(kept.batches) < 150
