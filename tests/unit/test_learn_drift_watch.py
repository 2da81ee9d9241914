"""Drift of a site: learned what is usual, found what is not, across restarts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud.cases.stored_case import StoredCase
from cloud.learn.drift_watch import DriftWatch
from fovea.core.frame import FrameId, ImageSize
from fovea.core.release import Asked, Health, ModelPin, Phase, ReportedState

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
OLD = ModelPin("models/street/street-1.fovea", "street", "1", "a" * 64)
NEW = ModelPin("models/street/street-2.fovea", "street", "2", "b" * 64)


class Site:
    """Two devices, and audits that come in."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rounds" / "drift.json"
        self.watch = DriftWatch(self.file, BEGIN)
        self.draw = random.Random(5)
        self.frames = self.asked = 0
        self.model, self.boot, self.audits, self.round = OLD, "b", 0, ""

    def look(self, rate: float = 0.1, audits: Sequence[float] = ()) -> tuple[str, ...]:
        self.frames += 1000
        self.asked += sum(self.draw.random() < rate for _ in range(1000))
        states = [self.state("a"), self.state("b")]
        self.watch.look(self.round, states, [self.case(each) for each in audits])
        return self.watch.drifted

    def state(self, device: str) -> ReportedState:
        return ReportedState(
            device, "yard", "0.1.0", self.boot, BEGIN, True, 1, 1, self.model, self.model, Phase.COMMITTED, None,
            Health(self.frames, 0, 30.0, 200.0, 9.0), Asked(self.frames, self.asked),
        )  # fmt: skip

    def case(self, agreement: float) -> StoredCase:
        self.audits += 1
        at = BEGIN + timedelta(minutes=self.audits)
        frame = FrameId("gate", "b", self.audits)
        return StoredCase(
            f"{self.audits:064x}", "x", 1, ImageSize(8, 8), frame, at, at, (), (), 0.02, True,
            measured_gain=1 - agreement,
        )  # fmt: skip

    def usual(self) -> None:
        """Enough of both to know what is usual."""
        for _ in range(12):
            assert self.look(audits=[self.draw.choice((0.7, 0.8, 0.9)) for _ in range(15)]) == ()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_stays_as_usual_calls_for_nothing(site: Site) -> None:
    site.usual()
    for _ in range(60):
        assert site.look(audits=[site.draw.choice((0.7, 0.8, 0.9)) for _ in range(5)]) == ()


def test_an_asked_rate_that_doubles_is_found_and_named(site: Site) -> None:
    site.usual()
    found = next((told for _ in range(40) if (told := site.look(rate=0.25))), ())
    assert len(found) == 1 and found[0].startswith("the asked rate is no more 9.2%")


def test_audits_that_agree_less_are_found(site: Site) -> None:
    site.usual()
    found = next((told for _ in range(60) if (told := site.look(audits=[0.2, 0.3, 0.1, 0.2]))), ())
    assert len(found) == 1 and "audits agree less" in found[0]


def test_a_restart_goes_on_where_it_was(site: Site) -> None:
    site.usual()
    for number in range(60):
        site.watch = DriftWatch(site.file, BEGIN + timedelta(days=number))
        if site.look(rate=0.25):
            break
    assert site.watch.drifted and site.watch.begun_at == BEGIN


def test_another_model_or_another_round_begins_anew(site: Site) -> None:
    site.usual()
    site.model = NEW
    for _ in range(10):
        assert site.look(rate=0.4) == ()
    site.round = "20260501-120000"
    for _ in range(10):
        assert site.look(rate=0.05) == ()


def test_a_device_that_begins_to_count_anew_is_no_drift(site: Site) -> None:
    site.usual()
    site.boot, site.frames, site.asked = "c", 0, 0
    assert site.look(rate=0.1) == ()


def test_the_same_audit_counts_once(site: Site) -> None:
    case = site.case(0.5)
    for _ in range(3):
        site.watch.look("", [], [case])
    assert site.watch.audits_since == case.captured_at
    assert site.watch._audits.number == 1


@pytest.mark.parametrize("said", [b"", b"{}", b"[]", b'{"begun_at": 3}', b"\xff"])
def test_a_file_that_cannot_be_read_begins_anew(tmp_path: Path, said: bytes) -> None:
    file = tmp_path / "drift.json"
    file.write_bytes(said)
    watch = DriftWatch(file, BEGIN)
    watch.look("", [], [])
    assert watch.begun_at == BEGIN
    assert DriftWatch(file, BEGIN + timedelta(days=1)).begun_at == BEGIN
