"""A release repository in a folder, and a device that reads it with nothing but python-tuf."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tuf.api.exceptions import DownloadHTTPError
from tuf.ngclient import Updater
from tuf.ngclient.fetcher import FetcherInterface

from cloud.release.keys import KeyFolder, Keys
from cloud.release.repository import Repository
from fovea.core.errors import Unavailable
from fovea.core.release import DesiredState, ModelPin, Probation, Stage
from fovea.runtime.bundle import Bundle
from tests.builders import tiny_bundle

FAMILY = "street"
GROUP = "yard"
_WEB = "http://repository/"
URL = "https://cloud.example/releases"


def bundle(version: str = "1", description: str = "") -> Bundle:
    """A tiny model of the family."""
    return tiny_bundle().with_parts({}, name="street-student", version=version, description=description)


class FolderFetcher(FetcherInterface):
    """A static web server without the web."""

    def __init__(self, public: Path) -> None:
        self._public = public
        self.asked: list[str] = []

    def _fetch(self, url: str) -> Iterator[bytes]:
        path = url.removeprefix(_WEB)
        self.asked.append(path)
        try:
            return iter([(self._public / path).read_bytes()])
        except FileNotFoundError as error:
            raise DownloadHTTPError(f"no {path}", 404) from error


class Device:
    """Believes `root` alone, and keeps what it learns in `folder`."""

    def __init__(self, folder: Path, public: Path, root: bytes) -> None:
        self._folder, self._public, self.root = folder, public, root
        (folder / "targets").mkdir(parents=True, exist_ok=True)

    def updater(self) -> Updater:
        """Refreshed. Raises what python-tuf raises."""
        updater = Updater(
            str(self._folder),
            f"{_WEB}metadata/",
            str(self._folder / "targets"),
            f"{_WEB}targets/",
            FolderFetcher(self._public),
            bootstrap=self.root,
        )
        updater.refresh()
        return updater

    def read(self, target: str) -> bytes | None:
        """The bytes of a target; None when nobody speaks of it."""
        updater = self.updater()
        info = updater.get_targetinfo(target)
        return None if info is None else Path(updater.download_target(info)).read_bytes()

    def custom(self, target: str) -> Any:
        info = self.updater().get_targetinfo(target)
        return None if info is None else info.custom

    def desired(self, group: str = GROUP) -> DesiredState | None:
        data = self.read(f"channels/{group}.json")
        return None if data is None else DesiredState.from_json(json.loads(data))


class Site:
    """A repository with its keys, below `folder`."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.online, self.offline = folder / "online", folder / "offline"
        self._settings = settings

    def repository(self, with_offline: bool = True, **settings: Any) -> Repository:
        """A new one, as every command opens it."""
        offline = [KeyFolder(self.offline)] if with_offline else []
        return Repository(
            self.folder / "repository", Keys(KeyFolder(self.online), offline), **(self._settings | settings)
        )

    @property
    def public(self) -> Path:
        return self.folder / "repository" / "public"

    def device(self, name: str = "camera") -> Device:
        root = (self.public / "metadata" / "1.root.json").read_bytes()
        return Device(self.folder / name, self.public, root)


def made_site(folder: Path, **settings: Any) -> Site:
    """A repository with one family, one model, and one group that is told to run it."""
    site = Site(folder, **settings)
    repository = site.repository()
    repository.init()
    assert repository.add_family(FAMILY).is_published
    pin = repository.add_bundle(FAMILY, bundle()).pin
    repository.publish(state(pin, 1))
    return site


def state(pin: ModelPin, serial: int, **changes: Any) -> DesiredState:
    """A group that runs one model."""
    now = datetime.now(UTC)
    fields: dict[str, Any] = {
        "group": GROUP,
        "family": FAMILY,
        "serial": serial,
        "issued_at": now,
        "expires_at": now + timedelta(days=3),
        "champion": pin,
        "candidate": None,
        "stage": Stage.IDLE,
        "shadow_share": 0.0,
        "run_share": 0.0,
        "salt": "s",
        "probation": Probation(100, 60.0),
        "policy": {"gate": {"ask_from": 0.7}},
    }
    return DesiredState(**(fields | changes))


class Answer:
    """See `fovea.update.ports.Answer`."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status, self.headers, self._body = status, headers, body

    def chunks(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None: ...


class FolderWeb:
    """Serves the repository of a site, and breaks off the connection after so many answers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.asked: list[str] = []
        self.answers_left: int | None = None
        self.change: Callable[[str, bytes], bytes] = lambda _path, body: body

    def get(self, url: str, start_byte: int = 0) -> Answer:
        if self.answers_left == 0:
            raise Unavailable(f"{url}: gone")
        if self.answers_left is not None:
            self.answers_left -= 1
        path = url.removeprefix(f"{URL}/")
        self.asked.append(path)
        file = self._site.public / path
        if not file.is_file():
            return Answer(404, b"", {})
        body = self.change(path, file.read_bytes())
        if start_byte:
            shown = f"bytes {start_byte}-{len(body) - 1}/{len(body)}"
            return Answer(206, body[start_byte:], {"content-range": shown})
        return Answer(200, body, {"content-length": str(len(body))})
