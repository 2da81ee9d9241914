"""The live part of the demo: what is told comes from messages that arrived and figures the agent wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fovea.cli.demo_live import LiveWatch, read_stats, subscribed
from fovea.cli.demo_screen import live_line, live_view, show_results
from fovea.cli.tier_probes import free_ports
from fovea.core.errors import Unavailable
from fovea.core.routing import Tier
from tests.unit.demo_sample import sample

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def answer(tier: str = "agent", route: str = "local", age_ms: float = 20.0) -> bytes:
    captured_at = AT - timedelta(milliseconds=age_ms)
    return json.dumps(
        {"tier": tier, "captured_at": captured_at.isoformat(), "decision": {"route": route}, "more": 1}
    ).encode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> LiveWatch:
    return LiveWatch("demo", ["day", "night"], clock)


def test_answers_are_counted_by_tier_and_timed_from_capture_to_arrival(
    watch: LiveWatch, clock: Clock
) -> None:
    clock.now_s += 1
    watch.take_message("fovea/demo/cameras/day/detections", answer(age_ms=20), AT)
    watch.take_message("fovea/demo/cameras/day/detections", answer(route="edge", age_ms=40), AT)
    watch.take_message("fovea/demo/cameras/day/detections", answer("edge", "edge", 90), AT)
    day, night = watch.cameras({"day": "sim://street-v1/day"})
    assert (day.frames, day.asked_share, day.messages) == (2, 0.5, 3)
    assert day.answers == {Tier.AGENT: 2, Tier.EDGE: 1}
    assert day.latency is not None
    assert day.latency.p50_ms == pytest.approx(30)
    assert day.source == "sim://street-v1/day"
    assert (night.frames, night.latency) == (0, None)
    assert watch.latencies_ms()[Tier.EDGE] == [pytest.approx(90)]


def test_other_messages_are_counted_and_other_topics_left_alone(watch: LiveWatch) -> None:
    for topic in (
        "fovea/demo/cameras/day/status", "fovea/demo/cameras/day/events", "fovea/demo/available",
        "fovea/other/cameras/day/detections", "fovea/demo/cameras/attic/detections",
    ):  # fmt: skip
        watch.take_message(topic, b"online", AT)
    assert watch.cameras({})[0].messages == 2
    assert watch.cameras({})[0].frames == 0


@given(st.binary() | st.sampled_from([b"[]", b"3", b'{"tier": 1}', b'{"tier": "agent", "captured_at": 5}']))
def test_no_payload_can_break_the_view(payload: bytes) -> None:
    watch = LiveWatch("demo", ["day"])
    watch.take_message("fovea/demo/cameras/day/detections", payload, AT)
    assert watch.cameras({})[0].frames == 0


def test_frames_per_second_are_those_of_the_last_seconds(watch: LiveWatch, clock: Clock) -> None:
    for _ in range(50):
        clock.now_s += 0.2
        watch.take_message("fovea/demo/cameras/day/detections", answer(), AT)
    assert watch.cameras({})[0].fps == pytest.approx(5, abs=0.3)
    clock.now_s += 60
    assert watch.cameras({})[0].fps == 0


def test_moments_hold_what_came_in_each_whole_second_and_what_was_sent(
    watch: LiveWatch, clock: Clock
) -> None:
    watch.take_stats({"cameras": [{"name": "day", "sent_bytes": 1000}]})
    for tier in ("agent", "agent", "cloud"):
        watch.take_message("fovea/demo/cameras/day/detections", answer(tier), AT)
    clock.now_s += 1
    watch.take_stats({"cameras": [{"name": "day", "sent_bytes": 4000}]})
    clock.now_s += 1.5
    first, second = watch.moments()
    assert first.answers == {Tier.AGENT: 2, Tier.CLOUD: 1}
    assert (first.bytes_sent, second.bytes_sent) == (3000, 0)
    assert second.answers == {}


def test_drops_and_bytes_are_the_agents_own(watch: LiveWatch) -> None:
    watch.take_stats({"cameras": [{"name": "night", "sent_bytes": 7, "drops": {"replaced_by_newer": 3}}]})
    night = watch.cameras({})[1]
    assert (night.bytes_sent, night.drops) == (7, {"replaced_by_newer": 3})


def test_restarting_forgets_what_came_while_starting(watch: LiveWatch, clock: Clock) -> None:
    watch.take_message("fovea/demo/cameras/day/detections", answer(), AT)
    clock.now_s += 3
    watch.restart()
    assert watch.seconds == 0
    assert watch.cameras({})[0].messages == 0
    assert watch.latencies_ms()[Tier.AGENT] == []


def test_without_a_broker_that_is_said(watch: LiveWatch) -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"), subscribed(watch, "127.0.0.1", port):
        pass


def test_figures_that_are_not_there_or_half_written_are_none(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    assert read_stats(path) is None
    path.write_text('{"cameras": [')
    assert read_stats(path) is None
    path.write_text('{"cameras": []}')
    assert read_stats(path) == {"cameras": []}


def shown(width: int, *parts: object) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for part in parts:
        console.print(part)
    return console.export_text()


def test_the_live_view_fits_a_usual_terminal_and_names_every_camera() -> None:
    cameras = sample().live.cameras
    text = shown(80, live_view(cameras, 12, 40, {"agent": 0.2, "edge": 0.5}))
    for words in ("day", "night", "4.9", "140", "30 %", "18", "40", "5000", "agent 20 %", "12 of 40"):
        assert words in text, words
    assert "…" not in text


def test_frames_that_were_never_due_are_no_drops() -> None:
    camera = sample().live.cameras[1]
    assert "0 drops" in live_line([camera], 5)
    from dataclasses import replace

    assert "2 drops" in live_line([replace(camera, drops={"not_due": 100, "undecodable": 2})], 5)


@pytest.mark.parametrize("has_truth", [True, False])
def test_the_results_fit_a_usual_terminal(has_truth: bool) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    show_results(console, sample(has_truth))
    text = console.export_text()
    assert "hybrid" in text
    assert "…" not in text
    assert ("21.0 (19.0-23.5)" in text) is has_truth
