"""Which model a device starts from, and the ways back when it cannot run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fovea.core.errors import DetectorFailed
from fovea.runtime.bundle import Bundle
from fovea.update.device import DeviceDisk
from tests.update_device import model

FACTORY, GOOD, NEW = model("1.0"), model("1.1"), model("1.2")


def disk(folder: Path) -> DeviceDisk:
    wishes: Any = SimpleNamespace(folder=str(folder))
    return DeviceDisk(wishes)


def readier(*broken: Bundle) -> Any:
    """Makes every model ready but these."""

    def ready(bundle: Bundle) -> str:
        if bundle.ref in {each.ref for each in broken}:
            raise DetectorFailed(f"{bundle.ref} does not run")
        return bundle.manifest.version

    return ready


def with_good_committed(folder: Path) -> DeviceDisk:
    made = disk(folder)
    made.start_from(FACTORY, readier())
    made.store.put_bundle(GOOD)
    made.store.begin_probation(GOOD.ref)
    made.store.commit()
    return made


def test_the_first_start_is_from_the_factory_model_which_is_kept(tmp_path: Path) -> None:
    made = disk(tmp_path)
    bundle, version = made.start_from(FACTORY, readier())
    assert (bundle.ref, version) == (FACTORY.ref, "1.0")
    assert made.store.current() == made.store.last_good() == FACTORY.ref


def test_later_starts_are_from_what_was_committed_whatever_the_configuration_names(tmp_path: Path) -> None:
    with_good_committed(tmp_path)
    bundle, _ = disk(tmp_path).start_from(NEW, readier())
    assert bundle.ref == GOOD.ref


def test_a_model_on_probation_that_cannot_be_made_ready_is_stepped_back_from_at_once(tmp_path: Path) -> None:
    made = with_good_committed(tmp_path)
    made.store.put_bundle(NEW)
    made.store.begin_probation(NEW.ref)
    again = disk(tmp_path)
    bundle, version = again.start_from(FACTORY, readier(NEW))
    assert (bundle.ref, version) == (GOOD.ref, "1.1")
    assert again.store.current() == GOOD.ref and again.store.pending() is None


def test_a_model_on_probation_with_no_tries_left_is_stepped_back_from(tmp_path: Path) -> None:
    made = with_good_committed(tmp_path)
    made.store.put_bundle(NEW)
    made.store.begin_probation(NEW.ref, tries=1)
    assert disk(tmp_path).start_from(FACTORY, readier())[0].ref == NEW.ref
    assert disk(tmp_path).start_from(FACTORY, readier())[0].ref == GOOD.ref


def test_where_nothing_else_runs_the_factory_model_does(tmp_path: Path) -> None:
    with_good_committed(tmp_path)
    again = disk(tmp_path)
    bundle, version = again.start_from(FACTORY, readier(GOOD))
    assert (bundle.ref, version) == (FACTORY.ref, "1.0")
    assert again.store.last_good() == FACTORY.ref


def test_a_factory_model_that_does_not_run_either_is_said(tmp_path: Path) -> None:
    with pytest.raises(DetectorFailed, match="does not run"):
        disk(tmp_path).start_from(FACTORY, readier(FACTORY))
