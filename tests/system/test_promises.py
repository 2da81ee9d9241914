"""What an agent promises, proved on real processes: answers in time whatever the tier above does, and nothing lost.

Where only the clock could decide, the real figures are printed (pytest -s) and the bound is wide: it catches an agent
that waits for the network, not a machine that has other work.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud.cases.store import CaseStore, StoreAddress
from edge_agent.publish.topics import Topics
from fovea.core.arrays import ImageArray
from fovea.link.case_spool import CaseSpool
from fovea.runtime.images import encode_jpeg
from tests.broker_process import broker
from tests.builders import tiny_bundle
from tests.mqtt_listener import Listener, listening
from tests.system.agent_site import (
    Results,
    Window,
    agent_command,
    edge_command,
    hearing_results,
    said,
    spooled,
    street_pictures,
    write_pictures,
    write_yaml,
)
from tests.system.service_process import (
    FOVEA,
    ServiceProcess,
    free_port,
    health_at,
    metrics_at,
    running,
    until,
)
from tests.system.shaped_link import HOLE, OPEN, Shape, shaped_link

FPS = 5.0
ASK_TIMEOUT_S = 1.5
LATE_S = ASK_TIMEOUT_S / 2
"""Two frame periods are promised; so long only a frame waits that has waited for the network."""
SLOW = Shape(delay_s=0.85, bytes_per_s=2_000_000)
"""There and back takes longer than an answer is worth having, and less than somebody needs to count as gone."""
EXIT_IN_S = 5.0
LOST = "edge lost, answering locally: "
BACK = "edge back after"
ODD_NAMES = ("Hof/+#$ ä☃", "counts", "%2F", "x" * 100)
PICTURES = 12


@pytest.fixture(scope="module")
def pictures() -> list[ImageArray]:
    return street_pictures(PICTURES)


class Day:
    """A running agent under observation, one outage after the other."""

    def __init__(self, agent: ServiceProcess, results: Results, note: Callable[[str, object], None]) -> None:
        self.agent = agent
        self.results = results
        self._note = note

    def look(self, what: str, begun_mono_s: float, at_least_s: float = 2.0) -> None:
        """Frames captured since then were answered when they were due."""
        ended_mono_s = max(time.monotonic(), begun_mono_s + at_least_s)
        seen = Window.of(self.results, begun_mono_s, ended_mono_s, FPS, LATE_S)
        print(f"\n{what}: {seen}", end="")
        self._note(what, str(seen))
        assert seen.answered >= 0.6 * seen.due, f"{what}: {seen}"
        assert seen.late <= 0.1 * seen.answered, f"{what}: {seen}, {seen.late} waited for the network"

    def lose(self, what: str, begun_mono_s: float) -> None:
        """The edge has been hindered since then: answers say so, the log says it once, frames go on."""
        until(lambda: len(self.results.degraded(begun_mono_s)) >= 5, f"{what}: degraded answers")
        until(lambda: "".join(self.told()[-1:]).startswith(LOST), f"{what}: a word about it")
        self.look(what, begun_mono_s)
        self.check_told()
        assert said(self.agent, LOST)[-1] != LOST, "it does not say why"

    def recover(self) -> None:
        """Without anybody's help answers come from above again, and the log says it once."""
        healed_mono_s = time.monotonic()
        until(lambda: bool(self.results.later(healed_mono_s)), "an answer of the edge that is back")
        until(lambda: "".join(self.told()[-1:]).startswith(BACK), "a word about its return")
        self.check_told()
        assert "frames degraded" in self.told()[-1]
        until(
            lambda: not any(each.result["degraded"] for each in self.results.own()[-3:]), "undegraded answers"
        )

    def told(self) -> list[str]:
        """The losses and returns that it has logged."""
        return [event for event in said(self.agent, "edge") if event.startswith((LOST, BACK))]

    def check_told(self) -> None:
        """Each loss was told once, and each return."""
        words = [LOST if event.startswith(LOST) else BACK for event in self.told()]
        assert words == ([LOST, BACK] * len(words))[: len(words)], self.told()


def test_frames_are_answered_in_time_whatever_becomes_of_the_edge(
    pictures: list[ImageArray], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder, port = write_pictures(tmp_path / "street", pictures[:8]), free_port()
    edge_here = edge_command(tmp_path, port)
    with shaped_link(port) as link, hearing_results(tmp_path) as results:
        command = agent_command(
            tmp_path,
            [{"name": "front", "url": str(folder), "loop": True, "fps": FPS, "motion": {"enabled": False}}],
            edge={
                "address": f"127.0.0.1:{link.port}",
                "timeout_ms": ASK_TIMEOUT_S * 1000,
                "encoding": "jpeg",
            },
            results_file="results",
            stats_file="stats.json",
        )
        with running(command) as agent:
            agent.event("running")
            day = Day(agent, results, record_property)
            until(lambda: len(results.own()) >= 3, "first frames")
            begun_mono_s = time.monotonic()
            day.look("edge never there", begun_mono_s)
            assert results.degraded(begun_mono_s), "the first answers do not say that the edge is missing"
            assert len(said(agent, "edge not reached yet, answering locally")) == 1
            until(lambda: link_of(tmp_path)["reason"] != "not asked yet", "why it is not there")

            with running(edge_here) as edge:
                until(lambda: bool(results.later()), "a first answer of the edge")
                until(lambda: bool(said(agent, "edge reached")), "a word about it")
                assert "frames degraded before" in said(agent, "edge reached")[0]
                day.look("edge there", time.monotonic())

                for what, shape in (("edge slow", SLOW), ("link cut", HOLE)):
                    begun_mono_s = time.monotonic()
                    link.becomes(shape)
                    day.lose(what, begun_mono_s)
                    link.becomes(OPEN)
                    day.recover()

                begun_mono_s = time.monotonic()
                link.cut()
                until(lambda: bool(results.later(begun_mono_s)), "an answer over a new connection")
                day.look("connections broken", begun_mono_s)
                until(lambda: len(day.told()) % 2 == 0, "the end of it, if it was a loss at all")

                begun_mono_s = time.monotonic()
                edge.process.send_signal(signal.SIGSTOP)
                day.lose("edge stopped", begun_mono_s)
                edge.process.send_signal(signal.SIGCONT)
                day.recover()

                begun_mono_s = time.monotonic()
                edge.kill()
                day.lose("edge killed", begun_mono_s)
            with running(edge_here):
                day.recover()
            numbers = [each.result["sequence"] for each in results.own()]
            assert numbers == list(range(len(numbers))), "a frame was answered twice, or not at all"
            assert agent.stop() < EXIT_IN_S and agent.process.returncode == 0


def link_of(folder: Path) -> dict[str, Any]:
    """What the agent says of the tier above."""
    link: dict[str, Any] = json.loads((folder / "stats.json").read_text())["link"]
    return link


def test_twice_killed_the_agent_brings_every_case_to_the_cloud_once(
    pictures: list[ImageArray], tmp_path: Path
) -> None:
    """It is killed before anybody is above it, and once more in the midst of the upload; it looks at the same
    pictures each time, and again and again. Names of cameras arrive as they are."""
    edge_port, cloud_port = free_port(), free_port()
    folder, spool, camera = write_pictures(tmp_path / "street", pictures), tmp_path / "spool", ODD_NAMES[0]
    command = agent_command(
        tmp_path,
        [{"name": camera, "url": str(folder), "loop": True, "fps": 5.0, "motion": {"enabled": False}}],
        edge={"address": f"127.0.0.1:{edge_port}", "timeout_ms": 5000.0},
        spool={"folder": "spool", "min_free_bytes": 0, "upload_bytes_per_s": 300_000.0},
    )
    silent = {"ask_from": 1.0}  # reached by no gate: nothing goes on to the cloud live
    above = edge_command(
        tmp_path,
        edge_port,
        cloud={
            "address": f"127.0.0.1:{cloud_port}",
            "gate": silent,
            "spool": {"folder": "edge-spool", "min_free_bytes": 0, "upload_bytes_per_s": 1e7},
        },
    )
    wanted = {hashlib.sha256(encode_jpeg(each, 90)).hexdigest() for each in pictures}
    assert len(wanted) == PICTURES

    with running(command) as agent:
        until(lambda: len(spooled(spool, "waiting")) >= 5, "cases on the disk")
        agent.kill()
    first = sound_cases(spool)
    assert first and first <= wanted

    with running(cloud_command(tmp_path, cloud_port)) as cloud, running(above) as edge:
        for process in (cloud, edge):
            process.event("serving")
        with running(command) as agent:
            until(lambda: len(spooled(spool, "delivered")) >= 3, "cases that were handed up")
            agent.kill()
        delivered = set(spooled(spool, "delivered"))
        assert sound_cases(spool).isdisjoint(delivered), "delivered and waiting"
        with running(command) as agent:
            until(lambda: set(spooled(spool, "delivered")) == wanted, "all of them above")
            assert agent.stop() < EXIT_IN_S
        assert spooled(spool, "waiting") == []
        until(lambda: not spooled(tmp_path / "edge-spool", "waiting"), "an edge that has sent all on")
        assert edge.stop() < EXIT_IN_S and cloud.stop() < EXIT_IN_S
    store = CaseStore.open_existing(StoreAddress.in_folder(tmp_path / "cases"))
    try:
        kept = list(store.walk())
        assert sorted(case.id for case in kept) == sorted(wanted)
        assert {case.frame_id.camera for case in kept} == {camera}
        assert all(hashlib.sha256(store.load_image(case)).hexdigest() == case.id for case in kept)
    finally:
        store.close()


def cloud_command(folder: Path, port: int) -> tuple[str | Path, ...]:
    config = {
        "bundle": str(tiny_bundle(name="large").write(folder)),
        "views": "one",
        "listen": f"127.0.0.1:{port}",
        "device": "cpu",
        "store": {"folder": "cases"},
        "log": {"format": "json"},
    }
    return FOVEA, "cloud", "--config", write_yaml(folder / "cloud.yaml", config)


def sound_cases(folder: Path) -> set[str]:
    """Ids of what waits in the spool of an agent that is dead; each of them whole."""
    spool = CaseSpool.open(folder)
    try:
        cases = spool.oldest(1000)
        ids = {case.id for case in cases}
        assert len(ids) == len(cases) == spool.counts.waiting and spool.counts.damaged == 0
        return ids
    finally:
        spool.close()


def test_an_edge_that_takes_no_cases_is_told_to_a_person_once_and_they_wait_until_it_does(
    pictures: list[ImageArray], tmp_path: Path
) -> None:
    port, folder = free_port(), write_pictures(tmp_path / "street", pictures[:4])
    cloud = {"address": f"127.0.0.1:{free_port()}"}
    spool = {"folder": "spool", "min_free_bytes": 0}
    command = agent_command(
        tmp_path,
        [{"name": "front", "url": str(folder), "loop": True}],
        edge={"address": f"127.0.0.1:{port}", "timeout_ms": 5000.0},
        spool=spool,
        metrics="127.0.0.1:0",
    )
    warning, failed = "the tier above takes no cases from here", 'fovea_uploads{what="failed"}'
    with running(command) as agent:
        address = agent.event("running")["metrics"]
        with running(edge_command(tmp_path, port, cloud=cloud)):
            until(lambda: bool(said(agent, warning)), "a warning")
            tries = metrics_at(address)[failed]
            until(lambda: metrics_at(address)[failed] > tries, "another try")
            [told] = said(agent, warning)
            assert "cloud.spool" in told
        assert spooled(tmp_path / "spool", "delivered") == []
        with running(edge_command(tmp_path, port, cloud=cloud | {"spool": spool | {"folder": "edge-spool"}})):
            until(lambda: len(spooled(tmp_path / "spool", "delivered")) == 4, "cases that the edge took")
            until(lambda: len(said(agent, "the tier above takes cases again")) == 1, "a word about it")
        assert len(said(agent, warning)) == 1


def test_cameras_of_any_name_publish_and_obey_before_and_after_a_restart_of_the_broker(
    pictures: list[ImageArray], tmp_path: Path
) -> None:
    device = "Haus 1/+ #"
    topics = Topics(device)
    folder = write_pictures(tmp_path / "street", pictures[:6])
    cameras = [
        {"name": name, "url": str(folder), "loop": True, "fps": 2.0, "motion": {"enabled": False}}
        for name in ODD_NAMES
    ]

    def obeys(listener: Listener, command: str) -> None:
        """Every camera publishes under its own name, and the one that is told does what it is told."""
        listener.heard.clear()
        for name in ODD_NAMES:
            heard = listener.wait_for(topics.detections(name)).json
            assert (heard["device"], heard["camera"]) == (device, name)
        told, others = ODD_NAMES[0], ODD_NAMES[1:]
        state = f"{topics.camera(told)}/detect/state"
        listener.say(f"{topics.camera(told)}/detect/set", command)
        listener.wait_for(state, command.encode())
        for name in others:
            assert listener.all_on(f"{topics.camera(name)}/detect/state")[-1:] in ([], [b"ON"])

    with broker() as mqtt_broker, listening(mqtt_broker.host, mqtt_broker.port) as listener:
        command = agent_command(
            tmp_path, cameras, device=device, mqtt={"port": mqtt_broker.port}, metrics="127.0.0.1:0"
        )
        with running(command) as agent:
            address = agent.event("running")["metrics"]
            obeys(listener, "OFF")
            listener.say(f"{topics.camera(ODD_NAMES[0])}/detect/set", "ON")
            listener.wait_for(f"{topics.camera(ODD_NAMES[0])}/detect/state", b"ON")
            mqtt_broker.restart()
            listener.wait_subscribed()
            obeys(listener, "OFF")
            assert set(health_at(address)["cameras"]) == set(ODD_NAMES)
            looked_at = [name for name in metrics_at(address) if name.startswith("fovea_frames_total{")]
            assert all(any(f'camera="{name}"' in line for line in looked_at) for name in ODD_NAMES)
            listener.heard.clear()
            assert agent.stop() < EXIT_IN_S
            listener.wait_for(topics.available, b"stopped")


JUMPS = """
import signal, sys
from datetime import timedelta
from pathlib import Path
from edge_agent.bootstrap import build
from fovea.process.clock import SystemClock
from edge_agent.config import load_config
from edge_agent.run import run_built
from fovea.process.logs import configure_logs

class Jumping(SystemClock):
    ahead = timedelta()
    def now(self):
        return super().now() + self.ahead

def jump(clock, days):
    clock.ahead = timedelta(days=days)

config, clock = load_config(Path(sys.argv[1])), Jumping()
signal.signal(signal.SIGUSR1, lambda *_: jump(clock, 365))
signal.signal(signal.SIGUSR2, lambda *_: jump(clock, -365 * 50))
configure_logs(config.log)
run_built(config, build(config, clock=clock))
"""


def test_a_wall_clock_that_jumps_by_a_year_moves_dates_and_nothing_else(
    pictures: list[ImageArray], tmp_path: Path
) -> None:
    """The clock of the machine stays as it is; the agent is built on one that jumps as after a first NTP sync."""
    port, folder = free_port(), write_pictures(tmp_path / "street", pictures[:8])
    with hearing_results(tmp_path) as results:
        *_, file = agent_command(
            tmp_path,
            [{"name": "front", "url": str(folder), "loop": True, "motion": {"enabled": False}}],
            edge={"address": f"127.0.0.1:{port}", "timeout_ms": 5000.0},
            spool={"folder": "spool", "min_free_bytes": 0},
            results_file="results",
            metrics="127.0.0.1:0",
        )
        root = str(Path(__file__).resolve().parents[2])
        with (
            running(edge_command(tmp_path, port)),
            running((sys.executable, "-c", JUMPS, file), {"PYTHONPATH": root}) as agent,
        ):
            address = agent.event("running")["metrics"]
            until(lambda: bool(results.later()), "answers of the edge")
            for number, days in ((signal.SIGUSR1, 365), (signal.SIGUSR2, -365 * 50)):
                agent.process.send_signal(number)
                begun_mono_s = time.monotonic()
                until(lambda since=begun_mono_s: len(results.later(since)) >= 3, "answers after it")  # type: ignore[misc]
                last = results.own()[-1].result
                ahead = captured_at(last) - datetime.now().astimezone()
                assert abs(ahead - timedelta(days=days)) < timedelta(hours=1)
                facts = health_at(address)
                assert facts["cameras"] == {"front": "online"} and facts["link"] == "up"
            until(lambda: len(spooled(tmp_path / "spool", "waiting")) == 8, "each picture on the disk")
            assert agent.stop() < EXIT_IN_S
        own = [each.result for each in results.own()]
        assert [each["sequence"] for each in own] == list(range(len(own)))
        assert len({each["boot_id"] for each in own}) == 1
        assert all(ms >= 0 for each in own for ms in each["stage_ms"].values())
        moments = [each["captured_mono_s"] for each in own]
        assert moments == sorted(moments)
        assert not any(each["degraded"] for each in own[-5:])
        assert not said(agent, "camera front: lost") and not said(agent, "a frame hangs")
    assert sound_cases(tmp_path / "spool") == {
        hashlib.sha256(encode_jpeg(each, 90)).hexdigest() for each in pictures[:8]
    }


def captured_at(result: Any) -> datetime:
    return datetime.fromisoformat(result["captured_at"].replace("Z", "+00:00"))


def test_twenty_cameras_in_one_process_all_get_their_turn(
    pictures: list[ImageArray], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Before every fifth something moves all the time, before the others nothing does."""
    cameras, seconds = 20, 5.0
    for number in range(cameras):
        shown = [pictures[(number + step) % PICTURES][::2, ::2] for step in range(4)]
        write_pictures(tmp_path / f"street-{number}", shown[: 1 if number % 5 else 4])
    with hearing_results(tmp_path) as results:
        command = agent_command(
            tmp_path,
            [
                {
                    "name": f"camera-{number}",
                    "url": str(tmp_path / f"street-{number}"),
                    "loop": True,
                    "fps": FPS,
                }
                for number in range(cameras)
            ],
            results_file="results",
        )
        with running(command) as agent:
            agent.event("running")
            until(lambda: len({each.result["camera"] for each in results.own()}) == cameras, "every camera")
            begun_mono_s = time.monotonic()
            seen = Window.of(results, begun_mono_s, begun_mono_s + seconds, cameras * FPS, 2.0)
            assert agent.stop() < EXIT_IN_S and agent.process.returncode == 0
    print(f"\n{cameras} cameras: {seen}", end="")
    record_property("20 cameras", str(seen))
    per_camera = [
        sum(each.result["camera"] == f"camera-{number}" for each in results.own(begun_mono_s))
        for number in range(cameras)
    ]
    assert min(per_camera) >= 0.5 * max(per_camera), f"some wait for others: {per_camera}"
    assert seen.late <= 0.1 * seen.answered and seen.answered >= 0.2 * seen.due, str(seen)
