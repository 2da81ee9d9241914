"""A model on probation: pending before it is current, and a boot in between always knows the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed, NotFound, StoreCorrupt
from fovea.runtime.bundle import Bundle
from fovea.runtime.store import BundleStore, Pending
from tests.builders import model_ref, tiny_bundle


def bundle(version: str) -> Bundle:
    return tiny_bundle(model=f"graph {version}".encode(), version=version)


OLD, NEW, BUILT_IN = bundle("1"), bundle("2"), bundle("0.1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def store(root: Path) -> BundleStore:
    """Runs the old model, has the new one beside it."""
    made = BundleStore.open(root)
    made.put_bundle(OLD)
    made.put_bundle(NEW)
    made.activate(OLD.ref)
    made.confirm()
    return made


def boot(root: Path, built_in: Bundle | None = None) -> ModelRef:
    return BundleStore.open(root).open_at_boot(built_in).ref


def test_a_model_on_probation_is_current_and_the_old_one_the_way_back(store: BundleStore) -> None:
    assert store.begin_probation(NEW.ref, tries=2).ref == NEW.ref
    assert store.current() == NEW.ref
    assert store.last_good() == OLD.ref
    assert store.pending() == Pending(NEW.ref, 2)


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_it_is_started_at_so_many_boots_and_then_the_old_one_is(
    store: BundleStore, root: Path, tries: int
) -> None:
    store.begin_probation(NEW.ref, tries)
    assert [boot(root) for _ in range(tries + 2)] == [NEW.ref] * tries + [OLD.ref] * 2
    again = BundleStore.open(root)
    assert (again.pending(), again.current(), again.stepped_back_from()) == (None, OLD.ref, NEW.ref)


def test_after_a_commit_it_starts_at_every_boot(store: BundleStore, root: Path) -> None:
    store.begin_probation(NEW.ref, tries=0)
    assert store.commit() == NEW.ref
    assert [boot(root) for _ in range(3)] == [NEW.ref] * 3
    assert store.pending() is None
    assert store.stepped_back_from() is None


def test_a_step_back_ends_the_probation(store: BundleStore, root: Path) -> None:
    store.begin_probation(NEW.ref)
    assert store.step_back().ref == OLD.ref
    assert store.pending() is None
    assert boot(root) == OLD.ref


def test_a_new_probation_forgets_what_a_boot_gave_up_on(store: BundleStore, root: Path) -> None:
    store.begin_probation(NEW.ref, tries=0)
    boot(root)
    store.begin_probation(NEW.ref)
    assert store.stepped_back_from() is None


def test_power_lost_before_the_switch_leaves_the_old_one_without_a_probation(
    store: BundleStore, root: Path
) -> None:
    store.begin_probation(NEW.ref, tries=0)
    store.activate(OLD.ref)  # as if `current` had not been written yet
    assert store.pending() is None
    assert boot(root) == OLD.ref
    assert not (root / "pending.json").exists()
    assert BundleStore.open(root).stepped_back_from() is None


def test_power_lost_in_a_commit_counts_as_committed(store: BundleStore, root: Path) -> None:
    store.begin_probation(NEW.ref, tries=0)
    store.confirm()  # `last_good` is written, `pending` not yet taken away
    assert store.pending() is None
    assert [boot(root), boot(root)] == [NEW.ref, NEW.ref]


def test_without_a_good_model_what_runs_becomes_the_way_back(root: Path) -> None:
    store = BundleStore.open(root)
    store.put_bundle(OLD)
    store.put_bundle(NEW)
    with pytest.raises(NotFound, match="no model is active"):
        store.begin_probation(NEW.ref)
    store.activate(OLD.ref)
    store.begin_probation(NEW.ref)
    assert store.last_good() == OLD.ref


def test_an_empty_store_starts_with_what_is_built_in_and_keeps_it(root: Path) -> None:
    with pytest.raises(NotFound):
        boot(root)
    assert boot(root, BUILT_IN) == BUILT_IN.ref
    assert BundleStore.open(root).last_good() == BUILT_IN.ref
    assert boot(root) == BUILT_IN.ref


def test_what_is_built_in_does_not_take_the_place_of_a_model_that_works(
    store: BundleStore, root: Path
) -> None:
    assert boot(root, BUILT_IN) == OLD.ref


@pytest.mark.parametrize(
    ("name", "expected"), [("current.json", OLD), ("pending.json", OLD), ("last_good.json", BUILT_IN)]
)
@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b"[]", b'{"name": 3}'])
def test_a_damaged_pointer_never_keeps_the_camera_from_starting(
    store: BundleStore, root: Path, name: str, expected: Bundle, damage: bytes
) -> None:
    store.begin_probation(NEW.ref, tries=1)
    (root / name).write_bytes(damage)
    assert [boot(root, BUILT_IN), boot(root, BUILT_IN)] == [expected.ref] * 2


def test_a_store_of_which_every_model_is_spoilt_starts_with_what_is_built_in(
    store: BundleStore, root: Path
) -> None:
    for path in (root / "bundles").iterdir():
        path.write_bytes(b"PK spoilt")
    with pytest.raises(StoreCorrupt):
        boot(root)
    assert boot(root, BUILT_IN) == BUILT_IN.ref


def test_a_model_on_probation_that_the_disk_spoils_gives_way_to_the_last_good_one(
    store: BundleStore, root: Path
) -> None:
    store.begin_probation(NEW.ref, tries=5)
    (root / "bundles" / f"{NEW.ref.sha256}.fovea").write_bytes(b"PK spoilt")
    assert boot(root, BUILT_IN) == OLD.ref
    assert BundleStore.open(root).pending() is None


def test_a_file_is_moved_in_and_a_wrong_one_left_where_it_is(store: BundleStore, tmp_path: Path) -> None:
    path = bundle("3").write(tmp_path)
    assert store.adopt(path) == bundle("3").ref
    assert not path.exists()
    assert store.has(bundle("3").ref) and not store.has(model_ref())
    wrong = tmp_path / "wrong.fovea"
    wrong.write_text("<html>")
    with pytest.raises(Malformed):
        store.adopt(wrong)
    assert wrong.exists()


def test_pruning_keeps_what_it_is_told_to(store: BundleStore) -> None:
    third = store.put_bundle(bundle("3"))
    fourth = store.put_bundle(bundle("4"))
    store.begin_probation(NEW.ref)
    assert store.prune([third]) == [fourth.sha256]
    assert all(store.has(ref) for ref in (OLD.ref, NEW.ref, third))


def test_the_tries_are_in_the_file_that_a_boot_reads(store: BundleStore, root: Path) -> None:
    store.begin_probation(NEW.ref, tries=3)
    boot(root)
    assert json.loads((root / "pending.json").read_bytes())["tries"] == 2
