"""The first steps of a round: which cases, what the teacher says of them, and the snapshot that a student learns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cloud.cases.selection import Selection
from cloud.cases.stored_case import CaseFilter, StoredCase
from cloud.labels.label import Targets
from cloud.labels.teacher import Teacher
from cloud.learn.dataset import LabelledImage, Origin, Snapshot, Split
from cloud.learn.golden_parts import GoldenCase, GoldenPart, block_of, golden_cases, kept_apart
from cloud.learn.looked_at import KnownFrame, truth_of, truth_of_golden
from cloud.learn.round_plan import RoundPlan, RoundState, Step, StepResult
from cloud.learn.round_room import Note, RoundRoom, Students
from cloud.learn.shown import filter_of, shown_condition
from fovea.core.detections import Detections
from fovea.core.errors import Malformed, NotFound, StoreCorrupt
from fovea.core.labels import LabelSet
from fovea.runtime.atomic_file import write_atomically

SELECTED = "selected.json"
_AT_ONCE = 20


@dataclass(frozen=True, slots=True, eq=False)
class RoundWork:
    """What a step is given: the room, the plan, the round's folder, the students it started from, what the steps
    before found, and where to say how it goes."""

    room: RoundRoom
    plan: RoundPlan
    id: str
    home: Path
    students: Students
    results: dict[Step, StepResult]
    note: Note

    def fact(self, step: Step, name: str) -> str:
        """What an earlier step noted as text."""
        return str(self.results[step].facts[name])

    def golden(self) -> list[GoldenCase]:
        """All golden frames of the site that people have labelled."""
        return golden_cases(self.room.golden.frames(self.plan.site), self.room.cases)

    def golden_frames(self, part: GoldenPart) -> list[KnownFrame]:
        """Those of one part, with their pictures; what is damaged is left out."""
        return list(_known(self.room, [each for each in self.golden() if each.part is part]))

    def snapshot(self) -> Snapshot:
        return Snapshot.open(self.home / self.fact(Step.SNAPSHOT, "folder"))

    def fit_frames(self) -> list[KnownFrame]:
        """What scores and gate are fitted on: golden frames of that part, and labelled cases that no training saw.
        Raises Malformed where there are none."""
        class_ids = self.students.student.manifest.label_set.ids
        frames = self.golden_frames(GoldenPart.FIT)
        snapshot = self.snapshot()
        for image in snapshot.of(Split.VAL):
            case = self.room.cases.find(image.id)
            if case is not None:
                truth = truth_of(image, class_ids)
                frames.append(KnownFrame(image.block, snapshot.jpeg(image), truth, case))
        if not frames:
            raise Malformed(
                "fitting: expected cases that were kept from training, there are none; select more"
            )
        return frames

    def teacher_answers(self, frames: Sequence[KnownFrame]) -> dict[str, Detections]:
        """What the teacher of this round saw in them, by case."""
        wanted = [frame.case.id for frame in frames]
        known = self.room.labels.find_teachers(wanted, self.fact(Step.LABEL, "teacher_sha256"))
        return {case_id: label.detections for case_id, label in known.items()}


def select(work: RoundWork) -> StepResult:
    """Cases that show what is new, by expected gain, diversity and class balance; and others that keep the past in
    mind. Nothing that was taken beside a golden frame which judges or fits. Raises Malformed where nothing is new."""
    plan, room = work.plan, work.room
    apart = kept_apart(work.golden())
    wanted = filter_of(room.cases, plan.condition)
    if plan.condition is None:
        before = [each for each in room.rounds.rounds(plan.site) if each.state is RoundState.DONE]
        wanted = CaseFilter(since=before[0].began_at) if before else wanted
    new = _selected(work, Selection(plan.new, plan.seed, wanted), apart)[: plan.new]
    taken = {case.id for case in new}
    if not new:
        what = "new case" if plan.condition is None else f"case that shows {plan.condition}"
        raise Malformed(f"round for site {plan.site}: expected at least one {what}, there is none")
    # As many more as cannot be taken: those that show what is new, or were taken already.
    out_of_reach = len(new) if plan.condition is None else max(room.cases.count(wanted), len(new))
    past = Selection(plan.replay + out_of_reach, plan.seed, CaseFilter(), with_audits=False)
    replay = [
        case
        for case in _selected(work, past, apart)
        if case.id not in taken and (plan.condition is None or shown_condition(case) != plan.condition)
    ][: plan.replay]
    chosen = {"new": [case.id for case in new], "replay": [case.id for case in replay]}
    write_atomically(work.home / SELECTED, json.dumps(chosen).encode())
    room.cases.protect([*chosen["new"], *chosen["replay"]], f"round:{work.id}")
    said = f"{len(new)} cases to learn from, {len(replay)} that keep the past in mind"
    return StepResult(said, {"new": len(new), "replay": len(replay), "blocks_kept_apart": len(apart)})


def label(work: RoundWork) -> StepResult:
    """The teacher looks at what it has not seen yet."""
    room = work.room
    chosen = [case for case in map(room.cases.find, _all_chosen(work)) if case is not None]
    with room.teacher.detector() as detector:
        teacher = Teacher(detector, room.cases, room.labels, views=room.teacher.views)
        for start in range(0, len(chosen), _AT_ONCE):
            report = teacher.label_all(chosen[start : start + _AT_ONCE])
            work.note(f"{min(start + _AT_ONCE, len(chosen))} of {len(chosen)} cases labelled")
        ref = detector.ref
    verdicts = {str(verdict): count for verdict, count in sorted(report.verdicts.items())}
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    said = f"teacher looked at {report.looked}, {report.reused + report.cached} were answered before: {told}"
    facts = {
        "looked": report.looked, "reused": report.reused, "cached": report.cached, "verdicts": verdicts,
        "damaged": len(report.damaged), "teacher": str(ref), "teacher_sha256": ref.sha256,
    }  # fmt: skip
    return StepResult(said, facts)


def snapshot(work: RoundWork) -> StepResult:
    """What is believed of the cases, and what people said of golden frames to learn from, as one frozen data set.
    Raises Malformed where nothing is left to learn."""
    labels = work.students.student.manifest.label_set
    images = work.room.altered(list(_images(work, labels)))
    made = Snapshot.write(work.home / "data", images, labels, work.plan.fit_share)
    work.room.cases.protect([image.id for image in made.images], f"snapshot:{made.digest[:16]}")
    counts = {str(origin): len([i for i in made.images if i.origin is origin]) for origin in Origin}
    boxes = sum(len(image.boxes_xyxy) for image in made.images)
    kept = len(made.of(Split.VAL))
    if not kept and not any(each.part is GoldenPart.FIT for each in work.golden()):
        raise Malformed(
            f"round: none of {len(made)} images falls to those that scores and gate are fitted on (they were "
            "taken in too few different ten minutes); select more"
        )
    said = (
        f"{len(made)} images with {boxes} boxes ({counts['new']} new, {counts['replay']} replayed, "
        f"{counts['golden']} golden), {kept} of them kept from training"
    )
    folder = str(made.folder.relative_to(work.home))
    return StepResult(said, {"folder": folder, "digest": made.digest, "boxes": boxes, "fit": kept, **counts})


def _images(work: RoundWork, labels: LabelSet) -> Iterator[LabelledImage]:
    room, chosen = work.room, json.loads((work.home / SELECTED).read_bytes())
    sha256 = work.fact(Step.LABEL, "teacher_sha256")
    for origin, name in ((Origin.NEW, "new"), (Origin.REPLAY, "replay")):
        targets = room.labels.all_targets(chosen[name], sha256)
        for case_id in chosen[name]:
            case = room.cases.find(case_id)
            if case is not None and case_id in targets:
                yield from _image(room, case, targets[case_id], origin, labels)
    for golden in work.golden():
        if golden.part is GoldenPart.LEARN:
            yield from _image(room, golden.case, golden.label.targets(), Origin.GOLDEN, labels)


def _image(
    room: RoundRoom, case: StoredCase, targets: Targets, origin: Origin, labels: LabelSet
) -> Iterator[LabelledImage]:
    """The image, unless its picture is damaged or gone; of what is in it only what the student knows."""
    try:
        jpeg = room.cases.load_image(case)
    except (StoreCorrupt, NotFound):
        return
    kept = np.isin(targets.class_ids, labels.ids)
    yield LabelledImage(
        id=case.id, jpeg=jpeg, boxes_xyxy=targets.boxes_xyxy[kept], class_ids=targets.class_ids[kept],
        weights=targets.weights[kept], ignore_xyxy=targets.ignore_xyxy, origin=origin,
        camera=case.frame_id.camera, teacher=targets.teacher, condition=shown_condition(case),
        captured_at=case.captured_at,
    )  # fmt: skip


def _selected(work: RoundWork, selection: Selection, apart: set[str]) -> list[StoredCase]:
    """Of the cameras of the site; where it is one of several, a share of each camera."""
    room, site = work.room, work.plan.site
    sites = room.golden.sites
    if not sites.patterns:
        found = room.cases.select(selection)
    else:
        cameras = [each.camera for each in room.cases.count_by_camera() if sites.site_of(each.camera) == site]
        share = -(-selection.count // max(len(cameras), 1))
        found = [
            case
            for camera in cameras
            for case in room.cases.select(
                replace(selection, count=share, wanted=replace(selection.wanted, camera=camera))
            )
        ]
    return [case for case in found if block_of(case) not in apart]


def _all_chosen(work: RoundWork) -> list[str]:
    chosen = json.loads((work.home / SELECTED).read_bytes())
    return [*chosen["new"], *chosen["replay"]]


def _known(room: RoundRoom, golden: Sequence[GoldenCase]) -> Iterator[KnownFrame]:
    for each in golden:
        try:
            jpeg = room.cases.load_image(each.case)
        except (StoreCorrupt, NotFound):
            continue
        yield KnownFrame(each.group, jpeg, truth_of_golden(each), each.case)
