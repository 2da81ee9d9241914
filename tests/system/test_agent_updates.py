"""A real agent that gets other models while it runs, from a real repository over HTTP, and tells a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from fovea import zoo
from fovea.core.release import Probation, ReportedState, Stage
from fovea.runtime.bundle import Bundle
from tests.broker_process import broker
from tests.mqtt_listener import Listener, listening
from tests.system.agent_site import (
    Published,
    agent_command,
    edge_command,
    hearing_results,
    street_pictures,
    write_pictures,
)
from tests.system.service_process import free_port, running, until
from tests.system.update_site import (
    breaks_on_white,
    releases,
    reported_in,
    small_model,
    write_bundle,
    write_white_pictures,
)

REPORTED = "fovea/porch/model/reported"
DESIRED = "fovea/porch/model/desired"


def last_reported(listener: Listener) -> dict[str, Any]:
    told = listener.all_on(REPORTED)
    state: dict[str, Any] = json.loads(told[-1]) if told else {}
    if state:
        ReportedState.from_json(state)
    return state


def is_in(state: Callable[[], dict[str, Any]], phase: str, version: str) -> Callable[[], bool]:
    """It says that it is in this phase, and runs this version."""

    def holds() -> bool:
        told = state()
        return bool(told) and (told["phase"], told["running"]["version"]) == (phase, version)

    return holds


def versions_of(results: list[Published]) -> list[str]:
    return [each.result["model"]["version"] for each in results]


def test_a_candidate_is_shadowed_then_switched_to_between_two_frames_and_committed(tmp_path: Path) -> None:
    old = Bundle.open(zoo.path_of("street-student-int8"))
    new = old.with_parts({}, name=old.manifest.name, version="9.0")
    port = free_port()
    pictures = write_pictures(tmp_path / "pictures", street_pictures(6))
    camera = {"name": "front", "url": str(pictures), "loop": True, "motion": {"enabled": False}}
    with (
        releases(tmp_path / "releases") as repository,
        broker() as mqtt_broker,
        listening(mqtt_broker.host, mqtt_broker.port) as listener,
        hearing_results(tmp_path) as results,
        running(edge_command(tmp_path, port)) as edge,
        running(
            agent_command(
                tmp_path,
                [camera],
                edge={"address": f"127.0.0.1:{port}"},
                mqtt={"port": mqtt_broker.port},
                results_file=str(results.path),
                updates=repository.updates_config(tmp_path / "updates") | {"poll_every_s": 600.0},
            )
        ) as agent,
    ):
        champion, candidate = repository.add(old), repository.add(new)

        def state() -> dict[str, Any]:
            return last_reported(listener)

        def hint() -> None:
            listener.say(DESIRED, b'{"look": 1}', retain=True)

        edge.event("serving")
        agent.event("running")
        repository.order(champion)
        hint()
        until(is_in(state, "committed", champion.version), "it follows the first order")
        assert state()["serial"] == 1 and state()["shadow"] is None

        repository.order(champion, candidate=candidate, stage=Stage.SHADOW, shadow_share=1.0)

        def has_pairs() -> bool:
            hint()
            shadow = state()["shadow"]
            return bool(shadow) and shadow["paired_n"] >= 3

        until(has_pairs, "the candidate is compared with the edge")
        shadow = state()["shadow"]
        assert (shadow["candidate_sha256"], shadow["crashes"]) == (candidate.sha256, 0)
        assert shadow["agreement_with_champion_mean"] == 1.0  # it is the same network
        assert (shadow["sum_wd"], shadow["sum_w"]) == (0.0, shadow["paired_n"])
        agreement = state()["agreement"]
        assert agreement["model_sha256"] == champion.sha256 and agreement["n"] >= shadow["paired_n"]
        assert set(versions_of(results.own())) == {champion.version}

        repository.order_all(champion, candidate)
        hint()
        until(is_in(state, "committed", "9.0"), "the candidate is committed")
        assert state()["last_good"]["sha256"] == candidate.sha256 and state()["shadow"] is None
        own = results.own()
        versions = versions_of(own)
        assert versions == sorted(versions, key="9.0".__eq__), "once switched, never back"
        sequences = [each.result["sequence"] for each in own]
        assert len(set(sequences)) == len(sequences), "no frame is answered twice"
        [gap] = [
            after.result["sequence"] - before.result["sequence"]
            for before, after in pairwise(own)
            if versions_of([before]) != versions_of([after])
        ]
        assert gap == 1, "no frame is dropped at the switch"
        agent.stop()
    assert agent.process.returncode == 0


def test_a_model_that_breaks_on_what_this_camera_shows_is_taken_back_and_another_one_is_not_even_begun(
    tmp_path: Path,
) -> None:
    old, bad, other = small_model("1.0"), breaks_on_white("2.0"), breaks_on_white("3.0")
    golden = Bundle.open(zoo.path_of("street-student-int8")).parts
    lying = small_model(
        "4.0", parts={name: part for name, part in golden.items() if name.startswith("golden/")}
    )
    stats = tmp_path / "stats.json"
    camera = {
        "name": "front",
        "url": str(write_white_pictures(tmp_path / "pictures")),
        "loop": True,
        "motion": {"enabled": False},
    }

    def state() -> dict[str, Any]:
        return reported_in(stats)

    with releases(tmp_path / "releases") as repository, hearing_results(tmp_path) as results:
        champion = repository.add(old)
        repository.order_all(champion, repository.add(bad))
        command = agent_command(
            tmp_path,
            [camera],
            bundle=str(write_bundle(tmp_path / "factory.fovea", old)),
            results_file=str(results.path),
            stats_file=str(stats),
            updates=repository.updates_config(tmp_path / "updates"),
        )
        with running(command) as agent:
            agent.event("running")
            until(is_in(state, "stepped_back", "1.0"), "the model is taken back")
            assert "it broke on" in state()["reason"] and state()["health"]["failures"] > 0

            repository.order_all(champion, repository.add(lying))
            until(is_in(state, "refused", "1.0"), "the lying model is refused")
            assert "answers differently" in state()["reason"]

            repository.order_all(
                champion, repository.add(other), probation=Probation(8, 1.0, max_ms_p95=0.001)
            )
            until(lambda: "too slow" in (state()["reason"] or ""), "the slow model is refused")
            assert state()["running"]["version"] == "1.0"
            before = len(results.own())
            until(lambda: len(results.own()) > before + 3, "frames go on")
            agent.stop()
        assert set(versions_of(results.own())) == {"1.0"}


def test_an_agent_that_is_killed_in_a_probation_comes_back_and_the_next_time_with_the_old_model(
    tmp_path: Path,
) -> None:
    old, new = small_model("1.0"), small_model("2.0")
    stats = tmp_path / "stats.json"
    camera = {
        "name": "front",
        "url": str(write_white_pictures(tmp_path / "pictures")),
        "loop": True,
        "motion": {"enabled": False},
    }

    def state() -> dict[str, Any]:
        return reported_in(stats)

    with releases(tmp_path / "releases") as repository, hearing_results(tmp_path) as results:
        champion = repository.add(old)
        repository.order_all(champion, repository.add(new), probation=Probation(10**6, 10**6))
        command = agent_command(
            tmp_path,
            [camera],
            bundle=str(write_bundle(tmp_path / "factory.fovea", old)),
            results_file=str(results.path),
            stats_file=str(stats),
            updates=repository.updates_config(tmp_path / "updates"),
        )
        for boot, version in enumerate(("1.0", "2.0")):
            with running(command) as agent:
                started = agent.event("running")
                assert f"@{version}" in started["model"] or version in started["model"]
                stats.unlink(missing_ok=True)
                until(is_in(state, "probation", "2.0"), f"on probation after boot {boot}")
                answered = len(results.own())
                until(lambda: len(results.own()) > answered, "frames are answered")  # noqa: B023
                agent.kill()
        with running(command) as agent:
            stats.unlink(missing_ok=True)
            assert "1.0" in agent.event("running")["model"]
            until(is_in(state, "stepped_back", "1.0"), "the old model runs again")
            assert "first starts" in state()["reason"]
            assert state()["health"]["restarts"] == 2
            answered = len(results.own())
            until(lambda: len(results.own()) > answered, "frames are answered")
            assert versions_of(results.own())[-1] == "1.0"
            agent.stop()
