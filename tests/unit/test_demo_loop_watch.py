"""The fleet as its messages tell it, and the curve that is kept of it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fovea.cli.demo_loop_record import Recorder
from fovea.cli.demo_loop_watch import ASKED_OVER_S, BytesUp, FleetWatch
from fovea.core.errors import Malformed, Unavailable

AT = datetime(2026, 5, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def answer(
    route: str = "local", model: str = "old", reasons: tuple[str, ...] = ("sure",), **changes: Any
) -> bytes:
    message = {
        "revision": 0,
        "tier": "agent",
        "decision": {"route": route, "reasons": list(reasons)},
        "model": {"name": "student", "version": f"1.{model}", "sha256": model},
    }
    return json.dumps(message | changes).encode()


def watch(clock: Clock | None = None) -> FleetWatch:
    return FleetWatch(("north", "east"), clock or Clock())


def say(seen: FleetWatch, device: str, payload: bytes, topic: str = "cameras/x/detections") -> None:
    seen.take_message(f"fovea/{device}/{topic}", payload, AT)


def test_frames_that_the_gate_asked_about_count_and_audits_do_not() -> None:
    seen = watch()
    say(seen, "north", answer("edge", reasons=("weak_boxes",)))
    say(seen, "north", answer("edge", reasons=("audit", "sure")))
    say(seen, "east", answer("local"))
    say(seen, "east", answer("cloud", reasons=("weak_boxes",)))
    assert seen.asked_share() == pytest.approx(0.5)
    assert [each.asked_share for each in seen.now()] == [0.5, 0.5]
    assert seen.frames == 4


def test_frames_that_nobody_looked_at_and_better_answers_are_left_out_of_the_rate() -> None:
    seen = watch()
    say(seen, "north", answer("edge"))
    say(seen, "north", answer("skip", reasons=("still",)))
    say(seen, "north", answer("edge", revision=1, tier="edge"))
    assert seen.asked_share() == 1.0
    assert seen.frames == 2


def test_the_rate_is_that_of_the_newest_frames() -> None:
    clock = Clock()
    seen = watch(clock)
    say(seen, "north", answer("edge"))
    clock.now_s += ASKED_OVER_S + 1
    assert math.isnan(seen.asked_share())
    say(seen, "north", answer("local"))
    assert seen.asked_share() == 0.0


def test_who_runs_which_model_is_what_its_newest_answer_says() -> None:
    seen = watch()
    assert seen.running() == {}
    say(seen, "north", answer(model="old"))
    say(seen, "east", answer(model="old"))
    say(seen, "east", answer(model="new"))
    assert seen.running() == {"old": 1, "new": 1}
    assert [each.version for each in seen.now()] == ["1.old", "1.new"]


def test_the_updaters_phase_and_a_candidate_beside_the_model_are_told() -> None:
    seen = watch()
    say(seen, "east", json.dumps({"phase": "idle", "shadow": {"frames": 3}}).encode(), "model/reported")
    assert [(each.phase, each.shadows) for each in seen.now()] == [("", False), ("idle", True)]
    say(seen, "east", json.dumps({"phase": "trying", "shadow": None}).encode(), "model/reported")
    assert seen.now()[1].shadows is False


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("fovea/stranger/cameras/x/detections", answer()),
        ("fovea/north/status", b"online"),
        ("fovea/north/cameras/x/detections", b"{"),
        ("fovea/north/cameras/x/detections", b"[]"),
        ("fovea/north/cameras/x/detections", b'{"revision": 0, "tier": "agent"}'),
        ("fovea/north/model/reported", b"null"),
        ("fovea/north/cameras/x/events", answer()),
    ],
)
def test_what_is_not_a_known_agents_word_is_left_alone(topic: str, payload: bytes) -> None:
    seen = watch()
    seen.take_message(topic, payload, AT)
    assert seen.frames == 0
    assert seen.now()[0].phase == ""


def test_bytes_go_on_counting_when_an_agent_began_anew() -> None:
    up = BytesUp()

    def figures(*sent: float) -> dict[str, Any]:
        return {"cameras": [{"sent_bytes": each} for each in sent]}

    up.take("north", None)
    up.take("north", figures(10, 20))
    up.take("north", figures(15, 25))
    up.take("east", figures(5))
    assert up.total == 45
    up.take("north", figures(0, 1))
    up.take("north", figures(2, 2))
    assert up.total == 49
    with pytest.raises(Malformed, match="stats of north"):
        up.take("north", {"cameras": [{}]})


def recorder(
    tmp_path: Path, seen: FleetWatch, cases: Any = lambda: 7, clock: Clock | None = None
) -> Recorder:
    files = {"north": tmp_path / "north.json"}
    return Recorder(seen, files, cases, Console(quiet=True), clock or Clock())


def test_a_moment_is_the_rate_the_cases_and_who_runs_the_new_student(tmp_path: Path) -> None:
    seen = watch()
    kept = recorder(tmp_path, seen)
    say(seen, "north", answer("edge", model="old"))
    say(seen, "east", answer("local", model="new"))
    kept.take()
    kept.new_model = "new"
    (tmp_path / "north.json").write_text(json.dumps({"cameras": [{"sent_bytes": 30}]}))
    scene = kept.take()
    assert [(m.asked_share, m.on_new, m.cases) for m in kept.moments] == [(0.5, 0.0, 7), (0.5, 0.5, 7)]
    assert scene.bytes_up == 30


def test_the_rate_of_an_act_is_the_mean_of_its_last_seconds(tmp_path: Path) -> None:
    clock = Clock()
    seen = watch(clock)
    kept = recorder(tmp_path, seen, clock=clock)
    assert math.isnan(kept.asked_share(10))
    for is_asked in (True, False, False):
        kept.take()
        say(seen, "north", answer("edge" if is_asked else "local"))
        clock.now_s += 4
    kept.take()
    assert kept.asked_share(5) == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_marks_carry_the_time_of_the_recorder(tmp_path: Path) -> None:
    clock = Clock()
    kept = recorder(tmp_path, watch(), clock=clock)
    clock.now_s += 12
    kept.mark("night falls", "why")
    assert [(mark.at_s, mark.name) for mark in kept.marks] == [(12.0, "night falls")]


def test_a_store_that_is_busy_leaves_a_gap_and_the_recorder_goes_on(tmp_path: Path) -> None:
    import threading

    answered = threading.Event()
    calls: list[int] = []

    def cases() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise Unavailable("busy")
        answered.set()
        return 3

    kept = recorder(tmp_path, watch(), cases)
    with kept.running():
        assert answered.wait(30)
    assert len(calls) >= 2
    assert all(moment.cases == 3 for moment in kept.moments)
