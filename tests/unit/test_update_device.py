"""A device follows what is signed: fetch, verify, try, switch, probation, commit, or back to the last good model."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from fovea.core.errors import Incompatible
from fovea.core.release import Phase, Probation, Stage
from fovea.update.judging import Machine
from tests.file_server import FileServer, serving
from tests.signed_repository import NOW, SignedRepository, desired_state, pin_of
from tests.update_device import Device, model

OLD, NEW = model("1.0"), model("1.1")


@pytest.fixture
def repository() -> SignedRepository:
    """Lists both models and orders the new one as the candidate for all."""
    made = SignedRepository()
    made.add_model(OLD, 1)
    made.add_model(NEW, 2)
    made.order(desired_state(1, OLD, NEW))
    made.publish()
    return made


@pytest.fixture
def server(repository: SignedRepository) -> Iterator[FileServer]:
    with serving(repository.files) as made:
        yield made


@pytest.fixture
def device(tmp_path: Path, repository: SignedRepository, server: FileServer) -> Device:
    return Device(tmp_path, repository, server.url, OLD)


def test_an_update_goes_through_every_phase_and_is_committed(device: Device) -> None:
    assert device.poll().phase is Phase.PROBATION
    assert device.host.running == NEW.ref
    assert device.store.last_good() == OLD.ref
    assert device.settle().phase is Phase.COMMITTED
    assert device.phases == [Phase.FETCHING, Phase.VERIFYING, Phase.TRYING, Phase.PROBATION, Phase.COMMITTED]
    assert device.store.current() == device.store.last_good() == NEW.ref
    told = device.reports[-1]
    assert (told.serial, told.counter_floor, told.running, told.reason) == (1, 2, pin_of(NEW), None)
    assert told.clock_synced
    assert device.trial.tried == ["1.1"]


def test_a_device_without_news_asks_for_the_timestamp_and_nothing_more(
    device: Device, server: FileServer
) -> None:
    device.poll()
    device.settle()
    server.asked.clear()
    assert device.poll().phase is Phase.COMMITTED
    assert [path for path, _ in server.asked] == ["metadata/2.root.json", "metadata/timestamp.json"]


def test_a_hint_wakes_it_and_without_one_it_waits_for_the_interval(
    device: Device, server: FileServer
) -> None:
    device.poll()
    device.settle()
    server.asked.clear()
    device.clock.advance(10)
    assert device.updater.step() > 100
    assert not server.asked
    device.updater.look()
    assert device.updater.step() == pytest.approx(2.5)
    device.clock.advance(3)
    device.updater.step()
    assert server.asked_for("timestamp.json") == 1


def test_only_the_cohort_runs_the_candidate(
    tmp_path: Path, repository: SignedRepository, server: FileServer
) -> None:
    repository.order(desired_state(2, OLD, NEW, stage=Stage.CANARY, run_share=0.5))
    repository.publish()
    running = []
    for number in range(12):
        each = Device(tmp_path / str(number), repository, server.url, OLD, name=f"cam-{number}")
        each.poll()
        running.append(each.host.running)
    assert {OLD.ref, NEW.ref} == set(running)


def test_in_shadow_the_candidate_is_tried_and_looked_with_and_the_champion_runs(
    device: Device, repository: SignedRepository
) -> None:
    repository.order(desired_state(2, OLD, NEW, stage=Stage.SHADOW, shadow_share=0.25))
    repository.publish()
    assert device.poll().phase is Phase.COMMITTED
    assert device.host.running == OLD.ref
    assert device.host.shadowed == ("1.1", 0.25)
    assert device.trial.tried == ["1.1"]
    repository.order(desired_state(3, OLD))
    repository.publish()
    device.poll()
    assert device.host.shadowed is None


def test_a_policy_is_applied_once_and_again_after_a_restart(
    device: Device, repository: SignedRepository
) -> None:
    repository.order(desired_state(2, OLD, policy={"tell_from": 0.4}))
    repository.publish()
    device.poll()
    device.poll()
    assert device.host.policies == [{"tell_from": 0.4}]
    device.restart()
    device.poll()
    assert device.host.policies == [{"tell_from": 0.4}]


def test_going_back_is_an_order_of_a_higher_serial_that_names_the_old_model(
    device: Device, repository: SignedRepository
) -> None:
    device.poll()
    device.settle()
    repository.order(desired_state(2, OLD, stage=Stage.BACK))
    repository.publish()
    device.poll()
    assert device.settle().phase is Phase.COMMITTED
    assert device.host.running == device.store.last_good() == OLD.ref
    assert device.reports[-1].counter_floor == 1
    assert device.trial.tried == ["1.1"], "the old model was tried when it came, or with the software"


def test_an_order_during_the_probation_takes_the_model_back_at_once(
    device: Device, repository: SignedRepository
) -> None:
    device.host.frames_per_look = 0
    device.poll()
    repository.order(desired_state(2, OLD, stage=Stage.BACK))
    repository.publish()
    assert device.poll().phase is Phase.COMMITTED
    assert Phase.STEPPED_BACK in device.phases
    assert device.host.running == OLD.ref
    assert device.store.pending() is None


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"failures": 1}, "it broke on 1 of"),
        ({"detect_ms_p95": 150.0}, "too slow: p95 of 150.0 ms a frame, allowed are 100 ms"),
        ({"restarts": 1}, "the process restarted"),
    ],
)
def test_a_model_that_does_harm_is_taken_back_and_not_tried_again(
    device: Device, server: FileServer, trouble: dict[str, float], said: str
) -> None:
    device.poll()
    for name, value in trouble.items():
        setattr(device.host, name, value)
    told = device.settle()
    assert (told.phase, told.running, told.last_good) == (Phase.STEPPED_BACK, pin_of(OLD), pin_of(OLD))
    assert told.reason is not None and said in told.reason
    assert device.host.running == OLD.ref
    assert told.counter_floor == 0
    server.asked.clear()
    again = device.poll()
    assert (again.phase, again.reason) == (Phase.STEPPED_BACK, told.reason)
    device.restart()
    assert device.poll().phase is Phase.STEPPED_BACK
    assert device.trial.tried == ["1.1"]
    assert server.asked_for("targets/models") == 0


def test_a_new_serial_tries_a_failed_model_once_more(device: Device, repository: SignedRepository) -> None:
    device.poll()
    device.host.failures = 1
    device.settle()
    repository.order(desired_state(2, OLD, NEW))
    repository.publish()
    assert device.poll().phase is Phase.PROBATION
    assert device.settle().phase is Phase.COMMITTED


def test_a_camera_without_frames_proves_nothing_and_the_model_goes_back(device: Device) -> None:
    device.host.frames_per_look = 0
    device.poll()
    device.settle(600)
    assert device.reports[-1].phase is Phase.PROBATION
    device.clock.advance(3600)
    device.updater.step()
    told = next(state for state in device.reports if state.phase is Phase.STEPPED_BACK)
    assert told.reason is not None and "not proved: 0 frames" in told.reason


def test_a_model_that_fails_its_trial_is_refused_and_never_runs(device: Device, server: FileServer) -> None:
    device.trial.fail_with = Incompatible("the dry run failed: it crashed (SIGSEGV)")
    told = device.poll()
    assert (told.phase, told.running) == (Phase.REFUSED, pin_of(OLD))
    assert told.reason is not None and "SIGSEGV" in told.reason
    assert device.host.switches == []
    server.asked.clear()
    device.poll()
    assert server.asked_for("targets/models") == 0
    assert not list((device.folder / "updates" / "incoming").iterdir())


def test_a_model_that_cannot_be_made_ready_leaves_the_old_one(device: Device) -> None:
    device.host.fail_with = Incompatible("another input")
    told = device.poll()
    assert told.phase is Phase.STEPPED_BACK
    assert told.reason is not None and "it cannot be made ready: another input" in told.reason
    assert device.store.current() == OLD.ref
    assert device.store.pending() is None


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (
            Machine("aarch64", "1.32.0", "0.1.0", "doorbell"),
            "it is for devices of class camera, this one is doorbell",
        ),
        (Machine("aarch64", "1.32.0", "0.1.0"), "it is for devices of class camera, this one is of none"),
        (Machine("riscv64", "1.32.0", "0.1.0", "camera"), "it is for aarch64 or x86_64, this is riscv64"),
        (Machine("aarch64", "1.26.1", "0.1.0", "camera"), "it needs ONNX Runtime 1.27, here is 1.26.1"),
        (Machine("aarch64", "1.32.0", "0.0.9", "camera"), "it needs agent 0.1, this is 0.0.9"),
    ],
)
def test_a_model_for_another_device_is_refused_before_it_is_fetched(
    tmp_path: Path, repository: SignedRepository, server: FileServer, machine: Machine, said: str
) -> None:
    device = Device(tmp_path, repository, server.url, OLD, machine=machine)
    told = device.poll()
    assert (told.phase, device.host.running) == (Phase.REFUSED, OLD.ref)
    assert told.reason == f"not for this device: {said}"
    assert server.asked_for("targets/models") == 0


def test_too_little_disk_is_refused_before_the_first_byte_and_tried_again_later(
    device: Device, server: FileServer
) -> None:
    device.free_bytes = 2000
    told = device.poll()
    assert told.phase is Phase.REFUSED
    assert told.reason is not None and told.reason.startswith("too little disk: ")
    assert server.asked_for("targets/models") == 0
    device.free_bytes = 1 << 30
    assert device.poll().phase is Phase.PROBATION


def test_a_server_that_is_away_is_asked_again_soon_then_ever_more_rarely(
    device: Device, server: FileServer
) -> None:
    server.close()
    device.clock.advance(1)
    waits = []
    for _ in range(8):
        waits.append(device.updater.step())
        device.clock.advance(waits[-1] + 0.001)
    assert waits[0] < 20
    assert all(later > sooner - 1 for sooner, later in pairwise(waits))
    assert waits[-1] == pytest.approx(300)
    assert device.reports[-1].phase is Phase.IDLE
    assert device.reports[-1].reason is not None and "127.0.0.1" in device.reports[-1].reason
    assert device.host.running == OLD.ref


def test_a_clock_of_1970_is_told_and_does_not_hinder(
    tmp_path: Path, repository: SignedRepository, server: FileServer
) -> None:
    device = Device(tmp_path, repository, server.url, OLD, now=datetime(1970, 1, 1, tzinfo=UTC))
    told = device.poll()
    assert (told.phase, told.clock_synced) == (Phase.PROBATION, False)


def test_a_clock_of_1970_does_not_make_expired_metadata_fresh(
    tmp_path: Path, repository: SignedRepository, server: FileServer
) -> None:
    """The software was built, or a signature accepted, after these metadata have run out."""
    device = Device(tmp_path, repository, server.url, OLD)
    device.poll()
    device.settle()
    repository.order(
        desired_state(2, OLD, issued_at=NOW + timedelta(days=29), expires_at=NOW + timedelta(days=40))
    )
    repository.publish()
    device.clock.set_wall(datetime(1970, 1, 1, tzinfo=UTC))
    device.restart()
    assert device.poll().serial == 2
    device.restart()
    assert device.poll().reason is None
    device.clock.advance(2 * 86400)
    told = device.poll()
    assert (told.phase, told.clock_synced) == (Phase.REFUSED, False)
    assert told.reason is not None and told.reason.startswith("expired: ")
    assert device.host.running == OLD.ref or device.host.running == NEW.ref


def test_a_state_that_is_signed_again_for_another_week_is_no_new_order(
    device: Device, repository: SignedRepository
) -> None:
    device.poll()
    device.settle()
    repository.order(desired_state(1, OLD, NEW, issued_at=NOW, expires_at=NOW + timedelta(days=13)))
    repository.publish()
    told = device.poll()
    assert (told.phase, told.serial, device.host.switches) == (Phase.COMMITTED, 1, ["1.1"])


def test_keys_that_were_rotated_by_the_old_ones_are_followed(
    device: Device, repository: SignedRepository
) -> None:
    from securesystemslib.signer import CryptoSigner

    device.poll()
    device.settle()
    fresh = CryptoSigner.generate_ed25519()
    gone = repository.signers["timestamp"][0]
    repository.root.signed.add_key(fresh.public_key, "timestamp")
    repository.root.signed.revoke_key(gone.public_key.keyid, "timestamp")
    repository.root.signed.version += 1
    repository.signers["timestamp"] = [fresh]
    repository.sign_root()
    repository.order(desired_state(2, NEW))
    repository.publish()
    told = device.poll()
    assert (told.serial, told.reason) == (2, None)


def test_a_probation_without_demands_commits_at_the_next_look(
    device: Device, repository: SignedRepository
) -> None:
    repository.order(desired_state(2, OLD, NEW, probation=Probation(0, 0.0)))
    repository.publish()
    device.poll()
    device.updater.step()
    assert device.reports[-1].phase is Phase.COMMITTED
