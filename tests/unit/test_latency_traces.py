"""Recording latencies under load: open loop, changing rates, and a server that may refuse."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from calibration.fit_latency import fit_latency
from calibration.latency_network import NetworkSettings
from fovea.bench.latency import figures_of
from fovea.bench.latency_traces import LoadPlan, edge_process, jpegs_of, record
from fovea.core.errors import BrokenError, DetectorFailed, Malformed, Overloaded
from fovea.runtime.images import decode_image
from tests.builders import scene, tiny_bundle

PLAN = LoadPlan(
    answers=120,
    longest_s=60.0,
    phase_s=(0.1, 0.3),
    watched_per_s=(150.0, 300.0),
    others=(0.1, 0.9),
    max_in_flight=4,
)
IMAGES = [b"a" * size for size in (1000, 20_000)]


class OneAtATime:
    """A server with one worker: who comes while it is busy waits. Counts who is in flight."""

    def __init__(self, work_s: float = 0.002, refuse_every: int = 0) -> None:
        self._work_s, self._refuse_every = work_s, refuse_every
        self._worker, self._counts = threading.Lock(), threading.Lock()
        self.asked = self.in_flight = self.most_in_flight = 0

    def __call__(self, jpeg: bytes) -> None:
        with self._counts:
            self.asked += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            number = self.asked
        try:
            if self._refuse_every and number > 40 and number % self._refuse_every == 0:
                raise Overloaded("full")
            with self._worker:
                time.sleep(self._work_s)
        finally:
            with self._counts:
                self.in_flight -= 1


def test_a_recording_holds_as_many_answers_as_were_wanted_in_the_order_of_asking() -> None:
    server, told = OneAtATime(), []
    recording = record(server, IMAGES, PLAN, lambda done, every: told.append((done, every)))
    assert len(recording.samples) == 120
    assert told[-1] == (120, 120)
    asked_s = [sample.context.at_mono_s for sample in recording.samples]
    assert asked_s == sorted(asked_s)
    assert {sample.context.payload_bytes for sample in recording.samples} == {1000, 20_000}
    assert all(sample.latency_ms >= 2.0 for sample in recording.samples)
    assert all(0 <= sample.context.in_flight < 4 for sample in recording.samples)
    assert 0 < recording.alone_per_s <= 500
    assert server.in_flight == 0


def test_no_client_has_more_in_flight_than_it_may_and_what_is_due_beyond_is_counted() -> None:
    server = OneAtATime(work_s=0.02)
    recording = record(server, IMAGES, PLAN)
    assert server.most_in_flight <= 2 * PLAN.max_in_flight
    assert recording.left_out > 0


def test_refusals_are_counted_and_are_no_latencies() -> None:
    recording = record(OneAtATime(refuse_every=5), IMAGES, PLAN)
    assert recording.unanswered > 0
    assert len(recording.samples) == 120


def test_a_recording_ends_in_time_with_what_has_come() -> None:
    plan = LoadPlan(answers=10**6, longest_s=0.5, phase_s=(0.1, 0.2), watched_per_s=(50.0, 100.0))
    recording = record(OneAtATime(), IMAGES, plan)
    assert 0 < len(recording.samples) < 10**6


def test_a_server_that_answers_nothing_is_said_at_once() -> None:
    def refuse(jpeg: bytes) -> None:
        raise Overloaded("full")

    with pytest.raises(BrokenError, match="does not answer a single question"):
        record(refuse, IMAGES, PLAN)


def test_a_plan_or_a_recording_without_sense_is_refused() -> None:
    with pytest.raises(Malformed, match="expected images"):
        record(OneAtATime(), [], PLAN)
    with pytest.raises(Malformed, match="phase_s"):
        LoadPlan(phase_s=(3.0, 1.0))
    with pytest.raises(Malformed, match="watched_per_s"):
        LoadPlan(watched_per_s=(0.0, 1.0))
    with pytest.raises(Malformed, match="counts"):
        LoadPlan(answers=0)


def test_a_recording_becomes_the_published_figures() -> None:
    recording = record(OneAtATime(), IMAGES, PLAN)
    quick = NetworkSettings(cells=3, units=3, history=6, epochs=2)
    figures = figures_of(fit_latency(recording.samples, 0.3, quick), recording)
    assert figures["mae_ms.lstm"] > 0
    assert figures["mae_ms.ewma"] > 0
    assert figures["answers"] == 120
    assert 0 < figures["judged_on"] <= 36
    assert figures["latency_ms_median"] <= figures["latency_ms_p95"]


def test_pictures_come_in_several_sizes() -> None:
    jpegs = jpegs_of([scene(96, 120)])
    assert [decode_image(jpeg).shape for jpeg in jpegs] == [(96, 120, 3)] * 2 + [(48, 60, 3), (32, 40, 3)]
    assert len(jpegs[1]) < len(jpegs[0])


def test_a_real_edge_server_is_recorded_and_ended(tmp_path: Path) -> None:
    bundle = tiny_bundle().write(tmp_path)
    with edge_process(str(bundle)) as ask:
        plan = LoadPlan(
            answers=15, longest_s=60.0, phase_s=(0.2, 0.4), watched_per_s=(20.0, 40.0), max_in_flight=2
        )
        recording = record(ask, jpegs_of([scene(96, 120)]), plan)
        assert len(recording.samples) == 15
        assert np.isfinite([sample.latency_ms for sample in recording.samples]).all()
    with pytest.raises(DetectorFailed, match="after close"):
        ask(b"\xff\xd8")


def test_an_edge_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokenError, match=r"the edge server ended with \d+: .*nowhere\.fovea"),
        edge_process(str(tmp_path / "nowhere.fovea")),
    ):
        pass
