"""A release process that is killed at any write leaves what was there before, or what was to be, and goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud.release.publication import write_public
from cloud.release.repository import Repository
from fovea.core.release import DesiredState
from tests.unit.release_site import FAMILY, Site, bundle, made_site, state

ROOT = Path(__file__).parents[2]


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class DyingDisk:
    """Writes `left` files and dies at the next, before it is written, or half-written beside its place."""

    def __init__(self, left: int, leaves_part: bool) -> None:
        self.left = left
        self._leaves_part = leaves_part

    def __call__(self, path: Path, data: bytes) -> None:
        if self.left == 0:
            if self._leaves_part:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(path.name + ".part").write_bytes(data[: len(data) // 2])
            raise Killed
        self.left -= 1
        write_public(path, data)


def _publish(repository: Repository) -> None:
    repository.publish(state(repository.models(FAMILY)[0].pin, 2))


def _add(repository: Repository) -> None:
    repository.add_bundle(FAMILY, bundle("2"))


def _family(repository: Repository) -> None:
    if "models-harbour" not in repository.live().roles:
        repository.add_family("harbour")


def _rotate(role: str) -> Callable[[Repository], None]:
    def rotate(repository: Repository) -> None:
        live = repository.live().root.signed
        keyid = sorted(live.roles["root"].keyids)[0] if role == "root" else None
        repository.rotate(role, keyid)

    return rotate


CHANGES: dict[str, Callable[[Repository], None]] = {
    "publish": _publish,
    "add": _add,
    "family": _family,
    "refresh": Repository.refresh,
    **{f"rotate-{role}": _rotate(role) for role in ("timestamp", "snapshot", "targets", "root", "channels")},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_site(folder)
    return folder


@pytest.mark.parametrize("leaves_part", [False, True], ids=["before", "half-written"])
@pytest.mark.parametrize("change", CHANGES)
def test_killed_at_every_write_devices_read_on_and_the_next_command_goes_through(
    made: Path, tmp_path: Path, change: str, leaves_part: bool
) -> None:
    writes = 0
    while True:
        site = _copy(made, tmp_path / str(writes))
        device, stranger = site.device("known"), site.device("new")
        device.desired()
        disk = DyingDisk(writes, leaves_part)
        try:
            CHANGES[change](site.repository(write=disk))
        except Killed:
            pass
        else:
            break
        for reader in (device, stranger):
            assert _read(reader.desired()).serial in (1, 2)
            assert reader.read(f"models/{FAMILY}/street-student-1.fovea") is not None
        again = site.repository()
        again.refresh()
        _finish(again, change)
        for reader in (device, stranger):
            assert _read(reader.desired()).serial == (2 if change == "publish" else 1)
        assert (reader.read(f"models/{FAMILY}/street-student-2.fovea") is not None) == (change == "add")
        writes += 1
    assert writes >= (1 if change == "refresh" else 3), "the change was not seen at every one of its writes"


def _finish(repository: Repository, change: str) -> None:
    """The command again, where it had not come so far that it was carried on."""
    desired = repository.desired("yard")
    if not (change == "publish" and desired is not None and desired.serial == 2):
        CHANGES[change](repository)


def test_a_process_that_is_really_killed_leaves_a_whole_repository(made: Path, tmp_path: Path) -> None:
    for writes, serial in ((1, 1), (3, 1), (4, 2)):  # after the order; before the timestamp; not at all
        site = _copy(made, tmp_path / str(writes))
        device = site.device()
        killed = subprocess.run(
            [sys.executable, "-c", _VICTIM, str(site.folder), str(writes)], cwd=ROOT, capture_output=True
        )
        assert killed.returncode == (0 if serial == 2 else -signal.SIGKILL), killed.stderr.decode()
        assert _read(device.desired()).serial == serial
        if serial == 1:
            _publish(site.repository())
            assert _read(device.desired()).serial == 2


_VICTIM = """
import os, signal, sys
from pathlib import Path
from cloud.release.publication import write_public
from tests.unit.release_site import FAMILY, Site, state
left = int(sys.argv[2])
def write(path, data):
    global left
    if left == 0:
        path.with_name(path.name + ".part").write_bytes(data[:10])
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    write_public(path, data)
repository = Site(Path(sys.argv[1])).repository(write=write)
repository.publish(state(repository.models(FAMILY)[0].pin, 2))
"""


def _copy(made: Path, folder: Path) -> Site:
    shutil.copytree(made, folder)
    return Site(folder)


def _read(desired: DesiredState | None) -> DesiredState:
    assert desired is not None
    return desired


def test_a_repository_that_was_never_finished_is_made_again(tmp_path: Path) -> None:
    for writes in range(5):
        site = Site(tmp_path / str(writes))
        with pytest.raises(Killed):
            site.repository(write=DyingDisk(writes, leaves_part=True)).init()
        site.repository().init()
        assert site.repository().add_family(FAMILY).is_published
        assert site.device().read("channels/yard.json") is None


def test_two_processes_change_it_one_after_the_other(made: Path, tmp_path: Path) -> None:
    site = _copy(made, tmp_path / "two")
    both = [
        subprocess.Popen([sys.executable, "-c", _ADDER, str(site.folder), str(first)], cwd=ROOT)
        for first in (2, 5)
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    counters = [each.counter for each in site.repository().models(FAMILY)]
    assert counters == [1, 2, 3, 4, 5, 6, 7]


_ADDER = """
import sys
from pathlib import Path
from tests.unit.release_site import FAMILY, Site, bundle
first = int(sys.argv[2])
for version in range(first, first + 3):
    Site(Path(sys.argv[1])).repository().add_bundle(FAMILY, bundle(str(version)))
"""
