"""Takes published model files from the network or from a folder, checks them, and makes bundles of them."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from fovea.cli.model_catalogue import PublishedModel, Trio
from fovea.core.errors import (
    BrokenError,
    FoveaError,
    Incompatible,
    Malformed,
    NotFound,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)
from fovea.core.labels import LabelSet
from fovea.runtime.bundle import Bundle
from fovea.runtime.import_onnx import Facts, import_model
from fovea.runtime.wrong_file import explain_failed_download

_BLOCK_BYTES = 1 << 18
_SLACK_BYTES = 1_000_000
DOWNLOADS = "downloads"

Progress = Callable[[str, int, int], None]
"""Hears the file's name, the bytes so far and the bytes expected."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """silent_s: a connection that says nothing for longer is given up. whole_s: the longest that one file may take,
    however busily it trickles."""

    silent_s: float = 20.0
    whole_s: float = 1800.0


def fetch_trio(
    trio: Trio,
    folder: Path,
    source: Path | None = None,
    limits: FetchLimits = FetchLimits(),
    progress: Progress = lambda name, done, every: None,
    note: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """`agent.fovea`, `edge.fovea` and `cloud.fovea` in `folder`, made of the files of `trio`; gives their paths.

    Files are taken from `source` when it is given, from `folder/downloads` when they lie there already and are what
    they have to be, else from the network. Raises NotFound, Unavailable (nobody can be reached), TooLarge, Malformed
    (not the file it should be), UntrustedRelease (another sha256), and what `import_model` raises.
    """
    if trio.needs_torch:
        _require_exporter(trio)
    paths = []
    for model in trio.models:
        note(f"{model.name} ({model.tier.name.lower()}, {model.licence})")
        file = _taken_from(source, model) if source is not None else _fetched(model, folder, limits, progress)
        note(f"{model.name}: trying it and packing")
        paths.append(_packed(model, file, folder))
    return paths


def download(
    url: str,
    path: Path,
    size_bytes: int,
    sha256: str | None,
    limits: FetchLimits = FetchLimits(),
    progress: Progress = lambda name, done, every: None,
) -> None:
    """Writes what lies at an http(s) address to `path`, under another name until all of it is there and checked.

    Raises NotFound (the server has no such file), Unavailable (not reached, broken off, too slow), TooLarge (over
    `size_bytes` by more than 1 MB), Malformed (an error page in its place), UntrustedRelease, BrokenError (disk).
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise Malformed(f"download: expected an http or https address, got {url!r:.200}")
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(url, part, size_bytes, limits, lambda done, every: progress(path.name, done, every))
        check_file(part, sha256, url)
        part.replace(path)
    except urllib.error.HTTPError as error:
        with closing(error):
            kind = NotFound if error.code in (404, 410) else Unavailable
            raise kind(f"{url}: the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise Unavailable(f"{url} cannot be reached: {reason}") from error
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def check_file(path: Path, sha256: str | None, origin: str) -> None:
    """Raises Malformed for an error page or an empty file, UntrustedRelease for another digest than `sha256`."""
    with path.open("rb") as file:
        wrong = explain_failed_download(file.read(512))
        if wrong is not None:
            raise Malformed(f"{origin}: expected a model, got {wrong}")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 is not None and digest != sha256:
        raise UntrustedRelease(f"{origin}: expected the file with sha256 {sha256}, got {digest}")


def _copy(
    url: str, part: Path, size_bytes: int, limits: FetchLimits, progress: Callable[[int, int], None]
) -> None:
    ends_s = time.monotonic() + limits.whole_s
    request = urllib.request.Request(url, headers={"User-Agent": "fovea"})
    with urllib.request.urlopen(request, timeout=limits.silent_s) as answer, part.open("wb") as file:
        declared = answer.headers.get("Content-Length", "")
        expected = int(declared) if declared.isdecimal() else None
        limit = size_bytes + _SLACK_BYTES
        done = 0
        while expected is None or expected <= limit:
            block = answer.read(_BLOCK_BYTES)
            done += len(block)
            if not block:
                break
            if done > limit:
                expected = done
                break
            file.write(block)
            progress(done, expected or size_bytes)
            if time.monotonic() > ends_s:
                raise Unavailable(f"{url}: {done} bytes in {limits.whole_s:.0f} s is too slow")
        if expected is not None and expected > limit:
            raise TooLarge(f"{url}: expected about {size_bytes} bytes, got {expected} or more")
        if expected is not None and done != expected:
            raise Unavailable(f"{url}: broken off after {done} of {expected} bytes")


def _fetched(model: PublishedModel, folder: Path, limits: FetchLimits, progress: Progress) -> Path:
    path = folder / DOWNLOADS / model.file_name
    if path.is_file() and model.sha256 is not None:
        try:
            check_file(path, model.sha256, str(path))
            return path
        except (Malformed, UntrustedRelease):
            path.unlink()
    failures: list[FoveaError] = []
    for url in model.urls:
        try:
            download(url, path, model.size_bytes, model.sha256, limits, progress)
            return path
        except (NotFound, Unavailable, TooLarge, Malformed, UntrustedRelease) as error:
            failures.append(error)
    if len(failures) == 1 and not isinstance(failures[0], Unavailable):
        raise failures[0]
    raise Unavailable(
        f"{model.name}: {'; '.join(str(error) for error in failures)}. "
        f"Bring {model.file_name} here by other means and give its folder with --from"
    )


def _taken_from(source: Path, model: PublishedModel) -> Path:
    path = source / model.file_name
    if not path.is_file():
        raise NotFound(f"{model.name}: there is no {model.file_name} in {source}")
    check_file(path, model.sha256, str(path))
    return path


def _require_exporter(trio: Trio) -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("ultralytics") is None:
        raise Incompatible(
            f"models {trio.name} come as weights, and exporting them needs the training set "
            "(pip install 'fovea[train]', or make setup); models yolox do without"
        )


def _packed(model: PublishedModel, file: Path, folder: Path) -> Path:
    """The bundle of a model file as TIER.fovea in `folder`, tried in a child process first."""
    facts = Facts(
        name=model.name,
        version="1",
        created_at=datetime.now(UTC).replace(microsecond=0),
        licence=model.licence,
        description=f"{model.file_name} as published at {urlsplit(model.urls[0]).netloc}",
        dataset="COCO",
    )
    if model.is_weights:
        from cloud.export_cut import export_cut

        try:
            export = export_cut(file, folder / DOWNLOADS / f"{model.name}.onnx", model.input_px)
        except ValueError as error:
            raise Malformed(f"{file.name}: {error}") from error
        bundle = import_model(export.path, LabelSet.from_names(export.labels), facts)
    else:
        bundle = import_model(file, LabelSet.coco() if model.labels == "coco" else None, facts)
    return _written(bundle, folder / f"{model.tier.name.lower()}.fovea")


def _written(bundle: Bundle, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return bundle.write(path.parent).replace(path)
