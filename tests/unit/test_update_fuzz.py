"""Spoilt releases: whatever a bit, a cut or a changed value does to the files, none passes as another release."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest

from fovea.core.errors import UntrustedRelease
from fovea.sim.release_fuzz import ReleaseFuzz
from tests.fakes import FakeClock
from tests.signed_repository import BUILT_AT, FAMILY, GROUP, NOW, SignedRepository, desired_state
from tests.update_device import later, model

OLD, NEW = model("1.0"), model("1.1")


@pytest.fixture
def repository() -> SignedRepository:
    made = SignedRepository()
    made.add_model(OLD, 1)
    made.add_model(NEW, 2)
    made.order(desired_state(1, OLD, NEW))
    made.publish()
    return made


def fuzz(repository: SignedRepository, folder: Path, seed: int = 7) -> ReleaseFuzz:
    clock = FakeClock(NOW)
    return ReleaseFuzz(repository.files, repository.pinned_root, GROUP, FAMILY, folder, clock, BUILT_AT, seed)


def test_no_spoilt_release_is_accepted_and_none_breaks_the_device(
    repository: SignedRepository, tmp_path: Path
) -> None:
    begun = perf_counter()
    tally = fuzz(repository, tmp_path / "scratch").run(400)
    print(tally, f"{(perf_counter() - begun) / 400 * 1000:.1f} ms each")
    assert (tally.accepted, tally.crashed, tally.first_fault) == (0, 0, None)
    assert tally.tried == 400 == tally.refused + tally.unreachable + tally.harmless
    assert tally.refused > 100


def test_a_check_that_is_missing_is_found(
    repository: SignedRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the signatures and the digests of metadata the same spoiling does get through."""
    from tuf.api.metadata import MetaFile, Root, Targets

    for kind in (Root, Targets):
        monkeypatch.setattr(kind, "verify_delegate", lambda *_: None)
    monkeypatch.setattr(MetaFile, "verify_length_and_hashes", lambda *_: None)
    tally = fuzz(repository, tmp_path / "scratch").run(400)
    assert tally.accepted > 0
    assert tally.first_fault is not None


def test_a_release_that_is_not_good_to_begin_with_is_said(
    repository: SignedRepository, tmp_path: Path
) -> None:
    repository.timestamp.signed.expires = later(-1)
    repository.publish_timestamp()
    with pytest.raises(UntrustedRelease, match="expired"):
        fuzz(repository, tmp_path / "scratch")
