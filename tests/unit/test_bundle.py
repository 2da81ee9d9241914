"""Bundles: the same bytes always, nothing believed before it was checked, every wrong file named."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.errors import (
    BrokenError,
    FoveaError,
    Incompatible,
    Malformed,
    NotFound,
    RejectedError,
    TooLarge,
    UntrustedRelease,
)
from fovea.core.labels import COCO_NAMES
from fovea.core.latency import EwmaPredictor
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration
from fovea.runtime import bundle as bundle_module
from fovea.runtime.bundle import CALIBRATION, GATE, LATENCY, MANIFEST, MODEL, Bundle
from fovea.runtime.calibration_file import calibration_from_json, calibration_to_json
from fovea.runtime.manifest import (
    BundleManifest,
    InputDtype,
    ParentRef,
    Precision,
    canonical_json,
    new_manifest,
    parse_manifest,
)
from tests.builders import CREATED_AT, model_ref, tiny_bundle, tiny_manifest

CURVES = ScoreCalibration(
    PlattCurve(1.3, -0.2), {2: PiecewiseCurve(np.array([0, 0.1, 1]), np.array([0.01, 0.3, 0.9]))}
)


def full_bundle() -> Bundle:
    """A small bundle with every optional part but golden frames; the model is not a graph."""
    parts = {
        CALIBRATION: calibration_to_json(CURVES),
        GATE: b'{"kind":"none"}',
    }
    return tiny_bundle(model=bytes(range(256)) * 2, parts=parts)


def rezipped(entries: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            archive.writestr(info, data)
    return target.getvalue()


def entries_of(bundle: Bundle) -> list[tuple[str, bytes]]:
    return [(MANIFEST, bundle.manifest.canonical_bytes()), *bundle.parts.items()]


def test_a_written_bundle_opens_with_the_same_content_and_ref(tmp_path: Path) -> None:
    bundle = full_bundle()
    path = bundle.write(tmp_path)
    again = Bundle.open(path)
    assert path.name == "tiny-1.0.fovea"
    assert again.ref == bundle.ref
    assert again.manifest == bundle.manifest
    assert dict(again.parts) == dict(bundle.parts)
    assert again.find_gate() == {"kind": "none"}
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_content_gives_the_same_bytes_whatever_the_order() -> None:
    bundle = full_bundle()
    turned = Bundle.build(bundle.manifest, dict(reversed(list(bundle.parts.items()))))
    assert turned.to_bytes() == bundle.to_bytes()


def test_a_change_of_any_part_or_field_changes_the_ref() -> None:
    bundle = full_bundle()
    refs = {
        bundle.ref.sha256,
        bundle.with_parts({MODEL: b"another graph"}).ref.sha256,
        bundle.with_parts({GATE: None}).ref.sha256,
        bundle.with_gate({"kind": "other"}).ref.sha256,
        bundle.with_calibration(ScoreCalibration.identity()).ref.sha256,
        bundle.with_parts({}, version="1.1").ref.sha256,
        bundle.with_parts({}, report={"ap": 0.4}).ref.sha256,
    }
    assert len(refs) == 7


def test_a_bundle_derived_from_another_names_its_parent() -> None:
    parent = full_bundle()
    child = parent.with_parts(
        {}, parent=ParentRef.of(parent.ref), precision=Precision.INT8, version="1.0-int8"
    )
    again = Bundle.from_bytes(child.to_bytes())
    assert again.manifest.parent is not None
    assert again.manifest.parent.ref() == parent.ref


def test_an_invalid_field_is_refused_when_a_bundle_is_derived() -> None:
    with pytest.raises(Malformed, match="answer_min_score"):
        full_bundle().with_parts({}, answer_min_score=1.5)


def test_a_bundle_without_calibration_takes_scores_as_they_are() -> None:
    scores = np.array([[0.0, 0.4, 1.0]], np.float32)
    bundle = tiny_bundle(model=b"graph")
    assert np.array_equal(bundle.calibration().apply(scores, (0, 1, 2)), scores)


def test_a_calibration_survives_the_way_through_the_bundle() -> None:
    scores = np.linspace(0, 1, 303, dtype=np.float32).reshape(-1, 3)
    again = Bundle.from_bytes(full_bundle().to_bytes()).calibration()
    assert np.array_equal(again.apply(scores, (0, 1, 2)), CURVES.apply(scores, (0, 1, 2)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "JSON"),
        (b"{}", "schema version"),
        (b'{"schema_version":2,"fallback":{},"by_class":{}}', "schema version"),
        (b'{"schema_version":1,"fallback":{"kind":"spline"},"by_class":{}}', "kind|tag"),
        (
            b'{"schema_version":1,"fallback":{"kind":"platt","slope":-1.0,"offset":0.0},"by_class":{}}',
            "slope",
        ),
        (b'{"schema_version":1,"fallback":{"kind":"platt","slope":NaN,"offset":0.0},"by_class":{}}', "slope"),
        (
            b'{"schema_version":1,"fallback":{"kind":"piecewise","x":[0,0.5,0.5,1],"y":[0,0.1,0.2,1]},"by_class":{}}',
            "rising",
        ),
        (
            b'{"schema_version":1,"fallback":{"kind":"platt","slope":1.0,"offset":0.0},"by_class":{"x":1}}',
            "x",
        ),
    ],
)
def test_a_damaged_calibration_is_refused(text: bytes, word: str) -> None:
    with pytest.raises(RejectedError, match=word):
        calibration_from_json(text)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "HTML"),
        (b"\n  <html lang=en>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3504119\n", "git-LFS pointer"),
        (b'{"message": "rate limit exceeded"}', "JSON"),
        (bytes(4096), "zero bytes"),
        (b"\x80\x04\x95", "pickle"),
        (b"\x08\x08\x12\x07pytorch", "starts with"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused_by_name(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "model.fovea"
    path.write_bytes(content)
    with pytest.raises(Malformed, match=word):
        Bundle.open(path)


def test_a_partial_download_is_refused_at_every_length() -> None:
    data = full_bundle().to_bytes()
    for length in range(1, len(data), 7):
        with pytest.raises(Malformed):
            Bundle.from_bytes(data[:length])
    with pytest.raises(Malformed, match="cut short"):
        Bundle.from_bytes(data[: len(data) // 2])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Bundle.open(tmp_path / "nothing.fovea")
    with pytest.raises(Malformed):
        Bundle.open(tmp_path)


def test_a_file_over_the_limit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full_bundle().write(tmp_path)
    monkeypatch.setattr(bundle_module, "LARGEST_BUNDLE_BYTES", 100)
    with pytest.raises(TooLarge, match="100 bytes"):
        Bundle.open(path)


FULL = full_bundle()
FULL_BYTES = FULL.to_bytes()


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(FULL_BYTES) * 8 - 1))
def test_a_flipped_bit_is_refused_or_lies_outside_all_content(position: int) -> None:
    """Times and attributes inside the zip carry nothing; everywhere else one bit is one refusal."""
    damaged = bytearray(FULL_BYTES)
    damaged[position // 8] ^= 1 << position % 8
    try:
        opened = Bundle.from_bytes(bytes(damaged))
    except RejectedError:
        return
    assert opened.ref == FULL.ref
    assert dict(opened.parts) == dict(FULL.parts)


@pytest.mark.parametrize("part", sorted(FULL.parts))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_in_a_part_is_refused_even_when_the_zip_agrees_with_it(
    part: str, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(FULL.parts[part]) * 8 - 1))
    damaged = bytearray(FULL.parts[part])
    damaged[position // 8] ^= 1 << position % 8
    entries = [(name, bytes(damaged) if name == part else content) for name, content in entries_of(FULL)]
    with pytest.raises(UntrustedRelease, match=part):
        Bundle.from_bytes(rezipped(entries))


def test_a_part_of_another_length_is_refused_with_both_lengths() -> None:
    entries = [(name, content + b"!" if name == MODEL else content) for name, content in entries_of(FULL)]
    with pytest.raises(UntrustedRelease, match="513 bytes, the manifest says 512"):
        Bundle.from_bytes(rezipped(entries))


def test_parts_that_the_manifest_does_not_list_and_missing_ones_are_refused() -> None:
    entries = entries_of(FULL)
    with pytest.raises(Malformed, match=r"gate.json is missing"):
        Bundle.from_bytes(rezipped([entry for entry in entries if entry[0] != GATE]))
    plain = tiny_bundle(model=b"graph")
    with pytest.raises(Malformed, match=r"gate.json is not listed"):
        Bundle.from_bytes(rezipped([*entries_of(plain), (GATE, b"{}")]))
    with pytest.raises(Malformed, match=r"has no model.onnx"):
        Bundle.from_bytes(rezipped([entry for entry in entries if entry[0] != MODEL]))
    with pytest.raises(Malformed, match=r"has no manifest.json"):
        Bundle.from_bytes(rezipped([entry for entry in entries if entry[0] != MANIFEST]))


@pytest.mark.parametrize(
    "name",
    [
        "../evil.so",
        "/etc/passwd",
        "golden/../x",
        "model.onnx/..",
        "weights.pt",
        "golden/1.png",
        "a\\b",
        "C:x",
    ],
)
def test_a_part_with_a_strange_name_is_refused(name: str) -> None:
    with pytest.raises(Malformed, match="unknown part"):
        Bundle.from_bytes(rezipped([*entries_of(FULL), (name, b"x")]))
    with pytest.raises(Malformed, match="unknown part"):
        Bundle.build(tiny_manifest(), {MODEL: b"graph", name: b"x"})


def test_a_compressed_bundle_and_a_zip_bomb_are_refused_unread() -> None:
    bomb = rezipped([*entries_of(FULL)[:-1], (GATE, bytes(20_000_000))], zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(Malformed, match="compressed"):
        Bundle.from_bytes(bomb)


def test_overlapping_parts_that_claim_more_than_the_file_holds_are_refused() -> None:
    data = bytearray(full_bundle().to_bytes())
    at = data.rfind(b"PK\x01\x02", 0, data.rfind(b"model.onnx"))
    data[at + 20 : at + 28] = (10_000).to_bytes(4, "little") * 2
    with pytest.raises(Malformed, match=r"more bytes than the file|damaged"):
        Bundle.from_bytes(bytes(data))


def test_an_encrypted_part_is_refused() -> None:
    data = bytearray(full_bundle().to_bytes())
    at = data.rfind(b"PK\x01\x02", 0, data.rfind(b"model.onnx"))
    data[at + 8] |= 1
    with pytest.raises(Malformed, match="encrypted"):
        Bundle.from_bytes(bytes(data))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_stands_twice_is_refused() -> None:
    with pytest.raises(Malformed, match="twice"):
        Bundle.from_bytes(rezipped([*entries_of(FULL), (MODEL, FULL.model)]))


def test_another_schema_version_is_incompatible_not_malformed() -> None:
    manifest = json.loads(FULL.manifest.canonical_bytes())
    for version in (0, 2, "1", None, True):
        manifest["schema_version"] = version
        with pytest.raises(Incompatible, match="schema version 1"):
            parse_manifest(canonical_json(manifest))


def test_a_manifest_that_is_not_canonical_is_refused() -> None:
    manifest = json.loads(FULL.manifest.canonical_bytes())
    with pytest.raises(Malformed, match="canonical"):
        parse_manifest(json.dumps(manifest).encode())
    assert parse_manifest(canonical_json(manifest)) == FULL.manifest


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_manifest_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed, match=r"manifest.json"):
        parse_manifest(text)


def test_all_mistakes_of_a_manifest_are_reported_together() -> None:
    manifest = json.loads(FULL.manifest.canonical_bytes())
    manifest["labels"] = ["person", "person"]
    manifest["input"]["width"] = "640"
    manifest["colour"] = "blue"
    manifest["name"] = "../x"
    with pytest.raises(Malformed) as caught:
        parse_manifest(canonical_json(manifest))
    for key in ("input.width", "colour", "name"):
        assert key in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"labels": ()}, "labels"),
        ({"labels": ("person", "car", "person")}, "each label once"),
        ({"labels": ("person", "Car", "motorbike")}, "plain spelling"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"version": "x" * 81}, "version"),
        ({"created_at": datetime(2025, 1, 1)}, "created_at"),
        ({"licence": ""}, "licence"),
        ({"trust": 0.0}, "trust"),
        ({"report": {"ap": float("nan")}}, "report"),
        ({"tta": ("vflip",)}, "tta"),
        ({"min_agent": "new"}, "min_agent"),
        ({"input": {"std": (1.0, 0.0, 1.0)}}, "std"),
        ({"input": {"pad_value": 256}}, "pad_value"),
        ({"input": {"width": 8}}, "width"),
        ({"input": {"dtype": InputDtype.UINT8}}, "uint8"),
        ({"input": {"scale": float("inf")}}, "scale"),
        ({"output": {"tensors": ("boxes",)}}, "tensors"),
        ({"output": {"tensors": ("a", "a")}}, "tensors"),
        ({"output": {"strides": (16, 8)}}, "strides"),
        ({"output": {"strides": ()}}, "strides"),
    ],
)
def test_a_manifest_with_an_impossible_value_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(Malformed, match=word):
        tiny_manifest(**changes)


def test_the_canonical_bytes_of_a_manifest_read_back_as_the_same_manifest() -> None:
    manifest = tiny_manifest(
        labels=COCO_NAMES, report={"ap": 0.41, "board": "Pi 5", "runs": 3}, parent=ParentRef.of(model_ref())
    )
    again = parse_manifest(manifest.canonical_bytes())
    assert again == manifest
    assert again.ref() == manifest.ref()
    assert again.created_at == CREATED_AT
    assert isinstance(again, BundleManifest)


def test_a_gate_that_is_no_object_is_refused() -> None:
    with pytest.raises(Malformed, match=r"gate.json"):
        tiny_bundle(model=b"graph", parts={GATE: b"[1]"})


def test_a_fitted_predictor_of_latencies_travels_with_the_model() -> None:
    assert tiny_bundle(model=b"graph").find_latency() is None
    fit = {"predictor": {"format": 1, "kind": "ewma", "alpha": 0.35}, "better": "ewma"}
    bundle = Bundle.from_bytes(tiny_bundle(model=b"graph").with_latency(fit).to_bytes())
    predictor = bundle.find_latency()
    assert isinstance(predictor, EwmaPredictor) and predictor.settings.alpha == 0.35
    assert bundle.find_latency() is not predictor, "each who asks begins afresh"


@pytest.mark.parametrize(
    "part",
    [
        b"no json",
        b"[1]",
        b"{}",
        b'{"predictor": 3}',
        b'{"predictor": {"format": 9, "kind": "ewma"}}',
        b'{"predictor": {"format": 1, "kind": "ewma", "alpha": 7}}',
        b'{"predictor": {"format": 1, "kind": "lstm"}}',
    ],
)
def test_a_predictor_that_is_none_is_refused(part: bytes) -> None:
    with pytest.raises(Malformed, match=r"latency|ewma"):
        tiny_bundle(model=b"graph", parts={LATENCY: part})


def test_a_full_or_read_only_disk_leaves_the_old_bundle_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = full_bundle()
    path = bundle.write(tmp_path)
    before = path.read_bytes()

    def no_space(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(BrokenError, match="No space left"):
        bundle.with_gate({"kind": "new"}).write(tmp_path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(FoveaError):
        Bundle.from_bytes(data)
    with pytest.raises(FoveaError):
        Bundle.from_bytes(b"PK\x03\x04" + data)


def test_new_manifest_says_which_fields_are_missing() -> None:
    with pytest.raises(Malformed, match=r"name: .*; version: .*licence"):
        new_manifest(labels=("person",))
