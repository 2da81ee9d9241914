"""The simulated fleet: shipped updaters on disks of their own, and around them what models and cameras truly are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from cloud.release.repository import Repository
from fovea.bench.rollout_cloud import clock_in, repository_in
from fovea.bench.rollout_site import BEGAN_AT, FAMILY, GROUP
from fovea.core.errors import Incompatible, Malformed, Unavailable
from fovea.core.release import DesiredState, ModelPin, Phase, Probation, ReportedState, Stage
from fovea.sim.fleet import Fleet, FleetSettings
from fovea.sim.fleet_clock import VirtualClock
from fovea.sim.fleet_device import Site
from fovea.sim.fleet_host import SimulatedHost, World
from fovea.sim.fleet_models import tiny_model
from fovea.sim.fleet_truth import CameraTruth, FleetTruth, ModelTruth
from fovea.sim.fleet_web import BadLine, FolderFiles, WholeAnswers
from fovea.sim.release_web import MemoryWeb
from fovea.update.trial import try_bundle
from tests.fakes import FakeClock

MODELS = {
    "1.0": ModelTruth(0.8),
    "2.0": ModelTruth(0.9),
    "3.0": ModelTruth(crashes_per_h=200.0),
    "4.0": ModelTruth(failures_per_h=2000.0),
    "5.0": ModelTruth(ms_p95=2000.0),
}
PLAIN = FleetTruth(difficulty_spread=0.0, slowness_spread=0.0, busy_spread=0.0, drift=0.0, taste=0.0)
FAST = 1e9


class Ground:
    """A repository with all models, and fleets over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock: VirtualClock = clock_in(folder, BEGAN_AT)
        self.repository: Repository = repository_in(folder, self.clock)
        self.repository.init()
        self.repository.add_family(FAMILY)
        self.bundles = {version: tiny_model(version) for version in MODELS}
        self.pins: dict[str, ModelPin] = {
            version: self.repository.add_bundle(FAMILY, bundle).pin
            for version, bundle in self.bundles.items()
        }
        self.serial = 0
        self.reports: list[ReportedState] = []
        self.web = MemoryWeb(FolderFiles(self.repository.public))
        self.order("1.0")

    def order(self, champion: str, candidate: str | None = None, stage: Stage = Stage.IDLE) -> None:
        self.serial += 1
        now, share = self.clock.now(), 0.0 if candidate is None else 1.0
        pins = self.pins[champion], None if candidate is None else self.pins[candidate]
        is_shadow = stage is Stage.SHADOW
        self.repository.publish(
            DesiredState(
                GROUP, FAMILY, self.serial, now, now + timedelta(days=6), *pins, stage,
                share if is_shadow else 0.0, 0.0 if is_shadow else share, "salt", Probation(100, 60.0, 200.0),
            )
        )  # fmt: skip

    def fleet(self, devices: int = 6, **settings: float) -> Fleet:
        root = (self.repository.public / "metadata" / "1.root.json").read_bytes()
        site = Site(self.web.base_url, root, GROUP, FAMILY, self.bundles["1.0"])
        made = FleetSettings(devices, **{"broken": 0.0, **settings})  # type: ignore[arg-type]
        world = World(MODELS, PLAIN, self.clock)
        return Fleet(self.folder / "devices", made, site, world, self.clock, self.web, self.reports.append)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    yield Ground(tmp_path)


def test_a_fleet_follows_an_order_and_answers_every_frame_of_its_clock(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("2.0")
    assert fleet.run(lambda: fleet.running() == {"2.0": 6}, 3600, FAST)
    fleet.run(lambda: False, 1800, FAST)
    answered = fleet.answered()
    assert set(answered) == {"1.0", "2.0"}
    for device in fleet.devices.values():
        assert device.host.health().frames == sum(device.all_answered.values())
        assert device.host.health().frames == int(2 * ground.clock.monotonic_s())
    assert fleet.dropped() == 0


def test_hints_are_followed_long_before_the_next_poll(ground: Ground) -> None:
    fleet = ground.fleet()
    fleet.run(lambda: False, 400, FAST)
    ground.order("2.0")
    for name in fleet.devices:
        fleet.look(name)
    fleet.run(lambda: fleet.running() == {"2.0": 6}, 30, FAST)
    assert fleet.running() == {"2.0": 6}


def test_a_model_that_crashes_where_it_answers_is_left_by_every_device_by_itself(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("3.0")
    fleet.run(lambda: False, 2400, FAST)
    assert fleet.running()["1.0"] >= 5, "a lucky one may have lived through its probation"
    assert sum(device.restarts for device in fleet.devices.values()) >= 5
    assert {each.phase for each in ground.reports} >= {Phase.PROBATION, Phase.STEPPED_BACK}
    assert fleet.answered()["3.0"] > 0


def test_a_model_that_breaks_on_frames_is_stepped_back_from_within_its_probation(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("4.0")
    assert fleet.run(lambda: fleet.answered()["4.0"] > 0 and set(fleet.running()) == {"1.0"}, 3600, FAST)
    fleet.run(lambda: False, 900, FAST)
    last = {each.device: each for each in ground.reports}
    assert all(each.phase is Phase.STEPPED_BACK for each in last.values())
    assert all("it broke on" in (each.reason or "") for each in last.values())


def test_a_model_that_is_far_too_slow_never_answers(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("5.0")
    fleet.run(lambda: False, 1200, FAST)
    assert fleet.answered()["5.0"] == 0
    assert {each.device: each for each in ground.reports}["camera-0000"].phase is Phase.REFUSED


def test_a_candidate_in_shadow_answers_nothing_and_its_gain_is_seen(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("1.0", "2.0", Stage.SHADOW)
    fleet.run(lambda: False, 3600, FAST)
    shadow = ground.reports[-1].shadow
    assert shadow is not None and shadow.candidate_sha256 == ground.pins["2.0"].sha256
    assert shadow.sum_wd / shadow.sum_w == pytest.approx(0.1, abs=0.05)
    assert set(fleet.answered()) == {"1.0"}


def test_a_bad_line_delays_and_does_not_stop(ground: Ground) -> None:
    fleet = ground.fleet(broken=0.3)
    ground.order("2.0")
    assert fleet.run(lambda: fleet.running() == {"2.0": 6}, 6 * 3600, FAST)


def test_a_device_that_was_away_for_weeks_catches_up(ground: Ground) -> None:
    fleet = ground.fleet(away=1)
    ground.order("2.0")
    assert fleet.run(lambda: fleet.running() == {"2.0": 5}, 3600, FAST)
    assert fleet.devices["camera-0005"].running == "1.0"
    assert "camera-0005" not in {each.device for each in ground.reports}
    ground.clock.advance_to(ground.clock.monotonic_s() + 20 * 86_400)
    ground.repository.refresh()
    ground.order("2.0")
    fleet.call_back()
    assert fleet.run(lambda: fleet.running() == {"2.0": 6}, 3600, FAST)


def test_a_power_cut_at_any_time_loses_no_way_back(ground: Ground) -> None:
    fleet = ground.fleet()
    ground.order("2.0")
    rng = np.random.default_rng(3)

    def storm() -> bool:
        fleet.devices[f"camera-{rng.integers(6):04d}"].pull_the_plug()
        return False

    fleet.run(storm, 900, 2000.0)
    assert fleet.run(lambda: set(fleet.running()) <= {"1.0", "2.0"}, 10, FAST)
    ground.order("2.0")
    assert fleet.run(lambda: fleet.running() == {"2.0": 6}, 7200, FAST)


def host(clock: FakeClock, version: str = "1.0", camera: CameraTruth = CameraTruth()) -> SimulatedHost:
    ref = tiny_model(version).ref
    return SimulatedHost(ref, camera, World(MODELS, PLAIN, clock), np.random.default_rng(0), 0)


def test_what_a_host_shows_is_what_is_true_of_its_model() -> None:
    clock = FakeClock()
    made = host(clock)
    clock.advance(20_000)
    evidence, health = made.evidence(), made.health()
    assert health.frames == evidence.asked.frames == 40_000
    assert evidence.asked.asked / evidence.asked.frames == pytest.approx(0.1, abs=0.01)
    assert evidence.agreement is not None
    assert evidence.agreement.sum_wx / evidence.agreement.sum_w == pytest.approx(0.78, abs=0.03)
    assert (health.detect_ms_p95, health.failures) == (30.0, 0)


def test_the_agreement_of_a_new_model_begins_anew() -> None:
    clock = FakeClock()
    made = host(clock)
    clock.advance(1000)
    made.switch_to(tiny_model("2.0"))
    agreement = made.evidence().agreement
    assert agreement is not None and (agreement.n, agreement.model_sha256) == (
        0,
        tiny_model("2.0").ref.sha256,
    )
    assert made.health().detect_ms_p95 is None


def test_a_host_that_crashed_sees_nothing_more() -> None:
    clock = FakeClock()
    made = host(clock, "3.0")
    clock.advance(36_000)
    frames = made.health().frames
    clock.advance(1000)
    assert made.has_crashed
    assert made.health().frames == frames < 72_000


def test_a_model_of_which_nothing_is_known_is_said() -> None:
    with pytest.raises(Incompatible, match=r"this fleet knows 1\.0, 2\.0"):
        host(FakeClock()).switch_to(tiny_model("9.9"))


def test_a_truth_that_cannot_be_is_refused() -> None:
    with pytest.raises(Malformed, match="agreement"):
        ModelTruth(agreement=1.2)


def test_the_little_models_really_run(tmp_path: Path) -> None:
    path = tmp_path / "model.fovea"
    path.write_bytes(tiny_model("1.0").to_bytes())
    assert try_bundle(path, 1, None) > 0
    assert tiny_model("1.0").ref != tiny_model("1.1").ref


def test_two_looks_at_one_clock_see_the_same_time_and_it_never_goes_back(tmp_path: Path) -> None:
    mover, other = (VirtualClock(tmp_path / "clock", BEGAN_AT) for _ in range(2))
    mover.advance_to(90.0)
    mover.advance_to(30.0)
    assert other.monotonic_s() == 90.0
    assert other.now() == BEGAN_AT + timedelta(seconds=90)


def test_lines_break_before_the_answer_or_within_it(tmp_path: Path) -> None:
    web = MemoryWeb({"a": bytes(100)})
    url = f"{web.base_url}/a"
    draws = iter([0.1, 0.3, 0.9])
    line = BadLine(web, 0.4, lambda: next(draws), lambda: False)
    with pytest.raises(Unavailable, match="broke"):
        line.get(url)
    with pytest.raises(Unavailable, match="broke"):
        b"".join(line.get(url).chunks())
    assert b"".join(WholeAnswers(line).get(url).chunks()) == bytes(100)
    with pytest.raises(Unavailable, match="nobody"):
        BadLine(web, 0.0, lambda: 0.5, lambda: True).get(url)


def test_files_of_a_folder_are_read_as_they_are_now(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    (tmp_path / "metadata").mkdir()
    for text in (b"one", b"two"):
        (tmp_path / "metadata" / "timestamp.json").write_bytes(text)
        assert files["metadata/timestamp.json"] == text
    assert (list(files), len(files), "x" in files) == (["metadata/timestamp.json"], 1, False)
