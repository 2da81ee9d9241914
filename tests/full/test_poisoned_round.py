"""A round whose labels were poisoned is refused with its reason, and a clean one beside it passes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cloud.golden.golden_set import GoldenSet, GoldenSettings
from cloud.golden.picking import Pick
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.label import PersonLabel
from cloud.learn.distil import Mode
from cloud.learn.executor import JobReport, JobState, Task, perform
from cloud.learn.promotion import PromotionSettings, Verdict
from cloud.learn.round import LogWatcher, run_round
from cloud.learn.round_plan import RoundPlan
from cloud.learn.round_room import Family, RoundRoom, TeacherSource
from cloud.learn.rounds import RoundStore
from cloud.learn.shown import CONDITION_TAG
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from fovea.bench.loop_poison import Poisoning
from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, Detections, Inference, ModelRef, ScoreKind
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.labels import LabelSet
from fovea.runtime.images import encode_png
from fovea.zoo.catalogue import path_of
from tests.learning_images import STREET
from tests.unit.labelled_cases import Stores, stores_in

pytest.importorskip("torch")

SIZE = ImageSize(160, 96)
CAR, PERSON = STREET.ids[2], STREET.ids[0]
COLOURS = {CAR: (40, 40, 230), PERSON: (230, 60, 40)}
FIRST_DAY = datetime(2026, 2, 1, tzinfo=UTC)
TRAINED, GOLDEN = 60, 40
PLAN = RoundPlan(
    condition="shapes",
    why="a test",
    mode=Mode.PSEUDO,
    minutes=None,
    epochs=16.0,
    new=TRAINED,
    replay=0,
    recipes=1,
)


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """One frame: red blocks are cars, blue ones are persons."""

    pixels: ImageArray
    boxes: np.ndarray
    class_ids: np.ndarray


def shapes(number: int) -> Shapes:
    rng = np.random.default_rng(number)
    pixels = rng.integers(50, 90, (SIZE.height, SIZE.width, 3), np.uint8)
    boxes, class_ids = [], []
    for column in range(3):
        x, y = 4 + 52 * column + rng.integers(0, 8), rng.integers(4, 40)
        width, height = rng.integers(24, 40), rng.integers(24, 46)
        class_id = int(rng.choice([CAR, PERSON]))
        pixels[y : y + height, x : x + width] = COLOURS[class_id]
        boxes.append([x, y, x + width, y + height])
        class_ids.append(class_id)
    return Shapes(pixels, np.array(boxes, np.float32), np.array(class_ids, np.int32))


@dataclass(slots=True, eq=False)
class KnowingTeacher:
    """Sees what is really there, by the colours."""

    ref: ModelRef = field(default_factory=lambda: ModelRef("knowing", "1", "ab" * 32))
    labels: LabelSet = STREET

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        return [self._one(frame) for frame in frames]

    def _one(self, pixels: ImageArray) -> Inference:
        known = next(s for s in map(shapes, range(TRAINED + GOLDEN)) if np.array_equal(s.pixels, pixels))
        scores = np.full(len(known.boxes), 0.95, np.float32)
        seen = Detections(known.boxes, scores, known.class_ids, SIZE, self.ref)
        spread = np.zeros((len(scores), len(self.labels)), np.float32)
        spread[np.arange(len(scores)), [self.labels.ids.index(each) for each in known.class_ids]] = scores
        return Inference(seen, Candidates(known.boxes, spread, ScoreKind.PER_CLASS, self.labels, SIZE))

    def close(self) -> None:
        return None


@dataclass(slots=True)
class HereAndNow:
    """An executor that does each task while it is started."""

    reports: dict[str, JobReport] = field(default_factory=dict)

    def start(self, task: Task) -> None:
        told = perform(task)
        reason = str(told.get("reason", ""))
        self.reports[task.name] = JobReport(
            JobState.FAILED if reason else JobState.DONE, told.get("result"), reason
        )

    def report(self, name: str) -> JobReport:
        return self.reports[name]

    def stop(self, name: str) -> None:
        return None

    def close(self) -> None:
        return None


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


@pytest.fixture
def room(stores: Stores, tmp_path: Path) -> Iterator[RoundRoom]:
    registry = Registry.open(RegistryAddress.in_folder(tmp_path / "kept"))
    yield RoundRoom(
        cases=stores.cases,
        labels=stores.labels,
        golden=GoldenSet(stores.labels, settings=GoldenSettings(GOLDEN, GOLDEN)),
        registry=registry,
        rounds=RoundStore(stores.labels.engine, stores.clock.now),
        teacher=TeacherSource(KnowingTeacher, None),
        family=Family(
            "street-student", path_of("street-student-day-fp32"), path_of("street-student-day-int8")
        ),
        folder=tmp_path / "rounds",
        executor_of=lambda _: HereAndNow(),
        wait=lambda _: None,
        settings=PromotionSettings(min_golden_frames=10, min_new_frames=10, latency_ratio=3.0, resamples=200),
    )
    registry.close()


def fill(stores: Stores, golden: GoldenSet) -> None:
    """Frames to learn from, and frames that a person has labelled; each in ten minutes of its own."""
    ids = []
    for number in range(TRAINED + GOLDEN):
        at = FIRST_DAY + timedelta(minutes=11 * number)
        frame_id = FrameId("desk", "boot-1", number)
        case = HardCase(encode_png(shapes(number).pixels), frame_id, at, (), ("uncertain_boxes",))
        ids.append(stores.cases.add(case).case_id)
    stores.cases.tag(ids, [f"{CONDITION_TAG}shapes"])
    picked = ids[TRAINED:]
    stores.cases.protect(picked, "golden:default")
    golden.want("default", [Pick(case_id, "any") for case_id in picked])
    names = {label.id: label.name for label in STREET}
    for number, case_id in enumerate(picked, start=TRAINED):
        known = shapes(number)
        rows = zip(known.boxes.tolist(), known.class_ids.tolist(), strict=True)
        drawn = DrawnBoxes.of([(tuple(box), names[class_id]) for box, class_id in rows], SIZE)
        stores.labels.say(PersonLabel(case_id, drawn, "ada", stores.clock.now(), "console"))


@pytest.mark.timeout(1800)  # a liveness limit: trainings on a busy machine
def test_a_poisoned_round_is_refused_with_its_reason_and_a_clean_one_beside_it_passes(
    room: RoundRoom, stores: Stores, record_property: Callable[[str, object], None]
) -> None:
    fill(stores, room.golden)
    registry, plan = room.registry, PLAN
    begun = run_round(room, plan, LogWatcher())
    assert begun.verdict is Verdict.PROMOTE, begun.reasons
    registry.promote("street-student", "a first round, so that there is something to lose")

    poison = Poisoning(secrets.randbelow(2**31))
    record_property("poison", f"{poison.kind}, seed {poison.seed}")
    poisoned = run_round(replace(room, altered=poison), replace(plan, condition=None), LogWatcher())
    told = f"{poison.kind}, seed {poison.seed}: {poisoned.reasons}"
    assert poisoned.verdict is Verdict.REFUSE, told
    assert poisoned.reasons and poisoned.reasons != ("every check passed",), told
    assert Alias.CANDIDATE not in registry.aliases("street-student")

    clean = run_round(room, replace(plan, condition=None), LogWatcher())
    assert clean.verdict is Verdict.PROMOTE, clean.reasons
    assert registry.aliases("street-student")[Alias.CANDIDATE].ref.sha256 == clean.candidate
    assert clean.champion == poisoned.champion == begun.candidate  # beside each other
