"""The edge's copy of the release repository: what a device finds there, and that no moment of copying hurts it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_server.mirror import Mirror, MirrorLimits, keep_mirroring
from fovea.core.errors import FoveaError, NotFound, TooLarge, Unavailable, UntrustedRelease
from fovea.update.download import DownloadLimits
from fovea.update.ports import Surroundings
from tests.fakes import FakeClock
from tests.unit.release_site import FAMILY, URL, Device, FolderWeb, Site, bundle, made_site, state


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return made_site(tmp_path)


def mirror_of(site: Site, web: FolderWeb, **limits: float) -> Mirror:
    clock = FakeClock(now=datetime.now(UTC))
    around = Surroundings(clock, lambda: 1.0, clock.advance, lambda _path: 10**10)
    settings = MirrorLimits(download=DownloadLimits(tries=1), **limits)  # type: ignore[arg-type]
    return Mirror(URL, site.folder / "mirror", web, around, settings)


def camera(site: Site, name: str = "camera") -> Device:
    """A camera that knows the mirror alone."""
    root = (site.public / "metadata" / "1.root.json").read_bytes()
    return Device(site.folder / name, site.folder / "mirror", root)


def test_a_camera_without_internet_reads_from_the_mirror_what_the_repository_says(site: Site) -> None:
    web = FolderWeb(site)
    assert mirror_of(site, web).sync()
    desired = camera(site).desired()
    assert desired is not None and desired.serial == 1
    data = camera(site).read(desired.champion.target)
    assert data is not None and data == bundle().to_bytes()


def test_while_nothing_changes_two_small_files_are_asked_for(site: Site) -> None:
    web = FolderWeb(site)
    mirror = mirror_of(site, web)
    mirror.sync()
    web.asked.clear()
    assert not mirror.sync()
    assert web.asked == ["metadata/2.root.json", "metadata/timestamp.json"]


def test_only_models_that_a_group_is_told_to_run_are_copied(site: Site) -> None:
    repository, web = site.repository(), FolderWeb(site)
    second = repository.add_bundle(FAMILY, bundle("2")).pin
    mirror = mirror_of(site, web)
    mirror.sync()
    assert not [path for path in web.asked if "student-2" in path]
    repository.publish(state(second, 2))
    assert mirror.sync()
    assert camera(site).read(second.target) is not None


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "channels", "root"])
def test_cameras_follow_a_new_key_through_the_mirror(site: Site, role: str) -> None:
    mirror, device = mirror_of(site, FolderWeb(site)), camera(site)
    mirror.sync()
    assert device.desired() is not None
    repository = site.repository()
    keyid = sorted(repository.live().root.signed.roles["root"].keyids)[0] if role == "root" else None
    repository.rotate(role, keyid)
    repository.refresh()
    assert mirror.sync()
    assert device.desired() is not None and camera(site, "new").desired() is not None


def test_broken_off_anywhere_cameras_have_the_state_before_and_the_next_copy_goes_on(site: Site) -> None:
    first = mirror_of(site, FolderWeb(site))
    first.sync()
    device = camera(site)
    repository = site.repository()
    repository.publish(state(repository.add_bundle(FAMILY, bundle("2")).pin, 2))
    answers = 0
    while True:
        web = FolderWeb(site)
        web.answers_left = answers
        try:
            mirror_of(site, web).sync()
        except FoveaError:
            desired = device.desired()
            assert desired is not None and desired.serial == 1
            answers += 1
            continue
        break
    desired = device.desired()
    assert desired is not None and desired.serial == 2 and answers >= 5
    assert device.read(desired.champion.target) is not None


def test_a_copied_timestamp_is_written_when_all_it_leads_to_is_there(site: Site) -> None:
    mirror_of(site, FolderWeb(site)).sync()
    times = {
        path.name: path.stat().st_mtime_ns for path in (site.folder / "mirror").rglob("*") if path.is_file()
    }
    assert times["timestamp.json"] == max(times.values())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path, body: body + b" " if ".channels." in path else body, Unavailable),
        (
            lambda path, body: body.replace(b'"7"', b'"8"') if ".fovea" in path else body[:-1] + b"x",
            FoveaError,
        ),
        (lambda path, body: b"<html>login</html>" if "timestamp" in path else body, UntrustedRelease),
        (lambda path, body: bytes(len(body)) if "snapshot" in path else body, UntrustedRelease),
        (lambda path, body: bytes(len(body)) if "targets/channels" in path else body, UntrustedRelease),
        (lambda path, body: bytes(len(body)) if path.endswith(".fovea") else body, UntrustedRelease),
    ],
)
def test_what_does_not_fit_together_is_not_copied(
    site: Site, change: Callable[[str, bytes], bytes], expected: type[FoveaError]
) -> None:
    mirror_of(site, FolderWeb(site)).sync()
    repository = site.repository()
    repository.publish(state(repository.add_bundle(FAMILY, bundle("2")).pin, 2))
    web = FolderWeb(site)
    web.change = change
    with pytest.raises(expected):
        mirror_of(site, web).sync()
    desired = camera(site).desired()
    assert desired is not None and desired.serial == 1


def test_a_name_that_leads_out_of_the_folder_is_not_followed(site: Site) -> None:
    repository = site.repository()
    live = repository.live()
    content = live.roles["channels"].signed
    entry = next(iter(content.targets.values()))
    entry.path = "channels/../../../evil.json"
    content.targets = {entry.path: entry}
    repository._publish(live, {"channels": content}, {})
    with pytest.raises(UntrustedRelease, match="no such file"):
        mirror_of(site, FolderWeb(site)).sync()
    assert not (site.folder / "evil.json").exists()


def test_more_than_the_mirror_may_hold_is_refused_before_it_is_fetched(site: Site) -> None:
    web = FolderWeb(site)
    with pytest.raises(TooLarge, match="at most 10 are allowed"):
        mirror_of(site, web, max_bytes=10).sync()
    assert not [path for path in web.asked if path.endswith(".fovea")]


def test_a_server_without_a_repository_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"1\.root\.json: is not there"):
        mirror_of(Site(tmp_path), FolderWeb(Site(tmp_path))).sync()


def test_old_files_go_when_nobody_can_be_reading_them(site: Site) -> None:
    repository = site.repository()
    pin = repository.models(FAMILY)[0].pin
    keeping, strict = mirror_of(site, FolderWeb(site)), mirror_of(site, FolderWeb(site), keep_s=-60.0)
    for serial in range(2, 5):
        repository.publish(state(pin, serial))
        keeping.sync()
    orders = site.folder / "mirror" / "targets" / "channels"
    assert len(list(orders.iterdir())) == 3
    repository.publish(state(pin, 9))
    strict.sync()
    assert len(list(orders.iterdir())) == 1
    desired = camera(site).desired()
    assert desired is not None and desired.serial == 9 and camera(site).read(pin.target) is not None


def test_trouble_is_said_when_it_begins_and_when_it_ends(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    web = FolderWeb(site)
    mirror = mirror_of(site, web)
    web.answers_left = 0
    rounds = iter(range(10))

    def wait(_seconds: float) -> bool:
        done = next(rounds)
        if done == 3:
            web.answers_left = None
        return done == 5

    with caplog.at_level(logging.INFO, logger="edge_server.mirror"):
        keep_mirroring(mirror, wait, 60.0)
    told = [record.getMessage() for record in caplog.records]
    assert (
        len(told) == 3
        and "cannot be copied" in told[0]
        and told[1:]
        == [
            "releases: the copy is new",
            "releases: copied again",
        ]
    )
