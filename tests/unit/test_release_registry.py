"""The registry keeps versions as they are, moves aliases in one step, and remembers who was what."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from fovea.core.errors import FoveaError, Malformed, NotFound, StoreCorrupt
from fovea.runtime.bundle import Bundle
from tests.unit.release_site import FAMILY, bundle

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry.open(RegistryAddress.in_folder(tmp_path), now=iter(_ticks()).__next__)


def _ticks() -> list[datetime]:
    return [NOW + timedelta(seconds=second) for second in range(200)]


def with_champion(registry: Registry) -> tuple[Bundle, Bundle]:
    """A champion, and a candidate made from it."""
    old = bundle("1")
    new = old.with_parts({}, version="2", dataset="night-1")
    registry.register(FAMILY, old)
    registry.name(FAMILY, Alias.CHAMPION, old.ref, "the first")
    registry.register(FAMILY, new, {"passed": True, "ap50": 0.41})
    registry.name(FAMILY, Alias.CANDIDATE, new.ref, "round 1")
    return old, new


def test_a_registered_model_is_told_and_loaded_as_it_was(registry: Registry) -> None:
    old, new = with_champion(registry)
    kept = registry.get(f"{FAMILY}:candidate")
    assert (
        kept.ref == new.ref and kept.dataset == "night-1" and kept.verdict == {"passed": True, "ap50": 0.41}
    )
    assert kept.made_at == new.manifest.created_at and kept.file_bytes == len(new.to_bytes())
    assert registry.load(kept).ref == new.ref
    assert registry.get(f"{FAMILY}:champion").ref == old.ref
    assert registry.get(old.ref.sha256[:10]) == registry.get("street-student@1")


def test_the_parent_of_a_model_is_remembered(registry: Registry) -> None:
    old, _ = with_champion(registry)
    from fovea.runtime.manifest import ParentRef

    child = old.with_parts({}, version="3", parent=ParentRef.of(old.ref))
    assert registry.register(FAMILY, child).parent_sha256 == old.ref.sha256


def test_told_twice_it_is_kept_once(registry: Registry) -> None:
    first = registry.register(FAMILY, bundle())
    assert registry.register(FAMILY, bundle()) == first
    assert registry.models(FAMILY) == [first] and registry.models("other") == []


def test_a_version_never_becomes_another_model(registry: Registry) -> None:
    registry.register(FAMILY, bundle())
    with pytest.raises(Malformed, match=r"street-student 1 is registered already.*new version"):
        registry.register(FAMILY, bundle(description="other"))
    with pytest.raises(Malformed, match="expected the family street"):
        registry.register("harbour", bundle())
    with pytest.raises(Malformed, match="family"):
        registry.register("No/Name", bundle("2"))


def test_a_verdict_is_said_once(registry: Registry) -> None:
    ref = registry.register(FAMILY, bundle()).ref
    registry.judge(ref, {"passed": False, "why": ["golden set worse"]})
    registry.judge(ref, {"why": ["golden set worse"], "passed": False})
    with pytest.raises(Malformed, match="has a verdict already"):
        registry.judge(ref, {"passed": True})
    with pytest.raises(Malformed, match="what JSON can hold"):
        registry.judge(ref, {"ap": float("nan")})
    assert registry.get(ref.sha256).verdict == {"passed": False, "why": ["golden set worse"]}


def test_the_candidate_becomes_champion_and_the_champion_previous(registry: Registry) -> None:
    old, new = with_champion(registry)
    assert registry.promote(FAMILY, "held on all devices").ref == new.ref
    now = {alias: model.ref for alias, model in registry.aliases(FAMILY).items()}
    assert now == {Alias.CHAMPION: new.ref, Alias.PREVIOUS: old.ref}
    assert registry.demote(FAMILY, "latency").ref == old.ref
    assert {alias: model.ref for alias, model in registry.aliases(FAMILY).items()} == {
        Alias.CHAMPION: old.ref
    }


def test_history_tells_every_change_in_order_with_its_reason(registry: Registry) -> None:
    old, new = with_champion(registry)
    registry.promote(FAMILY, "held")
    told = [(change.alias, change.ref, change.why) for change in registry.history(FAMILY)]
    assert told == [
        (Alias.CHAMPION, old.ref, "the first"),
        (Alias.CANDIDATE, new.ref, "round 1"),
        (Alias.CHAMPION, new.ref, "held"),
        (Alias.PREVIOUS, old.ref, "held"),
        (Alias.CANDIDATE, None, "held"),
    ]
    times = [change.at for change in registry.history(FAMILY)]
    assert times == sorted(times) and times[0].tzinfo is not None


def test_naming_the_same_again_is_no_change(registry: Registry) -> None:
    old, _ = with_champion(registry)
    before = registry.history(FAMILY)
    registry.name(FAMILY, Alias.CHAMPION, old.ref, "again")
    registry.name(FAMILY, Alias.PREVIOUS, None, "there is none")
    assert registry.history(FAMILY) == before


def test_a_promotion_that_breaks_half_way_changes_nothing(registry: Registry) -> None:
    _old, new = with_champion(registry)
    before, told = registry.aliases(FAMILY), registry.history(FAMILY)

    def break_it(_connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("DELETE FROM model_aliases"):
            raise KeyboardInterrupt

    event.listen(registry._engine, "before_cursor_execute", break_it)
    with pytest.raises(KeyboardInterrupt):
        registry.promote(FAMILY, "cut off")
    event.remove(registry._engine, "before_cursor_execute", break_it)
    assert registry.aliases(FAMILY) == before and registry.history(FAMILY) == told
    assert registry.promote(FAMILY, "again").ref == new.ref


def test_there_has_to_be_somebody_to_promote_or_to_go_back_to(registry: Registry) -> None:
    registry.register(FAMILY, bundle())
    with pytest.raises(Malformed, match="expected a candidate"):
        registry.promote(FAMILY, "")
    with pytest.raises(Malformed, match="expected a previous champion"):
        registry.demote(FAMILY, "")


def test_an_alias_names_registered_models_of_its_own_family(registry: Registry) -> None:
    stranger = registry.register("harbour", bundle("9")).ref
    with pytest.raises(Malformed, match="expected a model of street"):
        registry.name(FAMILY, Alias.CHAMPION, stranger, "")
    with pytest.raises(NotFound, match="is not registered"):
        registry.name(FAMILY, Alias.CHAMPION, bundle("8").ref, "")


@pytest.mark.parametrize("wanted", ["", "feed", "x@1", "street:champion", "%"])
def test_a_name_of_nobody_is_not_found(registry: Registry, wanted: str) -> None:
    registry.register(FAMILY, bundle())
    with pytest.raises(NotFound, match=r"none is called so|more than one"):
        registry.get(wanted)


def test_a_damaged_file_is_found_out_and_mended_by_registering_again(
    registry: Registry, tmp_path: Path
) -> None:
    kept = registry.register(FAMILY, bundle())
    path = tmp_path / "models" / kept.path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreCorrupt, match=r"models: street/.* is damaged"):
        registry.load(kept)
    path.unlink()
    with pytest.raises(StoreCorrupt, match="is missing"):
        registry.load(kept)
    registry.register(FAMILY, bundle())
    assert registry.load(kept).ref == kept.ref


def test_models_may_lie_elsewhere_than_the_rows(tmp_path: Path) -> None:
    address = RegistryAddress(f"sqlite:///{tmp_path / 'rows.sqlite'}", "memory://fovea-registry-test")
    registry = Registry.open(address)
    assert registry.load(registry.register(FAMILY, bundle())).ref == bundle().ref
    assert "rows.sqlite" not in repr(address)


def test_many_at_once_leave_one_champion(tmp_path: Path) -> None:
    address = RegistryAddress.in_folder(tmp_path)
    models = [bundle(str(number)) for number in range(6)]
    opened = Registry.open(address)
    for model in models:
        opened.register(FAMILY, model)
    failed: list[FoveaError] = []

    def crown(model: Bundle) -> None:
        try:
            Registry.open(address).name(FAMILY, Alias.CHAMPION, model.ref, "race")
        except FoveaError as error:
            failed.append(error)

    threads = [threading.Thread(target=crown, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert opened.history(FAMILY)[-1].ref == opened.aliases(FAMILY)[Alias.CHAMPION].ref
    assert len(opened.history(FAMILY)) == 6
