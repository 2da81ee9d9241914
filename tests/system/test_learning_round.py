"""One whole round of learning with real processes: asked over gRPC, labelled, killed in the middle, judged, kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest

from cloud.cases.stored_case import StoredCase
from cloud.config import load_config
from cloud.golden.start import start
from cloud.labels.review import Reviews
from cloud.learn.promotion import Verdict
from cloud.learn.round_bootstrap import opened_round_room
from cloud.learn.round_plan import RoundRecord, RoundState, Step
from cloud.learn.round_room import RoundRoom
from cloud.learn.shown import CONDITION_TAG
from cloud.release.registered import Alias
from fovea.bench.street_person import label_by_truth
from fovea.core.frame import FrameId
from fovea.runtime.images import encode_jpeg
from fovea.sim.frame import StreetFrame, StreetObject
from fovea.sim.suite import Clip, clip_seed
from protos.calls import DetectQuestion
from protos.codec import question_to_bytes
from protos.rpc import DetectStub
from tests.learning_tasks import until
from tests.system.service_process import FOVEA, WAIT_S, free_port, running

pytest.importorskip("torch")

CAMERA, CONDITIONS = "yard", ("day", "night")
CLIPS, PER_CLIP = 4, 4
FIRST_DAY = datetime(2026, 5, 1, 12, tzinfo=UTC)
CONFIG = """
bundle: zoo:street-edge
listen: 127.0.0.1:{port}
log: {{format: json}}
device: cpu
metrics: 127.0.0.1:0
store: {{folder: kept, near_duplicates: null}}
golden: {{frames: 14, enough: 8}}
learning:
  student: zoo:street-student-day-fp32
  champion: zoo:street-student-day-int8
  mode: pseudo
  new_cases: 20
  replay_cases: 20
  recipes: 1
  tracking: false
  min_golden_frames: 2
  min_new_frames: 1
"""


@cache
def street() -> dict[FrameId, tuple[str, datetime, StreetFrame]]:
    """What the camera sees: a few small clips of day and of night."""
    seen = {}
    for place, condition in enumerate(CONDITIONS):
        for number in range(CLIPS):
            seed = clip_seed("street-v1", "learning-round", condition, number)
            clip = Clip(f"round/{condition}/{number}", condition, seed, (480, 270))
            for index in range(PER_CLIP):
                sequence = (place * CLIPS + number) * PER_CLIP + index
                at = FIRST_DAY + timedelta(minutes=11 * sequence)  # each for itself: some judge, some teach
                seen[FrameId(CAMERA, "boot-1", sequence)] = (condition, at, clip.frame(10 + 60 * index))
    return seen


def truth_of(case: StoredCase) -> tuple[StreetObject, ...] | None:
    found = street().get(case.frame_id)
    return found[2].objects if found else None


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text(CONFIG.format(port=free_port()))
    return path


@contextmanager
def room_of(config: Path) -> Iterator[RoundRoom]:
    with opened_round_room(load_config(config)) as room:
        yield room


def ask_about_everything(config: Path) -> None:
    """A cloud process is asked about every frame of the street, and keeps them."""
    with running((FOVEA, "cloud", "--config", config)) as process:
        address = process.event("serving")["address"]
        with grpc.insecure_channel(address) as channel:
            detect = DetectStub(channel).detect
            for frame_id, (_, at, frame) in street().items():
                question = DetectQuestion(
                    image=encode_jpeg(frame.pixels, 90), frame_id=frame_id, captured_at=at,
                    reasons=("uncertain_boxes",), send_probability=0.5,
                )  # fmt: skip
                detect(question_to_bytes(question), timeout=WAIT_S)
        process.stop()
    with room_of(config) as room:
        for case in list(room.cases.walk()):
            room.cases.tag([case.id], [f"{CONDITION_TAG}{street()[case.frame_id][0]}"])
        assert room.cases.count() == len(street())


def loop_run(config: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(FOVEA), "loop", "run", "--config", str(config), "--condition", "night", "--json", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=10 * WAIT_S)
    assert process.returncode == 0, errors
    told: dict[str, Any] = json.loads(out)
    return told


def is_at(config: Path, step: Step) -> bool:
    with room_of(config) as room:
        found = room.rounds.find_running()
        return found is not None and any(each.step is step for each in found.steps)


def last_round(room: RoundRoom) -> RoundRecord:
    return room.rounds.rounds(limit=1)[0]


@pytest.mark.timeout(1800)  # a liveness limit: trainings on a busy machine
def test_a_round_that_is_killed_goes_on_and_its_model_waits_for_people_and_then_is_judged(
    config: Path,
) -> None:
    ask_about_everything(config)
    first = loop_run(config, "--epochs", "2")
    until(lambda: is_at(config, Step.DISTIL), "the training begins")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=WAIT_S)
    with room_of(config) as room:
        killed = last_round(room)
    assert killed.state is RoundState.RUNNING

    told = finished(loop_run(config, "--epochs", "2"))
    assert told["id"] == killed.id
    assert (
        told["steps"]["label"]["facts"]["reused"] > 0
    )  # what the cloud answered in time is not looked at again
    with room_of(config) as room:
        done = last_round(room)
        assert done.results[Step.SELECT] == killed.results[Step.SELECT]
        assert done.verdict is Verdict.SHADOW_ONLY
        assert "golden" in done.reasons[0]
        [made] = [m for m in room.registry.models("street-student") if m.ref.sha256 == done.candidate]
        assert made.verdict is not None and made.verdict["verdict"] == "shadow_only"
        assert Alias.CANDIDATE not in room.registry.aliases("street-student")

        picked = start(room.cases, room.golden, "default")
        label_by_truth(Reviews(room.cases, room.labels), [case.id for case in picked], truth_of)

    told = finished(loop_run(config, "--epochs", "1"))
    with room_of(config) as room:
        judged = last_round(room)
        assert judged.id == told["id"] != done.id
        assert judged.verdict in (Verdict.PROMOTE, Verdict.REFUSE), judged.reasons
        assert judged.reasons
        names = room.registry.aliases("street-student")
        is_candidate = Alias.CANDIDATE in names and names[Alias.CANDIDATE].ref.sha256 == judged.candidate
        assert is_candidate is (judged.verdict is Verdict.PROMOTE)
        facts = judged.results[Step.JUDGE].facts
        assert {"ap", "asked_rate", "calibration_error", "latency_ms"} <= set(facts["candidate"])
        assert (room.folder / judged.id / "verdict.json").is_file()
    shown = subprocess.run(
        [str(FOVEA), "loop", "show", "--config", str(config), judged.id],
        capture_output=True, text=True, timeout=WAIT_S, check=True,
    ).stdout  # fmt: skip
    assert judged.id in shown and "register" in shown
