"""The later steps of a round: training, the artefact that ships, the verdict on it, and its place in the registry."""

from __future__ import annotations

import json
from pathlib import Path

from cloud.learn.dataset import Split
from cloud.learn.distil import Mode, next_version
from cloud.learn.executor import JobState
from cloud.learn.golden_parts import GoldenPart
from cloud.learn.measure import figures_of, measure_pair
from cloud.learn.promotion import Finding, Promotion, Verdict, judge
from cloud.learn.round_data import RoundWork
from cloud.learn.round_plan import Step, StepResult
from cloud.learn.shipping import Made, as_version, quantized, with_fitted_gate, with_fitted_scores
from cloud.learn.tasks import distil_task
from cloud.release.registered import Alias
from fovea.core.errors import BrokenError, Malformed
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import Bundle

VERDICT = "verdict.json"
_LOOK_EVERY_S = 0.5
_MOST_STARTS = 4


def distil(work: RoundWork) -> StepResult:
    """The training, as a task of the executor: it outlives this process, and a killed one goes on. Raises Malformed
    for what cannot be trained, BrokenError where it dies again and again."""
    room, plan = work.room, work.plan
    mode = plan.mode if room.teacher.bundle is not None or plan.mode is not Mode.PSEUDO_KD else Mode.PSEUDO
    student = work.students.student
    (work.home / "student").mkdir(parents=True, exist_ok=True)
    task = distil_task(
        f"round-{work.id}", student.write(work.home / "student"), work.snapshot().folder, work.home / "training",
        room.teacher.bundle if mode is Mode.PSEUDO_KD else None, mode, plan.minutes, plan.epochs, plan.seed,
        room.tracking,
    )  # fmt: skip
    executor = room.executor_of(work.home / "jobs")
    try:
        for _ in range(_MOST_STARTS):
            executor.start(task)
            work.note(f"training, {mode}")
            while (report := executor.report(task.name)).state is JobState.RUNNING:
                room.wait(_LOOK_EVERY_S)
            if report.state is not JobState.LOST:
                break
    finally:
        executor.close()
    if report.state is JobState.LOST:
        raise BrokenError(f"training: it was lost {_MOST_STARTS} times; {report.reason}")
    if report.result is None:
        raise Malformed(f"training: {report.reason}")
    facts = report.result["facts"]
    bundle = Path(report.result["bundle"])
    said = f"{facts['distil.images_seen']:.0f} images seen in {facts['distil.minutes']:.1f} minutes ({mode})"
    return StepResult(said, {"bundle": str(bundle.relative_to(work.home.resolve())), **facts})


def quantize(work: RoundWork) -> StepResult:
    """INT8, by the recipe that does best on frames kept from training; under a version that nobody has."""
    trained = Bundle.open(work.home / work.fact(Step.DISTIL, "bundle"))
    version = _free_version(work)
    student = as_version(trained, work.students.student, version)
    snapshot = work.snapshot()
    ranges = [snapshot.jpeg(image) for image in snapshot.of(Split.TRAIN)]
    made = quantized(
        student, work.students.champion.manifest.name, ranges,
        [frame.labelled() for frame in work.fit_frames()], work.plan.recipes,
        lambda trial: work.note(f"{trial.label}: AP {trial.score:.3f}"),
    )  # fmt: skip
    facts = {"student": _kept(work, "fp32", student), **_facts(work, "int8", made), "version": version}
    return StepResult(
        f"{made.facts['recipe']}: AP {made.facts['ap_int8']:.3f} after {made.facts['ap_fp32']:.3f}", facts
    )


def scores(work: RoundWork) -> StepResult:
    """Scores become probabilities again, of the INT8 artefact."""
    made = with_fitted_scores(_bundle(work, Step.QUANTIZE), work.fit_frames())
    said = f"calibration error {made.facts['d_ece_before']:.3f}, now {made.facts['d_ece_after']:.3f}"
    return StepResult(said, _facts(work, "scored", made))


def gate(work: RoundWork) -> StepResult:
    """A gate of its own: the old one knows another model."""
    frames = work.fit_frames()
    made = with_fitted_gate(
        _bundle(work, Step.SCORES), work.students.champion, frames, work.teacher_answers(frames),
        work.students.student.manifest.label_set,
    )  # fmt: skip
    if made.facts["form"] == "learned":
        said = f"fitted on {made.facts['frames']} frames, asks about {made.facts['share']:.0%} of them"
    else:
        said = f"the hand-set gate runs: {made.facts['why']}"
    return StepResult(said, _facts(work, "shipped", made))


def verdict(work: RoundWork) -> StepResult:
    """Both INT8 artefacts on the golden frames that judge, and what follows."""
    promotion, facts = _judged(work)
    write_atomically(work.home / VERDICT, json.dumps(promotion.to_json(), indent=1).encode())
    said = f"{promotion.verdict.value.replace('_', ' ')}: {promotion.reasons[0]}"
    return StepResult(said, {"verdict": promotion.verdict.value, "reasons": list(promotion.reasons), **facts})


def register(work: RoundWork) -> StepResult:
    """What may go on is registered with its verdict, its FP32 student beside it: the next round begins there. A
    promoted one is the family's candidate."""
    shipped, family = _bundle(work, Step.GATE), work.room.family.name
    outcome = Verdict(work.fact(Step.JUDGE, "verdict"))
    facts = {"candidate": shipped.ref.sha256, "version": shipped.manifest.version}
    if outcome is Verdict.REFUSE:
        return StepResult(f"{shipped.ref} is not registered", facts)
    told = json.loads((work.home / VERDICT).read_bytes())
    student = Bundle.open(work.home / work.fact(Step.QUANTIZE, "student"))
    work.room.registry.register(family, student)
    work.room.registry.register(family, shipped, {**told, "round": work.id})
    if outcome is Verdict.SHADOW_ONLY:
        return StepResult(f"{shipped.ref} may watch and not answer", facts)
    work.room.registry.name(family, Alias.CANDIDATE, shipped.ref, f"round {work.id}")
    return StepResult(f"{shipped.ref} is the candidate of {family}", facts)


def _judged(work: RoundWork) -> tuple[Promotion, dict[str, object]]:
    site = work.room.golden.golden_state(work.plan.site)
    judging = [each for each in work.golden() if each.part is GoldenPart.JUDGE]
    frames = work.golden_frames(GoldenPart.JUDGE)
    if site.is_shadow_only or not frames:
        return Promotion(Verdict.SHADOW_ONLY, (Finding("golden frames", False, str(site)),)), {}
    pair = measure_pair(_bundle(work, Step.GATE), work.students.champion, frames)
    promotion = judge(
        pair.candidate, pair.champion, {each.group: each.condition for each in judging}, work.plan.condition,
        work.room.settings,
    )  # fmt: skip
    facts = {"candidate": figures_of(pair.candidate), "champion": figures_of(pair.champion)}
    return promotion, {**facts, "golden_frames": len(frames)}


def _free_version(work: RoundWork) -> str:
    """The next version that no model of these names has, so that two rounds from one champion never collide."""
    names = {work.students.student.manifest.name, work.students.champion.manifest.name}
    taken = {m.ref.version for m in work.room.registry.models(work.room.family.name) if m.ref.name in names}
    version = next_version(work.students.champion.manifest.version)
    while version in taken:
        version = next_version(version)
    return version


def _facts(work: RoundWork, folder: str, made: Made) -> dict[str, object]:
    return {"bundle": _kept(work, folder, made.bundle), **made.facts}


def _kept(work: RoundWork, folder: str, bundle: Bundle) -> str:
    (work.home / folder).mkdir(parents=True, exist_ok=True)
    return str(bundle.write(work.home / folder).relative_to(work.home))


def _bundle(work: RoundWork, step: Step) -> Bundle:
    return Bundle.open(work.home / work.fact(step, "bundle"))
