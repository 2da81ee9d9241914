"""Starts a golden set: frames are picked, kept safe, and filled in by the teacher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cloud.cases.stored_case import CameraCount, CaseFilter, Order, StoredCase
from cloud.golden.golden_set import GoldenSet
from cloud.golden.picking import Picker, pick_diverse

MOST_OF_A_CAMERA = 5000
"""Only the newest cases of a camera are looked through."""


class Cases(Protocol):
    """What is needed of the case store."""

    def count_by_camera(self) -> Sequence[CameraCount]: ...

    def walk(
        self, wanted: CaseFilter = ..., order: Order = ..., limit: int | None = ...
    ) -> Iterator[StoredCase]: ...

    def protect(self, case_ids: Sequence[str], why: str) -> object: ...


def start(
    cases: Cases, golden: GoldenSet, site: str, *, frames: int | None = None, picker: Picker = pick_diverse
) -> list[StoredCase]:
    """Picks frames of a site until it has `frames` (None: as configured), and gives those that are new, for a teacher
    to fill in. Frames that nobody can tell anything of are replaced. Raises NotFound for no such site."""
    golden.sites.checked(site)
    state = golden.golden_state(site)
    missing = (frames or golden.settings.frames) - state.wanted - state.done
    if missing <= 0:
        return []
    taken = {frame.case_id for frame in golden.frames()}
    free = [case for case in cases_of(cases, golden, site) if case.id not in taken]
    picks = picker(free, missing)
    cases.protect([pick.case_id for pick in picks], f"golden:{site}")
    golden.want(site, picks)
    by_id = {case.id: case for case in free}
    return [by_id[pick.case_id] for pick in picks]


def cases_of(cases: Cases, golden: GoldenSet, site: str) -> Iterator[StoredCase]:
    """The newest cases of each camera of a site."""
    for count in cases.count_by_camera():
        if golden.sites.site_of(count.camera) == site:
            yield from cases.walk(CaseFilter(camera=count.camera), Order.NEWEST, MOST_OF_A_CAMERA)
