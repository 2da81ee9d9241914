"""Distillation: the last accepted student, a teacher and a snapshot of labelled images become the next student."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from cloud.export_cut import export_module
from cloud.learn.checkpoint import Checkpoints, Progress
from cloud.learn.curves import draw_curves
from cloud.learn.dataset import Snapshot
from cloud.learn.settings import DistilSettings
from cloud.learn.tracking import NoTracking, Tracking
from cloud.learn.training import Training
from fovea.core.errors import Malformed
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.manifest import ParentRef, Precision, canonical_json, new_manifest

log = logging.getLogger(__name__)

CHECKPOINT: Final = "checkpoint.pt"
CURVES: Final = "curves.png"
FACTS: Final = "facts.json"


class Mode(StrEnum):
    """What of the teacher a student gets: nothing (only what people labelled), its labels, or also its doubts."""

    NONE = "none"
    PSEUDO = "pseudo"
    PSEUDO_KD = "pseudo_kd"


@dataclass(frozen=True, slots=True, eq=False)
class DistilRun:
    """One distillation. It ends after `minutes` of wall clock or `epochs` of the snapshot, whichever is given (the
    nearer one if both are). `version` None is the student's with its last number raised.

    Raises Malformed when there is no end, or nothing to distil from.
    """

    student: Bundle
    snapshot: Snapshot
    out_dir: Path
    teacher: Bundle | None = None
    mode: Mode = Mode.PSEUDO_KD
    minutes: float | None = None
    epochs: float | None = None
    seed: int = 0
    device: str = "auto"
    version: str | None = None
    settings: DistilSettings = field(default_factory=DistilSettings)

    def __post_init__(self) -> None:
        ends = [end for end in (self.minutes, self.epochs) if end is not None]
        if not ends or min(ends) <= 0:
            raise Malformed(
                f"distillation: expected minutes or epochs above 0, got {self.minutes} and {self.epochs}"
            )
        if self.mode is Mode.PSEUDO_KD and self.teacher is None:
            raise Malformed("distillation: mode pseudo_kd needs the teacher's bundle")

    @property
    def digest(self) -> str:
        """Names everything that decides the result."""
        facts = {
            "student": self.student.ref.sha256, "snapshot": self.snapshot.digest, "mode": self.mode,
            "teacher": self.teacher.ref.sha256 if self.teacher and self.mode is Mode.PSEUDO_KD else None,
            "minutes": self.minutes, "epochs": self.epochs, "seed": self.seed, "settings": asdict(self.settings),
        }  # fmt: skip
        return hashlib.sha256(canonical_json(facts)).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class DistilOutcome:
    """The new FP32 student (not calibrated, without a gate: both belong to the artefact that is shipped), its curves
    as a picture, and what was measured."""

    bundle: Bundle
    curves: Path
    facts: dict[str, float | str]


def distil(
    run: DistilRun,
    note: Callable[[str], None] = log.info,
    tracking: Tracking | None = None,
    clock_s: Callable[[], float] = time.monotonic,
) -> DistilOutcome:
    """Train until the run is over, then export. A killed run goes on from its last checkpoint in `out_dir`; a
    finished one is not trained again.

    Raises Incompatible (a student or teacher that this cannot work with), Malformed (nothing to learn from, a folder
    of another run), StoreCorrupt (an image or a checkpoint is damaged), BrokenError (disk).
    """
    run.out_dir.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(run.out_dir / CHECKPOINT, run.digest)
    training = Training(
        student=run.student, snapshot=run.snapshot, settings=run.settings, seed=run.seed, device=run.device,
        uses_teacher_labels=run.mode is not Mode.NONE,
        teacher=run.teacher if run.mode is Mode.PSEUDO_KD else None,
        looks_dir=run.out_dir / "looks", minutes=run.minutes, epochs=run.epochs,
    )  # fmt: skip
    found = checkpoints.find()
    if found is None:
        training.warm_up()
    else:
        training.resume(*found)
        note(f"goes on after {training.progress.images_seen} images, {training.progress.elapsed_s:.0f} s")
    with tracking or NoTracking() as record:
        record.settings({**asdict(run.settings), **_names(run)})
        _train(training, checkpoints, run.out_dir, note, record, clock_s)
        outcome = _outcome(run, training)
        for path in (outcome.curves, outcome.bundle.write(run.out_dir)):
            record.file(path)
    (run.out_dir / FACTS).write_bytes(canonical_json(outcome.facts))
    return outcome


def _train(
    training: Training,
    checkpoints: Checkpoints,
    out_dir: Path,
    note: Callable[[str], None],
    record: Tracking,
    clock_s: Callable[[], float],
) -> None:
    """Steps until the end of the run; looks at the validation images in even stretches of it."""
    settings, progress = training.settings, training.progress
    last_s = saved_s = clock_s()
    sums: dict[str, list[float]] = {}
    while training.share < 1.0:
        for name, value in training.step().items():
            sums.setdefault(name, []).append(value)
        now_s = clock_s()
        progress.elapsed_s += now_s - last_s
        last_s = now_s
        is_look_due = training.share * settings.validations >= len(progress.curve) + 1
        if is_look_due:
            row = {name: sum(values) / len(values) for name, values in sums.items()}
            sums.clear()
            row |= {"images_seen": float(progress.images_seen), **training.validate()}
            progress.curve.append(row)
            record.figures(row, progress.steps)
            note(_line(training.share, progress, row))
        if is_look_due or now_s - saved_s >= settings.checkpoint_every_s:
            checkpoints.save(progress, training.state())
            draw_curves(progress.curve, out_dir / CURVES)
            saved_s = now_s
    checkpoints.save(progress, training.state())
    draw_curves(progress.curve, out_dir / CURVES)


def _line(share: float, progress: Progress, row: dict[str, float]) -> str:
    figures = ", ".join(f"{name} {value:.3g}" for name, value in row.items() if name != "images_seen")
    speed = progress.images_seen / max(progress.elapsed_s, 1e-9)
    return f"{share:.0%}: {progress.images_seen} images, {speed:.0f}/s, {figures}"


def _names(run: DistilRun) -> dict[str, object]:
    return {
        "student": run.student.ref, "teacher": run.teacher.ref if run.teacher else None, "mode": run.mode,
        "snapshot": run.snapshot.digest, "images": len(run.snapshot), "seed": run.seed,
        "minutes": run.minutes, "epochs": run.epochs,
    }  # fmt: skip


def _outcome(run: DistilRun, training: Training) -> DistilOutcome:
    progress, parent = training.progress, run.student.manifest
    facts: dict[str, float | str] = {
        "distil.mode": str(run.mode), "distil.seed": float(run.seed), "distil.steps": float(progress.steps),
        "distil.images_seen": float(progress.images_seen), "distil.minutes": round(progress.elapsed_s / 60, 2),
    }  # fmt: skip
    if run.teacher is not None and run.mode is not Mode.NONE:
        facts["distil.teacher"] = str(run.teacher.ref)
    if progress.curve and "val" in progress.curve[-1]:
        facts["distil.val_loss"] = round(progress.curve[-1]["val"], 4)
    with tempfile.TemporaryDirectory() as scratch:
        size = (parent.input.height, parent.input.width)
        graph = export_module(training.averaged, Path(scratch) / MODEL, size).path.read_bytes()
    manifest = new_manifest(
        name=parent.name, version=run.version or next_version(parent.version), created_at=datetime.now(UTC),
        description=parent.description, licence=parent.licence, parent=ParentRef.of(run.student.ref),
        dataset=f"snapshot sha256:{run.snapshot.digest}, {len(run.snapshot)} images", labels=parent.labels,
        input=parent.input, output=parent.output, precision=Precision.FP32, nms=parent.nms,
        answer_min_score=parent.answer_min_score, tta=parent.tta, trust=parent.trust, min_agent=parent.min_agent,
        parameters=parent.parameters, report=facts,
    )  # fmt: skip
    return DistilOutcome(Bundle.build(manifest, {MODEL: graph}), run.out_dir / CURVES, facts)


def next_version(version: str) -> str:
    """`version` with its last number raised by one; a name that ends in no number gets `.1`."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isdecimal() else f"{version}.1"
