"""The street's side of the second act: it draws frames, labels them as a person would, and holds the test clips."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cloud.cases.condition import Condition
from cloud.cases.store import CaseStore, StoreAddress
from cloud.cases.stored_case import CaseFilter, StoredCase
from cloud.golden.golden_set import GoldenSet
from cloud.golden.picking import Pick
from cloud.golden.start import start
from cloud.labels.review import Reviews
from cloud.labels.store import LabelStore
from cloud.learn.distil import next_version
from cloud.learn.golden_parts import golden_cases
from cloud.learn.looked_at import KnownFrame, truth_of_golden
from cloud.learn.shipping import with_fitted_gate
from cloud.learn.shown import CONDITION_TAG
from fovea.bench.loop_camera import SentCounts, Tiers, sent_cases
from fovea.bench.loop_street import CAMERA, CameraFrame, Role, Street, StreetClips
from fovea.bench.loop_test import TestClips
from fovea.bench.street_person import label_by_truth
from fovea.cli.demo_loop_plan import DAY, FIRST_BUNDLE, NIGHT, LoopPlan
from fovea.core.errors import Malformed
from fovea.core.routing import Tier
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import Bundle
from fovea.zoo.catalogue import path_of

SITE: Final = "default"
_GOLDEN_PER_CLIP: Final = 2
_TEST_PER_CLIP: Final = 2


class StreetPerson:
    """Works on the cloud's stores from outside, as a person at the labelling desk does."""

    def __init__(self, plan: LoopPlan) -> None:
        """Makes the stores where they are not there yet."""
        self._plan = plan
        address = StoreAddress.in_folder(plan.folder.absolute() / "cases")
        self.cases = CaseStore.open(address)
        self.labels = LabelStore.open(address.database)
        self.golden = GoldenSet(self.labels)
        self._street = Street(plan.folder / "frames", (DAY, NIGHT), plan.workers)

    def close(self) -> None:
        self.labels.close()
        self.cases.close()

    def test_clips(self) -> TestClips:
        """Held-out clips of both conditions: nothing but the measuring ever reads them."""
        return TestClips({name: [f.evaluated() for f in self.test_frames(name)] for name in (DAY, NIGHT)})

    def test_frames(self, condition: str) -> list[CameraFrame]:
        wanted = StreetClips(Role.TEST, condition, self._plan.test_clips, _TEST_PER_CLIP)
        return list(self._street.frames(wanted))

    def draw_golden(self, condition: str) -> None:
        """Draws what `label_golden` will need, ahead of its time."""
        for _ in self._street.frames(self._walk(condition)):
            pass

    def label_golden(self, condition: str, agent: Bundle) -> int:
        """A camera on its way past sends audits of a condition, and a person labels them; how many. `agent` is what
        cameras run."""
        wanted = self._walk(condition)
        bundles = {Tier.AGENT: agent, Tier.EDGE: Bundle.open(path_of("street-edge"))}
        with Tiers(bundles) as tiers:
            kept = [
                self.cases.add(case).case_id
                for case in sent_cases(tiers, self._street.frames(wanted), SentCounts())
            ]
        self.cases.tag(kept, [f"{CONDITION_TAG}{condition}"])
        before = len(self.golden.frames(SITE))
        start(self.cases, self.golden, SITE, frames=before + len(kept), picker=_of_the_walk)
        reviews = Reviews(self.cases, self.labels)
        missing = [each.case_id for each in self.golden.frames(SITE) if each.label is None]
        return len(label_by_truth(reviews, missing, self._street.truth_of).taken)

    def first_champion(self) -> Bundle:
        """The day-only INT8 student with a gate fitted on what people labelled by day. It is written where the
        configurations expect it. Raises Malformed when the labelled frames are too few to fit one."""
        bundle = Bundle.open(path_of("street-student-day-int8"))
        frames = [
            KnownFrame(each.group, self.cases.load_image(each.case), truth_of_golden(each), each.case)
            for each in golden_cases(self.golden.frames(SITE), self.cases)
        ]
        made = with_fitted_gate(bundle, bundle, frames, {}, bundle.manifest.label_set, asked_before=1.0)
        if made.facts["form"] != "learned":
            raise Malformed(f"the day camera's gate: {made.facts['why']}; label more clips")
        first = made.bundle.with_parts({}, version=next_version(bundle.manifest.version))
        write_atomically(self._plan.folder / FIRST_BUNDLE, first.to_bytes())
        return first

    def name_conditions(self, night_at: datetime) -> dict[str, int]:
        """Says of every case of the live cameras under which condition it was taken: the site's own word. Gives how
        many there are of each."""
        counts: dict[str, int] = {}
        for condition, ids in self._by_condition(night_at).items():
            self.cases.tag(ids, [f"{CONDITION_TAG}{condition}"])
            counts[condition] = len(ids)
        return counts

    def count(self) -> int:
        """All cases that are kept now."""
        return self.cases.count(CaseFilter())

    def _walk(self, condition: str) -> StreetClips:
        return StreetClips(Role.AUDIT, condition, self._plan.golden_clips, _GOLDEN_PER_CLIP)

    def _by_condition(self, night_at: datetime) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {DAY: [], NIGHT: []}
        for camera in self._plan.cameras:
            for case in self.cases.walk(CaseFilter(camera=camera)):
                # What was on its way while night fell is counted by the light in it.
                name = NIGHT if case.captured_at >= night_at or case.condition == Condition.NIGHT else DAY
                found[name].append(case.id)
        return found


def _of_the_walk(cases: Sequence[StoredCase], count: int) -> list[Pick]:
    """The street knows what is in these, and not what live cameras see."""
    return [Pick(case.id, "audit") for case in cases if case.frame_id.camera == CAMERA][:count]
