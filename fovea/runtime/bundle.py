"""A model as one file: `NAME-VERSION.fovea`, a zip without compression in which every part is hashed.

manifest.json          what it is and how it runs (`fovea.runtime.manifest`), with digest and length of all else
model.onnx             the graph
calibration.json       score calibration (absent: scores are taken as they are)
gate.json              the escalation gate fitted for this model (optional, a JSON object)
policies.json          named ways to spend, measured (optional; `fovea.core.policy`)
latency.json           how latencies of the tier above are foretold, fitted (optional; `fovea.core.latency`)
golden/expected.json   what the model has to see in
golden/NN.png          these frames (optional; `fovea.runtime.golden`)

The same content always gives the same bytes. Nothing is run, unpacked or believed before its digest was checked.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed, NotFound, TooLarge, UntrustedRelease
from fovea.core.latency import LatencyPredictor
from fovea.core.lstm_latency import predictor_from_json
from fovea.core.policy import Policy, policies_from_json, policies_to_json
from fovea.core.scores import ScoreCalibration
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.calibration_file import calibration_from_json, calibration_to_json
from fovea.runtime.golden import EXPECTED, read_golden
from fovea.runtime.manifest import BundleManifest, PartDigest, canonical_json, new_manifest, parse_manifest
from fovea.runtime.wrong_file import explain_wrong_file

MANIFEST: Final = "manifest.json"
MODEL: Final = "model.onnx"
CALIBRATION: Final = "calibration.json"
GATE: Final = "gate.json"
LATENCY: Final = "latency.json"
POLICIES: Final = "policies.json"
LARGEST_BUNDLE_BYTES: Final = 1 << 30

_GOLDEN_FRAME = re.compile(r"golden/\d{2}\.png")
_LARGEST_MANIFEST_BYTES = 1 << 20
_MOST_PARTS = 128
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A whole model in memory: the manifest, and the parts by name, whose digests hold."""

    manifest: BundleManifest
    parts: Mapping[str, bytes]

    @classmethod
    def build(cls, manifest: BundleManifest, parts: Mapping[str, bytes]) -> Self:
        """A bundle of `parts`; the manifest's own list of parts is replaced by theirs.

        Raises Malformed when there is no model, or a part has an unknown name or cannot be read.
        """
        _check_names(parts)
        digests = {name: _digest(data) for name, data in sorted(parts.items())}
        bundle = cls(manifest.model_copy(update={"parts": digests}), dict(parts))
        _check_readable(bundle)
        return bundle

    @classmethod
    def open(cls, path: Path) -> Self:
        """Reads and checks a bundle file. Raises NotFound, TooLarge (over 1 GiB), and what `from_bytes` raises."""
        try:
            size = path.stat().st_size
            if size > LARGEST_BUNDLE_BYTES:
                raise TooLarge(f"{path.name}: expected at most {LARGEST_BUNDLE_BYTES} bytes, got {size}")
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"no bundle at {path}") from error
        except OSError as error:
            raise Malformed(f"cannot read {path}: {error.strerror}") from error
        return cls.from_bytes(data, path.name)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "bundle") -> Self:
        """The bundle in `data`; `source` names it in errors.

        Raises Malformed (not a whole, plain bundle), Incompatible (another schema version), UntrustedRelease (a
        part is not the one that the manifest lists).
        """
        wrong = explain_wrong_file(data)
        if wrong is not None:
            raise Malformed(f"{source}: expected a bundle, got {wrong}")
        entries = _read_zip(data, source)
        if MANIFEST not in entries:
            raise Malformed(f"{source}: has no {MANIFEST}")
        if len(entries[MANIFEST]) > _LARGEST_MANIFEST_BYTES:
            raise TooLarge(f"{source}: {MANIFEST} has more than {_LARGEST_MANIFEST_BYTES} bytes")
        manifest = parse_manifest(entries.pop(MANIFEST))
        _check_names(entries)
        _check_digests(manifest, entries, source)
        bundle = cls(manifest, entries)
        _check_readable(bundle)
        return bundle

    @property
    def ref(self) -> ModelRef:
        return self.manifest.ref()

    @property
    def model(self) -> bytes:
        """The ONNX graph."""
        return self.parts[MODEL]

    def calibration(self) -> ScoreCalibration:
        """The score calibration; the identity when the bundle has none."""
        data = self.parts.get(CALIBRATION)
        return ScoreCalibration.identity() if data is None else calibration_from_json(data)

    def find_gate(self) -> dict[str, Any] | None:
        """The gate's JSON object, or None when none was fitted."""
        data = self.parts.get(GATE)
        return None if data is None else _json_object(GATE, data)

    def find_latency(self) -> LatencyPredictor | None:
        """A fresh predictor as it was fitted, or None when none was."""
        data = self.parts.get(LATENCY)
        if data is None:
            return None
        predictor = _json_object(LATENCY, data).get("predictor")
        if not isinstance(predictor, dict):
            raise Malformed(f"{LATENCY}: expected an object under predictor, got {predictor!r:.40}")
        return predictor_from_json(predictor)

    def policies(self) -> tuple[Policy, ...]:
        """The named policies; none when none was found for this model."""
        data = self.parts.get(POLICIES)
        return () if data is None else policies_from_json(_json_object(POLICIES, data))

    def with_parts(self, changed: Mapping[str, bytes | None], **fields: Any) -> Bundle:
        """A new bundle with some parts replaced (None: left out) and manifest fields set.

        Raises Malformed when a field or part is not valid.
        """
        parts = {name: data for name, data in {**self.parts, **changed}.items() if data is not None}
        values = {name: getattr(self.manifest, name) for name in type(self.manifest).model_fields}
        return Bundle.build(new_manifest(**{**values, **fields}), parts)

    def with_calibration(self, calibration: ScoreCalibration, **fields: Any) -> Bundle:
        """A new bundle with this score calibration and manifest fields set."""
        return self.with_parts({CALIBRATION: calibration_to_json(calibration)}, **fields)

    def with_gate(self, gate: Mapping[str, Any], **fields: Any) -> Bundle:
        """A new bundle with this gate and manifest fields set."""
        return self.with_parts({GATE: canonical_json(dict(gate))}, **fields)

    def with_latency(self, fit: Mapping[str, Any], **fields: Any) -> Bundle:
        """A new bundle with this fit of a latency predictor (`LatencyFit.to_json`) and manifest fields set."""
        return self.with_parts({LATENCY: canonical_json(dict(fit))}, **fields)

    def with_policies(self, policies: Sequence[Policy], **fields: Any) -> Bundle:
        """A new bundle with these policies and manifest fields set. Raises Malformed for a name given twice."""
        return self.with_parts({POLICIES: canonical_json(policies_to_json(policies))}, **fields)

    def to_bytes(self) -> bytes:
        """The bundle file: stored zip, parts sorted by name, fixed times."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for name, data in sorted({MANIFEST: self.manifest.canonical_bytes(), **self.parts}.items()):
                entry = zipfile.ZipInfo(name, _FIXED_TIME)
                entry.create_system = 3
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, data)
        return target.getvalue()

    def write(self, folder: Path) -> Path:
        """Writes `NAME-VERSION.fovea` into `folder` atomically and gives its path. Raises BrokenError."""
        path = folder / self.manifest.file_name
        write_atomically(path, self.to_bytes())
        return path


def _read_zip(data: bytes, source: str) -> dict[str, bytes]:
    if not data.startswith(b"PK"):
        raise Malformed(f"{source}: expected a bundle (a zip), got a file that starts with {data[:8]!r}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_entries(infos, len(data), source)
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, UnicodeError, OSError) as error:
        if b"PK\x05\x06" not in data[-(1 << 16) - 22 :]:
            raise Malformed(
                f"{source}: cut short, the end of the file is missing ({len(data)} bytes)"
            ) from error
        raise Malformed(f"{source}: a damaged bundle ({error})") from error


def _check_entries(infos: list[zipfile.ZipInfo], file_bytes: int, source: str) -> None:
    """Refuses every zip that the writer would not have written, before anything is read from it."""
    if len(infos) > _MOST_PARTS:
        raise Malformed(f"{source}: expected at most {_MOST_PARTS} parts, got {len(infos)}")
    names = [info.filename for info in infos]
    if len(set(names)) != len(names):
        raise Malformed(f"{source}: the same part stands in it twice")
    for info in infos:
        if info.flag_bits & 0x1:
            raise Malformed(f"{source}: {info.filename!r} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise Malformed(f"{source}: {info.filename!r} is compressed; a bundle is stored as it is")
    if sum(info.file_size for info in infos) > file_bytes:
        raise Malformed(f"{source}: its parts claim more bytes than the file has")
    _check_names({name: b"" for name in names if name != MANIFEST})


def _check_names(parts: Mapping[str, bytes]) -> None:
    known = {MODEL, CALIBRATION, GATE, LATENCY, POLICIES, EXPECTED}
    for name in parts:
        if name not in known and not _GOLDEN_FRAME.fullmatch(name):
            raise Malformed(f"bundle: unknown part {name!r:.120}")
    if MODEL not in parts:
        raise Malformed(f"bundle: has no {MODEL}")


def _check_digests(manifest: BundleManifest, parts: Mapping[str, bytes], source: str) -> None:
    if set(manifest.parts) != set(parts):
        missing, extra = set(manifest.parts) - set(parts), set(parts) - set(manifest.parts)
        said = [f"{name} is missing" for name in sorted(missing)] + [
            f"{name} is not listed" for name in sorted(extra)
        ]
        raise Malformed(f"{source}: parts differ from the manifest: {', '.join(said)}")
    for name, data in parts.items():
        expected = manifest.parts[name]
        if len(data) != expected.bytes:
            raise UntrustedRelease(
                f"{source}: {name} has {len(data)} bytes, the manifest says {expected.bytes}"
            )
        if _digest(data) != expected:
            raise UntrustedRelease(
                f"{source}: {name} is not the part that the manifest lists (digest differs)"
            )


def _check_readable(bundle: Bundle) -> None:
    """Parses the small parts once, so that a bundle that opened cannot fail on them later."""
    bundle.calibration()
    bundle.find_gate()
    bundle.find_latency()
    bundle.policies()
    read_golden(bundle.parts)


def _json_object(name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{name}: expected JSON ({error})") from error
    if not isinstance(value, dict):
        raise Malformed(f"{name}: expected an object, got {type(value).__name__}")
    return value


def _digest(data: bytes) -> PartDigest:
    return PartDigest(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
