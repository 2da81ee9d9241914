"""The bundle store: a switch is whole or not at all, and damage on disk never runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fovea.core.errors import BrokenError, Malformed, NotFound, StoreCorrupt
from fovea.runtime.bundle import Bundle
from fovea.runtime.store import BundleStore
from tests.builders import model_ref, tiny_bundle


def bundle(version: str) -> Bundle:
    return tiny_bundle(model=f"graph {version}".encode(), version=version)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"graph ")] ^= 1
    path.write_bytes(data)


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore.open(tmp_path / "models")


def test_a_stored_bundle_comes_back_and_putting_it_twice_keeps_one(
    store: BundleStore, tmp_path: Path
) -> None:
    path = bundle("1").write(tmp_path)
    ref = store.put(path)
    assert store.put(path) == ref
    assert store.get(ref).ref == ref
    assert len(list((tmp_path / "models" / "bundles").iterdir())) == 1


def test_a_wrong_file_is_refused_and_nothing_is_kept(store: BundleStore, tmp_path: Path) -> None:
    path = tmp_path / "page.fovea"
    path.write_bytes(b"<html>503</html>")
    with pytest.raises(Malformed, match="HTML"):
        store.put(path)
    assert list((tmp_path / "models" / "bundles").iterdir()) == []


def test_an_unknown_model_is_not_found_and_the_store_says_what_it_has(store: BundleStore) -> None:
    ref = store.put_bundle(bundle("1"))
    with pytest.raises(NotFound, match=ref.sha256[:12]):
        store.get(model_ref())


def test_activation_survives_a_new_process(store: BundleStore, tmp_path: Path) -> None:
    assert store.current() is None
    first, second = store.put_bundle(bundle("1")), store.put_bundle(bundle("2"))
    store.activate(first)
    store.activate(second)
    assert BundleStore.open(tmp_path / "models").current() == second
    assert BundleStore.open(tmp_path / "models").open_current().ref == second


def test_a_model_that_was_not_stored_cannot_be_activated_and_the_current_one_stays(
    store: BundleStore,
) -> None:
    first = store.put_bundle(bundle("1"))
    store.activate(first)
    with pytest.raises(NotFound):
        store.activate(model_ref())
    assert store.current() == first


def test_a_flipped_bit_on_disk_is_found_at_the_next_load(store: BundleStore, tmp_path: Path) -> None:
    ref = store.put_bundle(bundle("1"))
    flip_a_bit(tmp_path / "models" / "bundles" / f"{ref.sha256}.fovea")
    with pytest.raises(StoreCorrupt):
        store.get(ref)
    with pytest.raises(StoreCorrupt):
        store.activate(ref)
    assert store.current() is None


def test_a_file_under_the_name_of_another_model_is_corrupt(store: BundleStore, tmp_path: Path) -> None:
    first, second = store.put_bundle(bundle("1")), store.put_bundle(bundle("2"))
    folder = tmp_path / "models" / "bundles"
    (folder / f"{first.sha256}.fovea").write_bytes((folder / f"{second.sha256}.fovea").read_bytes())
    with pytest.raises(StoreCorrupt, match="holds"):
        store.get(first)


def test_a_damaged_current_model_falls_back_to_the_last_good_one(store: BundleStore, tmp_path: Path) -> None:
    first, second = store.put_bundle(bundle("1")), store.put_bundle(bundle("2"))
    store.activate(first)
    store.confirm()
    store.activate(second)
    flip_a_bit(tmp_path / "models" / "bundles" / f"{second.sha256}.fovea")
    assert store.open_current().ref == first
    assert store.current() == first


def test_a_damaged_model_without_a_way_back_is_corrupt(store: BundleStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no model is active"):
        store.open_current()
    ref = store.put_bundle(bundle("1"))
    store.activate(ref)
    flip_a_bit(tmp_path / "models" / "bundles" / f"{ref.sha256}.fovea")
    with pytest.raises(StoreCorrupt, match="no other"):
        store.open_current()


def test_rolling_back_returns_to_the_confirmed_model(store: BundleStore) -> None:
    first, second = store.put_bundle(bundle("1")), store.put_bundle(bundle("2"))
    with pytest.raises(NotFound, match="confirmed"):
        store.confirm()
    with pytest.raises(NotFound, match="go back"):
        store.roll_back()
    store.activate(first)
    assert store.confirm() == first
    store.activate(second)
    assert store.roll_back().ref == first
    assert store.current() == first
    assert store.last_good() == first


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[1]", b"null", b'{"name":"a","version":"1","sha256":"xyz"}', b"\xff"]
)
def test_an_unreadable_pointer_is_corrupt_not_a_crash(
    store: BundleStore, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "models" / "current.json").write_bytes(text)
    with pytest.raises(StoreCorrupt, match="pointer"):
        store.current()


def test_a_power_cut_while_writing_leaves_the_old_model_current(
    store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store.put_bundle(bundle("1")), store.put_bundle(bundle("2"))
    store.activate(first)

    def cut(_self: Path, _target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(BrokenError, match="Input/output error"):
        store.activate(second)
    monkeypatch.undo()
    (tmp_path / "models" / "current.json.part").write_bytes(b'{"name":')
    (tmp_path / "models" / "bundles" / "x.fovea.part").write_bytes(b"PK")
    again = BundleStore.open(tmp_path / "models")
    assert again.current() == first
    assert again.get(second).ref == second
    assert not list((tmp_path / "models").rglob("*.part"))


def test_pruning_keeps_the_current_and_the_last_good_model(store: BundleStore) -> None:
    first, second, third = (store.put_bundle(bundle(version)) for version in "123")
    store.activate(first)
    store.confirm()
    store.activate(third)
    assert store.prune() == [second.sha256]
    assert store.get(first).ref == first
    assert store.get(third).ref == third
    with pytest.raises(NotFound):
        store.get(second)
