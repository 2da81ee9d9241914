"""Five rounds of learning: a student that knows only day goes through dusk, night, rain at night and fog; one round
is poisoned. Everything goes its real way: cases, teacher, golden frames, rounds, registry; the street is the person.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from calibration.evaluate import report
from cloud.cases.store import CaseStore, StoreAddress
from cloud.cases.stored_case import CaseFilter, StoredCase
from cloud.golden.golden_set import GoldenSet, GoldenSettings
from cloud.golden.picking import Pick
from cloud.golden.start import start
from cloud.labels.review import Reviews
from cloud.labels.store import LabelStore
from cloud.learn.dataset import Origin, Snapshot
from cloud.learn.distil import Mode, next_version
from cloud.learn.executor import JobState
from cloud.learn.golden_parts import golden_cases
from cloud.learn.local_executor import LocalExecutor
from cloud.learn.looked_at import KnownFrame, truth_of_golden
from cloud.learn.promotion import PromotionSettings, Verdict
from cloud.learn.round import Watcher, run_round
from cloud.learn.round_plan import RoundPlan, RoundRecord, Step
from cloud.learn.round_room import Family, RoundRoom, TeacherSource
from cloud.learn.rounds import RoundStore
from cloud.learn.shipping import quantized, with_fitted_gate
from cloud.learn.shown import CONDITION_TAG
from cloud.learn.tasks import distil_task
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from fovea.bench.loop_camera import SentCounts, Tiers, sent_cases
from fovea.bench.loop_poison import Poisoning
from fovea.bench.loop_street import CameraFrame, Role, Street, StreetClips
from fovea.bench.loop_test import TestClips, ap_by_condition, figures_of, gap_closed_pct, is_worse
from fovea.bench.result import BenchResult
from fovea.bench.street_person import label_by_truth
from fovea.core.errors import BrokenError, Malformed
from fovea.core.routing import Tier
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.conditions import NIGHT_RAIN
from fovea.zoo.catalogue import path_of

FIRST = "day"
ROUNDS = ("dusk", "night", NIGHT_RAIN, "fog")
SITE = "default"
STATE = "loop.json"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The size of it all. clips: that the camera sees of each condition, `per_clip` frames of each; audit_clips: of
    which two frames are labelled by people; test_clips: of which three frames are the test. minutes or epochs: of
    each training. seed: of what is drawn; None: drawn now."""

    clips: int = 100
    per_clip: int = 4
    audit_clips: int = 40
    test_clips: int = 24
    minutes: float | None = 4.0
    epochs: float | None = None
    mode: Mode = Mode.PSEUDO
    new: int = 300
    replay: int = 240
    recipes: int = 3
    workers: int = 2
    threads: int = 2
    rounds: tuple[str, ...] = ROUNDS
    seed: int | None = None
    promotion: PromotionSettings = field(default_factory=lambda: PromotionSettings(80, 30))

    def __post_init__(self) -> None:
        unknown = set(self.rounds) - set(ROUNDS)
        if not self.rounds or unknown:
            raise Malformed(f"loop rounds: expected some of {', '.join(ROUNDS)}, got {sorted(unknown)}")


def run(settings: LoopSettings, folder: Path, watcher: Watcher) -> BenchResult:
    """Runs what is not done yet; all lies in `folder`, where a run that was killed goes on."""
    with _opened(settings, folder, watcher) as loop:
        loop.begin()
        for condition in settings.rounds:
            loop.go_through(condition)
        figures = figures_of(loop.state["rounds"], loop.final())
        told = {
            name: value for name, value in asdict(settings).items() if isinstance(value, int | float | str)
        }
        told |= {
            "rounds": " ".join(settings.rounds),
            "seed": loop.state["seed"],
            "poison": loop.poisoning.kind.value,
        }
        return BenchResult.now("loop", told, figures)


@contextmanager
def _opened(settings: LoopSettings, folder: Path, watcher: Watcher) -> Iterator[_Loop]:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    address = StoreAddress.in_folder(folder)
    with ExitStack() as stack:
        cases = CaseStore.open(address)
        stack.callback(cases.close)
        labels = LabelStore.open(address.database)
        stack.callback(labels.close)
        registry = Registry.open(RegistryAddress.in_folder(folder))
        stack.callback(registry.close)
        rounds = RoundStore.open(address.database)
        stack.callback(rounds.close)
        teacher = path_of("street-cloud")
        room = RoundRoom(
            cases=cases,
            labels=labels,
            golden=GoldenSet(labels, settings=_golden_settings(settings)),
            registry=registry,
            rounds=rounds,
            teacher=TeacherSource(lambda: OnnxDetector.open(Bundle.open(teacher), "cpu"), teacher),
            family=Family(
                "street-student", path_of("street-student-day-fp32"), path_of("street-student-day-int8")
            ),
            folder=folder / "rounds",
            executor_of=lambda jobs: LocalExecutor(jobs, settings.threads),
            wait=time.sleep,
            settings=settings.promotion,
            tracking=folder / "mlflow",
        )
        yield _Loop(settings, folder, room, watcher)


def _golden_settings(settings: LoopSettings) -> GoldenSettings:
    frames = 2 * settings.audit_clips * (1 + len(settings.rounds))
    return GoldenSettings(frames, min(2 * settings.audit_clips, settings.promotion.min_golden_frames))


class _Loop:
    """The state of a run is what its folder holds."""

    def __init__(self, settings: LoopSettings, folder: Path, room: RoundRoom, watcher: Watcher) -> None:
        self._settings, self._folder, self._room, self._watcher = settings, folder, room, watcher
        self._street = Street(folder / "frames", (FIRST, *ROUNDS), settings.workers)
        self._path = folder / STATE
        self.state: dict[str, Any] = self._loaded()
        self.poisoning = Poisoning(self.state["seed"])

    def _loaded(self) -> dict[str, Any]:
        if self._path.is_file():
            found: dict[str, Any] = json.loads(self._path.read_bytes())
            return found
        seed = secrets.randbelow(2**31) if self._settings.seed is None else self._settings.seed
        return {"seed": seed, "sent": {}, "rounds": []}

    def _save(self) -> None:
        write_atomically(self._path, json.dumps(self.state, indent=1).encode())

    def begin(self) -> None:
        """The camera sees day, and people label some of it; its first gate is fitted on that: its model has none."""
        self._save()
        first = self._folder / "first.fovea"
        if not first.is_file():
            self._send(FIRST, Bundle.open(self._room.family.champion), self._audits(FIRST))
            write_atomically(first, self._first_champion().to_bytes())
        self._room = replace(self._room, family=replace(self._room.family, champion=first))
        self._room.students()
        self._see(FIRST)

    def _first_champion(self) -> Bundle:
        room, bundle = self._room, Bundle.open(self._room.family.champion)
        golden = golden_cases(room.golden.frames(SITE), room.cases)
        frames = [
            KnownFrame(g.group, room.cases.load_image(g.case), truth_of_golden(g), g.case) for g in golden
        ]
        made = with_fitted_gate(bundle, bundle, frames, {}, bundle.manifest.label_set, asked_before=1.0)
        if made.facts["form"] != "learned":
            raise Malformed(f"the day camera's gate: {made.facts['why']}; label more clips")
        return made.bundle.with_parts({}, version=next_version(bundle.manifest.version))

    def go_through(self, condition: str) -> None:
        """The camera meets a condition, and a round teaches it; beside one of them, a poisoned one."""
        self._see(condition)
        plan = RoundPlan(
            site=SITE, condition=condition, why="bench", mode=self._settings.mode, minutes=self._settings.minutes,
            epochs=self._settings.epochs, seed=self.state["seed"] % 1000, new=self._settings.new,
            replay=self._settings.replay, recipes=self._settings.recipes, fit_share=0.25,
        )  # fmt: skip
        drawn = self._settings.rounds[self.state["seed"] % len(self._settings.rounds)]
        if condition == drawn and not self._is_done(condition, poison=True):
            room = replace(self._room, altered=self.poisoning)
            record = run_round(room, replace(plan, why=f"bench, {self.poisoning.kind}"), self._watcher)
            self._note(condition, record, {"poison": self.poisoning.kind.value, "bytes_pushed": 0})
        if not self._is_done(condition, poison=False):
            self._clean_round(condition, plan)

    def _clean_round(self, condition: str, plan: RoundPlan) -> None:
        registry, family = self._room.registry, self._room.family.name
        record = run_round(self._room, plan, self._watcher)
        before = self._room.students(record.champion)
        promoted = record.verdict is Verdict.PROMOTE
        if promoted and Alias.CANDIDATE in registry.aliases(family):
            registry.promote(family, f"round {record.id} of the bench")
        after = self._room.students()
        truth = self._trained_on_truth(condition, before.student, before.champion.manifest.name)
        known = [FIRST, *self._settings.rounds[: self._settings.rounds.index(condition) + 1]]
        clips = self._test_clips(known)
        old, new = (clips.table(each.champion, known) for each in (before, after))
        ap_old, ap_new = (ap_by_condition(table, known) for table in (old, new))
        ap_truth = report(clips.table(truth, [condition])).ap
        facts = {
            "poison": "", "ap_all_before": ap_old, "ap_all": ap_new, "ap_before": ap_old[condition],
            "ap_after": ap_new[condition], "ap_truth": ap_truth, "is_worse": is_worse(new, old, condition),
            "gap_closed_pct": gap_closed_pct(ap_old[condition], ap_new[condition], ap_truth),
            "asked_share": self.state["sent"][condition],
            "bytes_pushed": len(after.champion.to_bytes()) if promoted else 0,
        }  # fmt: skip
        self._note(condition, record, facts)

    def final(self) -> dict[str, float]:
        """The last student beside its teacher, on the held-out clips of the camera."""
        if "final" not in self.state:
            conditions = [FIRST, *self._settings.rounds]
            clips = self._test_clips(conditions)
            student, teacher = self._room.students().champion, Bundle.open(path_of("street-cloud"))
            self.state["final"] = {
                "student_ap50": report(clips.table(student, conditions)).ap50,
                "teacher_ap50": report(clips.table(teacher, conditions)).ap50,
                "student_bytes": len(student.parts[MODEL]),
                "teacher_bytes": len(teacher.parts[MODEL]),
            }
            self._save()
        found: dict[str, float] = self.state["final"]
        return found

    def _see(self, condition: str) -> None:
        """The camera looks, its gate sends, the store keeps; people label the audits."""
        audits = self._audits(condition)
        if condition in self.state["sent"]:
            return
        champion = self._room.students().champion
        counts = self._send(condition, champion, [*self._case_frames(condition), *audits])
        self.state["sent"][condition] = counts.asked_share
        self._save()

    def _audits(self, condition: str) -> list[CameraFrame]:
        return list(self._street.frames(StreetClips(Role.AUDIT, condition, self._settings.audit_clips, 2)))

    def _send(self, condition: str, champion: Bundle, frames: Sequence[CameraFrame]) -> SentCounts:
        bundles = {
            Tier.AGENT: champion,
            Tier.EDGE: Bundle.open(path_of("street-edge")),
            Tier.CLOUD: Bundle.open(path_of("street-cloud")),
        }
        counts = SentCounts()
        kept: list[str] = []
        with Tiers(bundles) as tiers:
            for case in sent_cases(tiers, frames, counts):
                kept.append(self._room.cases.add(case).case_id)
                if not len(kept) % 20:
                    self._watcher.note(f"{condition}: {len(kept)} frames sent")
        self._room.cases.tag(kept, [f"{CONDITION_TAG}{condition}"])
        self._label_golden()
        return counts

    def _label_golden(self) -> None:
        """All audits are golden frames, and the street says what is in them."""
        audits = self._room.cases.count(CaseFilter(is_audit=True))
        start(self._room.cases, self._room.golden, SITE, frames=audits, picker=_pick_audits)
        reviews = Reviews(self._room.cases, self._room.labels)
        unlabelled = [each.case_id for each in self._room.golden.frames(SITE) if each.label is None]
        label_by_truth(reviews, unlabelled, self._street.truth_of)

    def _case_frames(self, condition: str) -> Iterator[CameraFrame]:
        clips = StreetClips(Role.CASE, condition, self._settings.clips, self._settings.per_clip)
        return self._street.frames(clips)

    def _test_clips(self, conditions: Sequence[str]) -> TestClips:
        wanted = [StreetClips(Role.TEST, each, self._settings.test_clips, 3) for each in conditions]
        return TestClips(
            {each.condition: [f.evaluated() for f in self._street.frames(each)] for each in wanted}
        )

    def _trained_on_truth(self, condition: str, student: Bundle, name: str) -> Bundle:
        """The same student, trained as long on the true labels of all that the camera saw of the condition."""
        home = self._folder / "truth" / condition
        images = [frame.truly_labelled(Origin.NEW) for frame in self._case_frames(condition)]
        snapshot = Snapshot.write(home / "data", images, student.manifest.label_set)
        task = distil_task(
            "truth", student.write(home), snapshot.folder, home / "training", None, Mode.NONE,
            self._settings.minutes, self._settings.epochs,
        )  # fmt: skip
        executor = LocalExecutor(home / "jobs", self._settings.threads)
        executor.start(task)
        self._watcher.note(f"{condition}: training on true labels")
        while (found := executor.report("truth")).state is JobState.RUNNING:
            time.sleep(0.5)
        if found.result is None:
            raise BrokenError(f"training on true labels: {found.reason}")
        trained = Bundle.open(Path(found.result["bundle"]))
        # One recipe: nothing is chosen by what the model saw of its own training frames.
        scored = [frame.evaluated() for frame in islice(self._case_frames(condition), 12)]
        ranges = [image.jpeg for image in images]
        return quantized(trained, name, ranges, scored, 1, lambda trial: None).bundle

    def _is_done(self, condition: str, poison: bool) -> bool:
        return any(row["name"] == condition and bool(row["poison"]) is poison for row in self.state["rounds"])

    def _note(self, condition: str, record: RoundRecord, facts: dict[str, Any]) -> None:
        verdict = record.verdict.value if record.verdict else record.state.value
        judged = record.results.get(Step.JUDGE)
        self.state["rounds"].append(
            {
                "name": condition,
                "id": record.id,
                "verdict": verdict,
                "reasons": list(record.reasons),
                "minutes": record.spent_s / 60,
                "judged": dict(judged.facts) if judged else {},
                **facts,
            }
        )
        self._save()


def _pick_audits(cases: Sequence[StoredCase], count: int) -> list[Pick]:
    return [Pick(case.id, "audit") for case in cases if case.is_audit][:count]
