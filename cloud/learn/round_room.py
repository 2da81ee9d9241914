"""All that a round works with, open: stores, registry, teacher, executor, and its own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cloud.cases.store import CaseStore
from cloud.golden.golden_set import GoldenSet
from cloud.labels.store import LabelStore
from cloud.learn.dataset import LabelledImage
from cloud.learn.executor import Executor
from cloud.learn.promotion import PromotionSettings
from cloud.learn.rounds import RoundStore
from cloud.release.registered import Alias, RegisteredModel
from cloud.release.registry import Registry
from fovea.core.errors import Malformed, NotFound
from fovea.core.ports import Detector
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import Precision

_MOST_ANCESTORS = 16


class Note(Protocol):
    """Is told what a step is doing, in a few words."""

    def __call__(self, said: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class TeacherSource:
    """Opens the teacher when it is needed; `bundle` is what a student is distilled from, where that is one model.
    `views` says how it looks."""

    opened: Callable[[], Detector]
    bundle: Path | None
    views: str = "frame"

    @contextmanager
    def detector(self) -> Iterator[Detector]:
        detector = self.opened()
        try:
            yield detector
        finally:
            detector.close()


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A family of camera models in the registry; `student` and `champion` are the FP32 and the INT8 bundle with which
    it begins where the registry knows none."""

    name: str
    student: Path
    champion: Path


@dataclass(frozen=True, slots=True, eq=False)
class Students:
    """The last accepted student: what runs (INT8), and what is trained on (its FP32 parent)."""

    champion: Bundle
    student: Bundle


Altered = Callable[[Sequence[LabelledImage]], Sequence[LabelledImage]]
"""Changes what is learned from; for rounds that are to go wrong on purpose."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundRoom:
    """`folder` holds a folder for each round. `wait` passes so many seconds. `executor_of` gives the executor whose
    files lie in a folder."""

    cases: CaseStore
    labels: LabelStore
    golden: GoldenSet
    registry: Registry
    rounds: RoundStore
    teacher: TeacherSource
    family: Family
    folder: Path
    executor_of: Callable[[Path], Executor]
    wait: Callable[[float], None]
    settings: PromotionSettings = field(default_factory=PromotionSettings)
    tracking: Path | None = None
    altered: Altered = lambda images: images

    def students(self, champion: str | None = None) -> Students:
        """The champion (or the model of this digest) and the FP32 student behind it, as the registry has them; those
        that the family begins with are registered and named first. Raises Malformed where there is none to be trained
        on, NotFound for no such model."""
        named = self.registry.aliases(self.family.name).get(Alias.CHAMPION)
        if named is None:
            return self._begun()
        found = named if champion is None else self.registry.get(champion)
        return Students(self.registry.load(found), self._student_of(found))

    def _student_of(self, champion: RegisteredModel) -> Bundle:
        """The nearest FP32 ancestor: a champion that was only calibrated anew has an INT8 parent."""
        model = champion
        for _ in range(_MOST_ANCESTORS):
            if model.parent_sha256 is None:
                break
            try:
                model = self.registry.get(model.parent_sha256)
            except NotFound:
                break
            bundle = self.registry.load(model)
            if bundle.manifest.precision is Precision.FP32:
                return bundle
        if champion.ref == Bundle.open(self.family.champion).ref:
            return Bundle.open(self.family.student)
        raise Malformed(
            f"{champion.ref}: no FP32 student behind it is registered, so there is none to be trained on"
        )

    def _begun(self) -> Students:
        first = Students(Bundle.open(self.family.champion), Bundle.open(self.family.student))
        ours, theirs = (bundle.manifest for bundle in (first.champion, first.student))
        if (
            theirs.precision is not Precision.FP32
            or ours.labels != theirs.labels
            or ours.input != theirs.input
        ):
            raise Malformed(
                f"family {self.family.name}: expected an FP32 student with the classes and the input of its champion "
                f"{first.champion.ref}, got {first.student.ref}"
            )
        for bundle in (first.student, first.champion):
            self.registry.register(self.family.name, bundle)
        self.registry.name(self.family.name, Alias.CHAMPION, first.champion.ref, "the family begins with it")
        return first
