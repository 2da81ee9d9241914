"""A release repository as a plain TUF client sees it: step by step, over every change of keys, and under attack."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tuf.api.exceptions import (
    DownloadError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.metadata import Metadata

from cloud.release.layout import Lifetimes, file_of
from cloud.release.live import families_of, groups_of
from fovea.core.errors import Malformed, NotFound, TooLarge
from fovea.core.release import ModelPin, Stage, TargetFacts
from fovea.runtime.bundle import Bundle
from fovea.update.time_floor import TimeFloor
from fovea.update.trust import Trust
from tests.fakes import FakeClock
from tests.unit.release_site import FAMILY, GROUP, URL, Device, FolderWeb, Site, bundle, made_site, state

ROLES = ("timestamp", "snapshot", "channels", f"models-{FAMILY}", "targets", "root")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return made_site(tmp_path)


def test_a_device_that_knows_the_first_root_alone_reads_what_it_has_to_run(site: Site) -> None:
    device = site.device()
    desired = device.desired()
    assert desired is not None and desired.serial == 1 and desired.policy == {"gate": {"ask_from": 0.7}}
    pin = desired.champion
    facts = TargetFacts.from_json(device.custom(pin.target))
    assert facts.pin == pin and facts.counter == 1
    data = device.read(pin.target)
    assert data is not None and Bundle.from_bytes(data).ref == pin.ref


def test_facts_say_which_devices_a_bundle_is_for(site: Site) -> None:
    facts = site.repository().add_bundle(FAMILY, bundle("2"), ("pi",), ("aarch64",))
    manifest = bundle("2").manifest
    assert facts.compat.device_classes == ("pi",) and facts.compat.arch == ("aarch64",)
    assert facts.compat.input_hw == (manifest.input.height, manifest.input.width)
    assert facts.compat.min_agent == manifest.min_agent


def test_an_unknown_target_is_unknown_to_the_device(site: Site) -> None:
    assert site.device().read("channels/nobody.json") is None
    assert site.device().read("models/other/x-1.fovea") is None


def test_a_released_version_never_changes(site: Site) -> None:
    repository = site.repository()
    again = repository.add_bundle(FAMILY, bundle())
    assert again.counter == 1
    with pytest.raises(Malformed, match=r"street-student 1 is released already.*new version"):
        repository.add_bundle(FAMILY, bundle(description="other bytes"))
    assert [each.counter for each in repository.models(FAMILY)] == [1]


def test_the_counter_rises_with_every_release_and_never_falls(site: Site) -> None:
    repository = site.repository()
    second = repository.add_bundle(FAMILY, bundle("2"))
    repository.withdraw(FAMILY, second.pin.target)
    third = repository.add_bundle(FAMILY, bundle("3"))
    assert (second.counter, third.counter) == (2, 3)
    with pytest.raises(Malformed, match="other bytes"):
        repository.add_bundle(FAMILY, bundle("2", "a withdrawn version comes back as something else"))
    assert repository.add_bundle(FAMILY, bundle("2")).counter == 4


def test_a_withdrawn_model_is_not_to_be_had_and_one_in_use_is_not_withdrawn(site: Site) -> None:
    repository = site.repository()
    second = repository.add_bundle(FAMILY, bundle("2")).pin
    repository.withdraw(FAMILY, second.target)
    assert site.device().read(second.target) is None
    with pytest.raises(Malformed, match="group yard is told to run it"):
        repository.withdraw(FAMILY, repository.models(FAMILY)[0].pin.target)
    with pytest.raises(NotFound, match="is not released"):
        repository.withdraw(FAMILY, second.target)


def test_the_serial_of_a_group_only_rises(site: Site) -> None:
    repository = site.repository()
    pin = repository.models(FAMILY)[0].pin
    for serial in (1, 0):
        with pytest.raises(Malformed, match="serial"):
            repository.publish(state(pin, serial))
    repository.publish(state(pin, 7))
    with pytest.raises(Malformed, match="expected a serial above 7, got 2"):
        repository.publish(state(pin, 2))
    desired = site.device().desired()
    assert desired is not None and desired.serial == 7


def test_going_back_is_a_higher_serial_that_names_the_old_model(site: Site) -> None:
    repository = site.repository()
    old = repository.models(FAMILY)[0].pin
    new = repository.add_bundle(FAMILY, bundle("2")).pin
    device = site.device()
    for serial, pin in ((2, new), (3, old)):
        repository.publish(state(pin, serial))
        desired = device.desired()
        assert desired is not None and (desired.serial, desired.champion) == (serial, pin)


def test_a_group_is_not_told_to_run_what_is_not_released(site: Site) -> None:
    repository = site.repository()
    pin = repository.models(FAMILY)[0].pin
    absent = ModelPin(f"models/{FAMILY}/x-9.fovea", "x", "9", "a" * 64)
    other = replace(pin, sha256="b" * 64)
    for wrong in (absent, other):
        with pytest.raises(NotFound, match="is not released"):
            repository.publish(state(wrong, 2))
    shadow = {"candidate": absent, "stage": Stage.SHADOW, "shadow_share": 0.5}
    with pytest.raises(NotFound, match="is not released"):
        repository.publish(state(pin, 2, **shadow))


def test_an_order_is_short_lived(site: Site) -> None:
    repository = site.repository()
    pin = repository.models(FAMILY)[0].pin
    now = datetime.now(UTC)
    with pytest.raises(Malformed, match="expires within 7 days"):
        repository.publish(state(pin, 2, expires_at=now + timedelta(days=30)))
    with pytest.raises(Malformed, match="not issued in the future"):
        repository.publish(state(pin, 2, issued_at=now + timedelta(1), expires_at=now + timedelta(2)))
    with pytest.raises(Malformed, match="has not expired"):
        repository.publish(state(pin, 2, issued_at=now - timedelta(2), expires_at=now - timedelta(1)))


def test_an_order_that_devices_would_not_take_is_not_given(site: Site) -> None:
    repository = site.repository()
    with pytest.raises(TooLarge, match="expected a smaller policy"):
        repository.publish(state(repository.models(FAMILY)[0].pin, 2, policy={"x": "y" * 100_000}))


def test_the_client_of_the_devices_reads_it_too(site: Site, tmp_path: Path) -> None:
    clock = FakeClock(now=datetime.now(UTC))
    root = (site.public / "metadata" / "1.root.json").read_bytes()
    trust = Trust(tmp_path / "trust", root, URL, FolderWeb(site), clock, TimeFloor(clock, clock.now()))
    release = trust.refresh()
    desired = release.desired(GROUP)
    assert desired == site.repository().desired(GROUP)
    signed = release.target(desired.champion)
    assert signed.facts == site.repository().models(FAMILY)[0]
    assert (site.public / signed.wanted.url.removeprefix(f"{URL}/")).is_file()
    site.repository().rotate("timestamp")
    assert trust.refresh().desired(GROUP) == desired


def test_families_do_not_speak_for_each_other(site: Site) -> None:
    repository = site.repository()
    repository.add_family("harbour")
    pin = repository.add_bundle("harbour", bundle()).pin
    with pytest.raises(Malformed, match="runs street"):
        repository.publish(state(pin, 2, family="harbour"))
    live = repository.live()
    assert families_of(live) == ["harbour", FAMILY] and groups_of(live) == [GROUP]
    with pytest.raises(Malformed, match="exists already"):
        repository.add_family("harbour")
    with pytest.raises(NotFound, match="no family 'desert' here; there are: harbour, street"):
        repository.models("desert")
    # The key of one family signs the path of another: no device looks there.
    stolen = repository.live().roles["models-harbour"].signed
    entry = next(iter(stolen.targets.values()))
    entry.path = f"models/{FAMILY}/planted-1.fovea"
    stolen.targets = {entry.path: entry}
    repository._publish(repository.live(), {"models-harbour": stolen}, {})
    assert site.device().read(entry.path) is None


@pytest.mark.parametrize("family", ["", "Street", "a/b", "../x", "x" * 65, "a b"])
def test_a_family_has_a_name_that_can_stand_in_a_path(site: Site, family: str) -> None:
    with pytest.raises(Malformed, match="family"):
        site.repository().add_family(family)


def test_daily_work_needs_no_offline_key(site: Site) -> None:
    repository = site.repository(with_offline=False)
    pin = repository.add_bundle(FAMILY, bundle("2")).pin
    repository.publish(state(pin, 2))
    repository.refresh()
    desired = site.device().desired()
    assert desired is not None and desired.champion == pin


def test_a_new_family_waits_for_the_people_who_hold_the_targets_key(site: Site) -> None:
    absent = site.repository(with_offline=False)
    signing = absent.add_family("harbour")
    assert not signing.is_published and "1 of the targets keys" in str(signing.missing[0])
    with pytest.raises(Malformed, match="waits for signatures already"):
        absent.add_family("desert")
    absent.publish(state(absent.models(FAMILY)[0].pin, 2))  # what is online goes on meanwhile
    assert site.repository().sign().is_published
    assert absent.waiting() is None
    pin = absent.add_bundle("harbour", bundle()).pin
    assert site.device().read(pin.target) is not None
    with pytest.raises(NotFound, match="no change waits"):
        absent.sign()


def test_a_change_that_waits_can_be_forgotten(site: Site) -> None:
    absent = site.repository(with_offline=False)
    absent.add_family("harbour")
    keys = set(site.online.iterdir())
    absent.drop_waiting()
    assert absent.waiting() is None and set(site.online.iterdir()) <= keys
    assert site.repository().add_family("harbour").is_published


@pytest.mark.parametrize("role", ROLES)
def test_a_device_follows_a_new_key_of_every_role_and_the_old_key_is_worth_nothing(
    site: Site, role: str
) -> None:
    known, late = site.device("known"), site.device("late")
    assert known.desired() is not None
    repository = site.repository()
    before = _keyids(site, role)
    signing = repository.rotate(role, sorted(before)[0] if role == "root" else None)
    assert signing.is_published, signing
    after = _keyids(site, role)
    assert len(after) == len(before) and len(after - before) == 1
    for device in (known, late):
        assert device.desired() is not None
    pin = site.repository().add_bundle(FAMILY, bundle("2")).pin
    site.repository().publish(state(pin, 2))
    for device in (known, late):
        desired = device.desired()
        assert desired is not None and desired.champion == pin and device.read(pin.target) is not None
    folder = site.offline if role in ("root", "targets") else site.online
    (new,) = after - before
    assert list(folder.glob(f"{role}.{new[:16]}.pem"))
    if role not in ("root", "targets"):
        (old,) = before - after
        assert not list(folder.glob(f"{role}.{old[:16]}.pem"))


def test_a_device_that_was_away_follows_every_key_in_turn(site: Site) -> None:
    device = site.device()
    assert device.desired() is not None
    for role in ROLES * 2:
        keyid = sorted(_keyids(site, role))[0] if role == "root" else None
        assert site.repository().rotate(role, keyid).is_published
    desired = device.desired()
    assert desired is not None and device.read(desired.champion.target) is not None
    assert len(list((site.public / "metadata").glob("*.root.json"))) == 9


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_a_lost_key_is_replaced_without_it(site: Site, role: str) -> None:
    device = site.device()
    assert device.desired() is not None
    folder = site.offline if role == "targets" else site.online
    for path in folder.glob(f"{role}.*.pem"):
        path.unlink()
    if role != "targets":
        with pytest.raises(NotFound, match=rf"the key [0-9a-f]{{16}} of {role} is not here"):
            site.repository().add_bundle(FAMILY, bundle("2"))
    assert site.repository().rotate(role, is_key_lost=True).is_published
    site.repository().refresh()
    assert device.desired() is not None


def test_a_lost_targets_key_is_asked_for_unless_it_is_said_to_be_lost(site: Site) -> None:
    for path in site.offline.glob("targets.*.pem"):
        path.unlink()
    signing = site.repository().rotate("targets")
    assert [each.role for each in signing.missing] == ["targets"]


def test_which_of_the_root_keys_goes_has_to_be_said(site: Site) -> None:
    with pytest.raises(Malformed, match="root has several keys"):
        site.repository().rotate("root")
    with pytest.raises(NotFound, match="root has no key 'xyz'"):
        site.repository().rotate("root", "xyz")
    with pytest.raises(NotFound, match="no role 'mirror' here; there are: "):
        site.repository().rotate("mirror")


def test_two_people_sign_a_new_root_one_after_the_other(site: Site) -> None:
    away = site.folder / "away"
    keys = sorted(site.offline.glob("root.*.pem"))
    away.mkdir()
    for path in keys:
        path.rename(away / path.name)
    signing = site.repository().rotate("timestamp")
    assert [(each.role, each.count) for each in signing.missing] == [("root", 2)]
    (away / keys[0].name).rename(keys[0])
    first = site.repository().sign()
    assert [(each.role, each.count, len(each.keyids)) for each in first.missing] == [("root", 1, 2)]
    keys[0].rename(away / keys[0].name)
    site.device().desired()  # nothing has changed for devices
    assert site.repository().live().root.signed.version == 1
    (away / keys[1].name).rename(keys[1])
    assert site.repository().sign().is_published
    assert site.repository().live().root.signed.version == 2
    assert site.device().desired() is not None


def test_one_root_key_alone_changes_nothing(site: Site) -> None:
    for path in sorted(site.offline.glob("root.*.pem"))[:2]:
        path.unlink()
    signing = site.repository().rotate("snapshot")
    assert not signing.is_published
    assert site.repository().sign().missing == signing.missing


def test_refresh_signs_again_before_anything_expires_and_prolongs_orders_under_their_serial(
    tmp_path: Path,
) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=5)
    site = Site(tmp_path)
    past = site.repository(now=lambda: long_ago)
    past.init()
    past.add_family(FAMILY)
    pin = past.add_bundle(FAMILY, bundle()).pin
    past.publish(state(pin, 1, issued_at=long_ago, expires_at=long_ago + timedelta(days=6)))
    device = site.device()
    with pytest.raises(ExpiredMetadataError):
        device.desired()
    site.repository(with_offline=False).refresh()
    desired = device.desired()
    assert desired is not None and desired.serial == 1 and desired.champion == pin
    left = desired.expires_at - datetime.now(UTC)
    assert timedelta(days=5) < left <= timedelta(days=6)


def test_refresh_leaves_alone_what_is_fresh(site: Site) -> None:
    before = site.repository().live()
    site.repository().refresh()
    after = site.repository().live()
    assert after.timestamp.signed.version == before.timestamp.signed.version + 1
    assert after.snapshot.signed.version == before.snapshot.signed.version
    desired = site.device().desired()
    assert desired is not None and desired.serial == 1


def test_refresh_removes_what_nobody_is_led_to_and_keeps_every_root(site: Site) -> None:
    repository = site.repository()
    pin = repository.models(FAMILY)[0].pin
    for serial in range(2, 6):
        repository.publish(state(pin, serial))
    repository.rotate("timestamp")
    assert len(list((site.public / "targets" / "channels").iterdir())) == 5
    repository.refresh()
    assert len(list((site.public / "targets" / "channels").iterdir())) == 5  # somebody may be reading them
    repository.refresh(max_age=timedelta(seconds=-60))
    assert len(list((site.public / "targets" / "channels").iterdir())) == 1
    names = {path.name for path in (site.public / "metadata").iterdir()}
    assert {"1.root.json", "2.root.json", "timestamp.json"} <= names and len(names) == 7
    assert site.device().read(pin.target) is not None


def test_root_and_targets_are_renewed_by_people_when_half_of_their_life_is_over(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=200)
    site = Site(tmp_path)
    site.repository(now=lambda: long_ago).init()
    signing = site.repository().renew_offline()
    assert signing is not None and signing.is_published
    live = site.repository().live()
    assert live.root.signed.version == 2 and live.targets.signed.version == 2
    assert site.repository().renew_offline() is None
    site.repository().refresh()
    assert site.device().read("channels/none.json") is None


def test_the_repository_is_made_once(site: Site) -> None:
    with pytest.raises(Malformed, match="expected a folder without a repository"):
        site.repository().init()


def test_a_folder_without_a_repository_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no release repository"):
        Site(tmp_path).repository().refresh()
    with pytest.raises(NotFound, match="no release repository"):
        Site(tmp_path).repository().live()


def test_lifetimes_are_long_enough_to_be_read() -> None:
    with pytest.raises(Malformed, match="lifetime of timestamp"):
        Lifetimes(timestamp=timedelta(0))


def test_a_frozen_repository_is_refused_when_its_timestamp_has_expired(tmp_path: Path) -> None:
    site = made_site(tmp_path)
    device = site.device()
    assert device.desired() is not None
    old = site.repository(now=lambda: datetime.now(UTC) - timedelta(days=2))
    old.refresh()
    with pytest.raises(ExpiredMetadataError):
        device.updater()


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "channels", f"models-{FAMILY}"])
def test_metadata_with_one_changed_value_is_refused(site: Site, role: str) -> None:
    path = _metadata(site, role)
    form = json.loads(path.read_bytes())
    form["signed"]["expires"] = "2099-01-01T00:00:00Z"
    path.write_text(json.dumps(form))
    with pytest.raises((RepositoryError, DownloadError)):
        _read_all(site)


def test_a_bundle_with_one_flipped_bit_is_refused(site: Site) -> None:
    pin = site.repository().models(FAMILY)[0].pin
    (path,) = (site.public / "targets" / "models" / FAMILY).iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(LengthOrHashMismatchError):
        site.device().read(pin.target)


def test_an_older_state_put_back_is_refused(site: Site) -> None:
    device = site.device()
    old = (site.public / "metadata" / "timestamp.json").read_bytes()
    site.repository().refresh()
    assert device.desired() is not None
    (site.public / "metadata" / "timestamp.json").write_bytes(old)
    with pytest.raises(RepositoryError):
        device.updater()


def test_files_of_two_moments_do_not_mix(site: Site) -> None:
    old = _metadata(site, "channels").read_bytes()
    repository = site.repository()
    repository.publish(state(repository.models(FAMILY)[0].pin, 2))
    _metadata(site, "channels").write_bytes(old)
    with pytest.raises(RepositoryError):
        site.device().desired()


def test_a_stranger_with_keys_of_his_own_is_refused(site: Site, tmp_path: Path) -> None:
    stranger = made_site(tmp_path / "stranger")
    device = site.device()
    for path in (stranger.public / "metadata").iterdir():
        if path.name != "1.root.json":
            (site.public / "metadata" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UnsignedMetadataError):
        device.updater()


def test_after_the_theft_of_all_online_keys_devices_come_back_to_the_restored_repository(
    site: Site, tmp_path: Path
) -> None:
    thief = Site(tmp_path / "thief")
    shutil.copytree(site.folder / "repository", thief.folder / "repository")
    shutil.copytree(site.online, thief.online)
    device = site.device()
    stolen = thief.repository(with_offline=False)
    pin = stolen.add_bundle(FAMILY, bundle("2", "blind")).pin
    for serial in range(2, 12):  # versions and serials that the true repository never had
        stolen.publish(state(pin, serial))
    misled = Device(tmp_path / "camera", thief.public, device.root)
    desired = misled.desired()
    assert desired is not None and desired.champion == pin
    back = Device(tmp_path / "camera", site.public, device.root)
    with pytest.raises(RepositoryError):
        back.desired()  # the state before the theft is older than what the device has seen
    for role in ("timestamp", "snapshot", "channels", f"models-{FAMILY}"):
        assert site.repository().rotate(role).is_published
    repository = site.repository(with_offline=False)
    repository.publish(state(repository.models(FAMILY)[0].pin, 100))
    desired = back.desired()
    assert desired is not None and desired.serial == 100 and desired.champion.version == "1"
    stolen.refresh()
    with pytest.raises(RepositoryError):
        misled.updater()


def test_every_file_is_named_by_what_devices_ask_for(site: Site) -> None:
    for role in site.repository().live().roles.values():
        for target, entry in role.signed.targets.items():
            assert (site.public / "targets" / file_of(target, entry.hashes["sha256"])).is_file()


def _read_all(site: Site) -> None:
    device = site.device()
    desired = device.desired()
    assert desired is not None
    device.read(desired.champion.target)


def _keyids(site: Site, role: str) -> set[str]:
    from cloud.release.live import signers_of

    live = site.repository().live()
    return set(signers_of(role, live.root.signed, live.targets.signed)[1])


def _metadata(site: Site, role: str) -> Path:
    live = site.repository().live()
    metadata: Metadata[Any] = dict(live.all_roles())[role]
    name = "timestamp.json" if role == "timestamp" else f"{metadata.signed.version}.{role}.json"
    return site.public / "metadata" / name
