"""Every attack on the way from the signer to the device is refused with its name, and what runs goes on running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, TargetFile

from fovea.core.release import Phase
from fovea.update.download import DownloadLimits
from tests.file_server import (
    FileServer,
    cut_short,
    endless,
    ignoring_range,
    serving,
    trickling,
    with_status,
    with_wrong_range,
)
from tests.signed_repository import (
    MODELS,
    NOW,
    SignedRepository,
    desired_state,
    metadata_file,
    pin_of,
    target_file,
)
from tests.update_device import Device, later, model

OLD, NEW, NEWER = model("1.0"), model("1.1"), model("1.2")


@dataclass
class Stage:
    """A device that runs the old model and knows order 1, which says so; order 2, for the new one, is attacked."""

    repository: SignedRepository
    server: FileServer
    device: Device
    folder: Path

    def order_new(self) -> None:
        self.repository.add_model(NEW, 2)
        self.repository.order(desired_state(2, NEW))
        self.repository.publish()

    @property
    def new_target(self) -> str:
        return target_file(pin_of(NEW).target, NEW.to_bytes())

    def metadata(self, role: str) -> str:
        made = self.repository
        signed: dict[str, Metadata[Any]] = {
            "targets": made.targets,
            "snapshot": made.snapshot,
            **made.delegated,
        }
        return metadata_file(role, signed[role])

    def serve(self, files: dict[str, bytes]) -> None:
        self.server.files.clear()
        self.server.files.update(files)

    def refusal(self) -> str:
        """What the device says to the next poll, which changes nothing of what it runs."""
        told = self.device.poll()
        assert told.phase is not Phase.PROBATION
        assert self.device.host.running == OLD.ref
        assert self.device.host.switches == []
        assert self.device.store.current() == OLD.ref
        assert told.reason is not None
        return told.reason


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    repository = SignedRepository()
    repository.add_model(OLD, 1)
    repository.order(desired_state(1, OLD))
    repository.publish()
    with serving(repository.files) as server:
        device = Device(
            tmp_path / "device",
            repository,
            server.url,
            OLD,
            limits=DownloadLimits(tries=3, spare_bytes=1000, first_pause_s=0.01, deadline_s=30),
        )
        assert device.poll().phase is Phase.COMMITTED
        yield Stage(repository, server, device, tmp_path)


def test_without_an_attack_the_update_passes(stage: Stage) -> None:
    stage.order_new()
    assert stage.device.poll().phase is Phase.PROBATION
    assert stage.device.settle().phase is Phase.COMMITTED
    assert stage.device.host.running == NEW.ref


# Older states than the device has seen


def test_rollback_of_the_timestamp(stage: Stage) -> None:
    before = stage.repository.copy_of_files()
    stage.repository.order(desired_state(2, OLD))
    stage.repository.publish()
    assert stage.device.poll().serial == 2
    stage.serve(before)
    assert stage.refusal().startswith(
        "rollback: an older state than this device has seen: New timestamp version"
    )


def test_rollback_of_the_snapshot(stage: Stage) -> None:
    fork = stage.repository.fork()
    stage.repository.order(desired_state(2, OLD))
    stage.repository.publish()
    stage.device.poll()
    fork.timestamp.signed.version += 5
    fork.publish_timestamp()
    stage.serve(fork.files)
    assert stage.refusal().startswith(
        "rollback: an older state than this device has seen: New snapshot version"
    )


@pytest.mark.parametrize("role", ["targets", MODELS, "channels"])
def test_rollback_of_a_role_in_a_newer_snapshot(stage: Stage, role: str) -> None:
    fork = stage.repository.fork()
    stage.repository.order(desired_state(2, OLD))
    stage.repository.publish(("targets", MODELS, "channels"))
    assert stage.device.poll().serial == 2
    old_meta = fork.snapshot.signed.meta[f"{role}.json"]
    stage.repository.snapshot.signed.meta[f"{role}.json"] = old_meta
    stage.repository.publish_snapshot()
    assert stage.refusal().startswith("rollback: ")


def test_rollback_of_the_root(stage: Stage) -> None:
    stage.server.files["metadata/2.root.json"] = stage.server.files["metadata/1.root.json"]
    assert stage.refusal().startswith("rollback: Expected root version 2")


def test_replay_of_an_older_state_after_the_metadata_were_wiped(stage: Stage) -> None:
    before = stage.repository.copy_of_files()
    stage.repository.order(desired_state(2, OLD))
    stage.repository.publish()
    stage.device.poll()
    stage.serve(before)
    stage.device.wipe_metadata()
    assert stage.refusal() == (
        "rollback: the desired state 1 of north is older than 2, which this device has accepted"
    )


def test_an_older_order_that_still_is_signed_in_a_newer_state(stage: Stage) -> None:
    """Whoever has the key of the channel role alone cannot go back to an order that was given before."""
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(5, OLD))
    stage.repository.publish()
    assert stage.device.poll().serial == 5
    stage.repository.order(desired_state(4, NEW))
    stage.repository.publish()
    assert stage.refusal() == (
        "rollback: the desired state 4 of north is older than 5, which this device has accepted"
    )


def test_another_order_of_the_same_number(stage: Stage) -> None:
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(1, NEW))
    stage.repository.publish()
    assert stage.refusal().startswith("mix-and-match: the desired state 1 of north has another content")


def test_downgrade_through_an_older_order_of_another_group(stage: Stage) -> None:
    """The counter is below the one that was committed, and the order is older than the one that ordered that."""
    stage.order_new()
    stage.device.poll()
    stage.device.settle()
    stage.repository.order(desired_state(1, OLD, group="south"))
    stage.repository.publish()
    moved = Device(stage.device.folder, stage.repository, stage.server.url, OLD, group="south")
    told = moved.poll()
    assert told.reason is not None and told.reason.startswith(f"downgrade: {OLD.ref} is release 1 of street")
    assert moved.host.running == NEW.ref
    assert moved.host.switches == []


def test_the_floors_survive_the_loss_of_either_of_their_files_and_damage_is_no_floor_of_none(
    stage: Stage,
) -> None:
    before = stage.repository.copy_of_files()
    stage.repository.order(desired_state(2, OLD))
    stage.repository.publish()
    stage.device.poll()
    floors = stage.device.folder / "updates" / "floors.json"
    floors.write_bytes(b"\0" * 40)
    stage.device.restart()
    stage.serve(before)
    stage.device.wipe_metadata()
    assert stage.refusal().startswith("rollback: the desired state 1")
    floors.with_name("floors.copy.json").write_bytes(b"{")
    stage.device.restart()
    assert stage.refusal().startswith("the floors of releases are damaged, no update is accepted")


# States that have run out


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", MODELS, "channels"])
def test_freeze_of_a_role(stage: Stage, role: str) -> None:
    signed: dict[str, Metadata[Any]] = {
        "timestamp": stage.repository.timestamp,
        "snapshot": stage.repository.snapshot,
        "targets": stage.repository.targets,
        **stage.repository.delegated,
    }
    signed[role].signed.expires = later(-1)
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish(("targets", MODELS, "channels"))
    said = stage.refusal()
    assert said.startswith("expired: ") and role in said and "(freeze)" in said


def test_freeze_of_everything_that_was_good_once_stops_no_model_that_runs(stage: Stage) -> None:
    stage.device.clock.set_wall(later(60))
    assert stage.refusal().startswith("expired: ")


def test_freeze_of_the_root(stage: Stage) -> None:
    stage.repository.root.signed.version = 2
    stage.repository.root.signed.expires = later(-1)
    stage.repository.sign_root()
    assert stage.refusal().startswith("expired: Final root.json is expired")


def test_an_order_from_the_year_2099_neither_ends_updates_for_good_nor_forbids_the_way_back(
    stage: Stage,
) -> None:
    far = later(365 * 70)
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(2, NEW, issued_at=far, expires_at=far + timedelta(days=6)))
    stage.repository.publish()
    stage.device.poll()
    assert stage.device.settle().phase is Phase.COMMITTED
    assert stage.device.reports[-1].clock_synced
    back_at = stage.device.clock.now() + timedelta(minutes=2)
    stage.repository.order(desired_state(3, OLD, issued_at=back_at, expires_at=back_at + timedelta(days=6)))
    stage.repository.publish()
    stage.device.poll()
    assert stage.device.settle().phase is Phase.COMMITTED
    assert stage.device.host.running == OLD.ref
    stage.device.restart()
    assert stage.device.poll().phase is Phase.COMMITTED


def test_on_a_board_without_a_clock_the_year_2099_lasts_no_longer_than_the_timestamp(stage: Stage) -> None:
    """Who holds the key of the orders, and not that of the timestamp, gains no more than a day or so."""
    far, repository = later(365 * 70), stage.repository
    stage.device.clock.set_wall(datetime(1970, 1, 1, tzinfo=UTC))
    stage.device.restart()
    repository.timestamp.signed.expires = later(1)
    repository.order(desired_state(2, OLD, issued_at=far, expires_at=far + timedelta(days=6)))
    repository.publish()
    assert stage.device.poll().serial == 2
    assert stage.device.poll().phase is Phase.REFUSED
    repository.timestamp.signed.expires = later(2)
    repository.publish_timestamp()
    assert stage.device.poll().phase is Phase.COMMITTED


def test_a_desired_state_that_has_run_out(stage: Stage) -> None:
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(2, NEW, expires_at=NOW - timedelta(hours=1)))
    stage.repository.publish()
    assert stage.refusal().startswith(
        "expired: the desired state 2 of north was good until 2026-03-10 11:00 UTC"
    )


# Signatures


@pytest.mark.parametrize("role", ["snapshot", "timestamp", MODELS, "channels", "targets"])
def test_an_unknown_key(stage: Stage, role: str) -> None:
    stage.repository.signers[role] = [CryptoSigner.generate_ed25519()]
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish(("targets", MODELS, "channels"))
    said = stage.refusal()
    assert said.startswith(f"unknown key: {role} is signed by none")


def test_a_root_below_its_threshold(stage: Stage) -> None:
    stage.repository.root.signed.version = 2
    stage.repository._put("root", stage.repository.root, stage.repository.signers["root"][:1])
    assert stage.refusal() == "below threshold: root is signed by 1 of the 2 keys that it takes"


def test_a_root_that_others_have_signed(stage: Stage) -> None:
    thieves = [CryptoSigner.generate_ed25519() for _ in range(2)]
    stage.repository.root.signed.version = 2
    for thief in thieves:
        stage.repository.root.signed.add_key(thief.public_key, "root")
    stage.repository._put("root", stage.repository.root, thieves)
    assert stage.refusal().startswith("unknown key: root is signed by none")


def test_a_model_that_the_channel_role_lists(stage: Stage) -> None:
    """The key of the channels must not be able to bring in a model: it is looked for in its own role alone."""
    stage.repository.add_model(NEW, 2, role="channels")
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish()
    assert stage.refusal() == f"{pin_of(NEW).target} is not signed by the role that may sign it"


def test_an_order_that_the_model_role_lists(stage: Stage) -> None:
    channels = stage.repository.delegated["channels"].signed.targets
    stage.repository.delegated[MODELS].signed.targets["channels/north.json"] = channels.pop(
        "channels/north.json"
    )
    stage.repository.publish()
    assert stage.refusal() == "channels/north.json is not signed by the role that may sign it"


def test_an_altered_signature_byte(stage: Stage) -> None:
    stage.order_new()
    path = stage.metadata(MODELS)
    data = bytearray(stage.server.files[path])
    position = data.index(b'"sig":"') + 12
    data[position] = ord("0") if data[position] != ord("0") else ord("1")
    stage.server.files[path] = bytes(data)
    assert stage.refusal().startswith(
        f"mix-and-match: {path.rpartition('/')[2]} is not the one that was signed"
    )


# Parts of several states


@pytest.mark.parametrize("role", ["targets", MODELS, "channels"])
def test_mix_and_match_of_a_role(stage: Stage, role: str) -> None:
    older = stage.server.files[stage.metadata(role)]
    stage.repository.add_model(NEW, 2)
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish(("targets", MODELS, "channels"))
    stage.server.files[stage.metadata(role)] = older
    assert stage.refusal().startswith("mix-and-match: ")


def test_mix_and_match_of_the_snapshot(stage: Stage) -> None:
    older = stage.server.files[stage.metadata("snapshot")]
    stage.order_new()
    stage.server.files[stage.metadata("snapshot")] = older
    assert stage.refusal().startswith("mix-and-match: ")


def test_a_role_that_has_gone_from_the_snapshot(stage: Stage) -> None:
    del stage.repository.snapshot.signed.meta["channels.json"]
    stage.repository.publish_snapshot()
    assert stage.refusal().startswith("mix-and-match: a role has gone from the snapshot")


def test_a_target_that_is_signed_as_another_model(stage: Stage) -> None:
    stage.repository.add_model(NEW, 2, pin=pin_of(NEWER))
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish()
    assert stage.refusal().startswith(f"mix-and-match: {pin_of(NEW).target} is signed as {NEWER.ref}")


def test_a_bundle_that_is_another_model_than_its_signer_says(stage: Stage) -> None:
    stage.repository.add_model(NEW, 2)
    data = NEWER.to_bytes()
    info = TargetFile.from_data(pin_of(NEW).target, data, ["sha256"])
    listed = stage.repository.delegated[MODELS].signed.targets
    info.unrecognized_fields["custom"] = listed[pin_of(NEW).target].custom
    listed[pin_of(NEW).target] = info
    stage.repository.files[target_file(pin_of(NEW).target, data)] = data
    stage.repository.order(desired_state(2, NEW))
    stage.repository.publish()
    assert stage.refusal().startswith(f"mix-and-match: {pin_of(NEW).target} holds {NEWER.ref}")


def test_an_order_for_another_family_under_this_groups_name(stage: Stage) -> None:
    shop = replace(pin_of(OLD), target="models/shop/tiny-1.0.fovea")
    stage.repository.order(replace(desired_state(2, OLD), family="shop", champion=shop))
    stage.repository.publish()
    assert stage.refusal().startswith("desired state: expected one for group north and family street")


# Bad manners of the server


@pytest.mark.parametrize("file", ["metadata/timestamp.json", "metadata/2.root.json"])
def test_endless_metadata(stage: Stage, file: str) -> None:
    stage.server.manners[file] = endless
    assert stage.refusal().startswith("endless data: ")


def test_an_endless_model(stage: Stage) -> None:
    stage.order_new()
    stage.server.manners[stage.new_target] = endless
    assert stage.refusal().startswith("endless data: ")
    assert stage.server.asked_for("targets/models") == 1


def test_an_altered_model(stage: Stage) -> None:
    stage.order_new()
    data = bytearray(stage.server.files[stage.new_target])
    data[len(data) // 2] ^= 1
    stage.server.files[stage.new_target] = bytes(data)
    assert stage.refusal().startswith("altered: ")
    assert not list((stage.device.folder / "updates" / "incoming").iterdir())


def test_a_model_of_another_length(stage: Stage) -> None:
    stage.order_new()
    stage.server.files[stage.new_target] += b"!"
    assert stage.refusal().endswith(f"bytes, signed are {len(NEW.to_bytes())}")


def test_an_altered_desired_state(stage: Stage) -> None:
    stage.order_new()
    path = next(
        name
        for name in stage.server.files
        if "targets/channels" in name and b'"serial": 2' in stage.server.files[name]
    )
    stage.server.files[path] = stage.server.files[path].replace(b'"serial": 2', b'"serial": 9')
    assert "is not the one that was signed" in stage.refusal()


@pytest.mark.parametrize(
    "text", [b"<html>Login</html>", b"", b"[]", b"{}", b'{"signed": 3}', b"\xff\xfe", b"[" * 9000]
)
def test_something_else_instead_of_metadata(stage: Stage, text: bytes) -> None:
    stage.server.files["metadata/timestamp.json"] = text
    assert "timestamp.json" in stage.refusal()


@pytest.mark.parametrize("custom", [None, 3, {}, {"counter": "many"}])
def test_a_target_of_which_its_signer_says_nothing_that_can_be_read(stage: Stage, custom: object) -> None:
    stage.order_new()
    target = stage.repository.delegated[MODELS].signed.targets[pin_of(NEW).target]
    target.unrecognized_fields["custom"] = custom
    stage.repository.publish()
    assert "what its signer says of it cannot be read: target facts" in stage.refusal()


@pytest.mark.parametrize("status", [301, 403, 404, 410])
def test_a_model_that_the_server_refuses_is_asked_for_once(stage: Stage, status: int) -> None:
    stage.order_new()
    stage.server.manners[stage.new_target] = with_status(status)
    assert f"the server refuses it with status {status}" in stage.refusal()
    assert stage.server.asked_for("targets/models") == 1


def test_a_busy_server_is_asked_as_often_as_is_allowed_and_again_at_the_next_poll(stage: Stage) -> None:
    stage.order_new()
    stage.server.manners[stage.new_target] = with_status(503)
    assert "the server answers with status 503" in stage.refusal()
    assert stage.server.asked_for("targets/models") == 3
    stage.server.manners.clear()
    assert stage.device.poll().phase is Phase.PROBATION


@pytest.mark.parametrize("part", ["timestamp.json", "model"])
def test_a_trickle_is_given_up(stage: Stage, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's clock runs fast, so that nobody has to wait for the patience to end."""
    stage.order_new()
    clock, tick = stage.device.clock, stage.device.clock.monotonic_s

    def fast() -> float:
        clock.advance(0.5)
        return tick()

    monkeypatch.setattr(clock, "monotonic_s", fast)
    stop = threading.Event()
    path = stage.new_target if part == "model" else "metadata/timestamp.json"
    stage.server.manners[path] = trickling(stop, 0.001)
    said = stage.refusal()
    stop.set()
    assert "too slow" in said or "not complete after" in said


def test_a_model_that_comes_in_pieces_is_put_together(stage: Stage) -> None:
    stage.order_new()
    stage.server.manners[stage.new_target] = cut_short
    for _ in range(8):
        if stage.device.poll().phase is Phase.PROBATION:
            break
    assert stage.device.host.running == NEW.ref
    starts = [int(said.removeprefix("bytes=").rstrip("-")) for _, said in stage.server.asked if said]
    assert starts == sorted(set(starts)) and len(starts) > 3


def test_a_server_that_ignores_the_range_begins_anew(stage: Stage) -> None:
    stage.order_new()
    calls = iter([cut_short, ignoring_range])
    stage.server.manners[stage.new_target] = lambda handler, data: next(calls)(handler, data)
    assert stage.device.poll().phase is Phase.PROBATION
    assert stage.device.host.running == NEW.ref


def test_a_range_that_was_not_asked_for_is_thrown_away(stage: Stage) -> None:
    stage.order_new()
    stage.server.manners[stage.new_target] = with_wrong_range
    stage.refusal()
    ranges = [said for path, said in stage.server.asked if path == stage.new_target]
    assert ranges == [None, f"bytes={(len(NEW.to_bytes()) + 1) // 2}-", None]
    stage.server.manners.clear()
    assert stage.device.poll().phase is Phase.PROBATION


def test_what_a_power_cut_left_of_a_download_is_not_believed(stage: Stage) -> None:
    """The file system may give zeros for what was not synced; the digest finds out, and it is fetched once more."""
    stage.order_new()
    incoming = stage.device.folder / "updates" / "incoming"
    incoming.mkdir(parents=True)
    name = stage.new_target.rpartition("/")[2].partition(".")[0]
    (incoming / f"{name}.fovea.part").write_bytes(b"\0" * 700)
    assert stage.device.poll().phase is Phase.PROBATION
    assert stage.server.asked_for("targets/models") == 2
