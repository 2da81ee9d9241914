"""Where labels are kept: beside the cases, in the same database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, Engine, Select, and_, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from cloud.cases.tables import CaseRow
from cloud.database import opened, reading, writing
from cloud.labels.judging import JudgeSettings, Verdict
from cloud.labels.label import PersonLabel, Targets, TeacherLabel, counting
from cloud.labels.rows import person_label, person_row, teacher_label, teacher_row
from cloud.labels.tables import PersonLabelRow, TeacherLabelRow
from fovea.core.errors import NotFound

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How many cases are labelled: by people, and by the newest label of any teacher where nobody has."""

    by_people: int
    accepted: int
    dropped: int
    asked: int


class LabelStore:
    """Used from any thread and by several processes. Every method raises Unavailable and StoreCorrupt as the case
    store does."""

    def __init__(self, engine: Engine, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Over tables of this version; see `open`."""
        self._engine = engine
        self._now = now

    @classmethod
    def open(cls, database: str) -> Self:
        """The labels in the database of a case store. Raises as `cloud.database.opened` does."""
        return cls(opened(database))

    @property
    def engine(self) -> Engine:
        """For what else lies in the same database."""
        return self._engine

    def now(self) -> datetime:
        """What is written now is of this instant."""
        return self._now()

    def close(self) -> None:
        """Twice is fine."""
        self._engine.dispose()

    def keep_teacher(self, label: TeacherLabel, settings: JudgeSettings) -> None:
        """Keeps a teacher's label, in place of one of the same version. Raises NotFound for no such case."""
        with writing(self._engine) as session:
            _check_known(session, label.case_id)
            session.merge(teacher_row(label, settings))

    def find_teacher(self, case_id: str, teacher_sha256: str | None = None) -> TeacherLabel | None:
        """What this version of a teacher said; None: the one that spoke last."""
        return self.find_teachers([case_id], teacher_sha256).get(case_id)

    def find_teachers(
        self, case_ids: Iterable[str], teacher_sha256: str | None = None
    ) -> dict[str, TeacherLabel]:
        """The same for many cases."""
        found: dict[str, TeacherLabel] = {}
        with reading(self._engine) as session:
            for some in _parts(case_ids):
                question = select(TeacherLabelRow).where(TeacherLabelRow.case_id.in_(some))
                if teacher_sha256 is not None:
                    question = question.where(TeacherLabelRow.teacher_sha256 == teacher_sha256)
                # The last of a case stays.
                for row in session.scalars(question.order_by(*_age())):
                    found[row.case_id] = teacher_label(row)
        return found

    def say(self, label: PersonLabel) -> None:
        """Keeps what a person says. It counts from now on, and what counted until now is noted. Raises NotFound."""
        self.say_all([label])

    def say_all(self, labels: Iterable[PersonLabel]) -> None:
        """All of them or none."""
        with writing(self._engine) as session:
            for label in labels:
                _check_known(session, label.case_id)
                row = person_row(label)
                before = session.scalars(_newest_person(label.case_id)).first()
                if before is not None:
                    row.replaces_id = before.id
                else:
                    row.replaces_teacher_sha256 = session.scalars(
                        _newest_teacher_sha256(label.case_id)
                    ).first()
                session.add(row)
                session.flush()

    def find_person(self, case_id: str) -> PersonLabel | None:
        """What a person said last."""
        return self.find_persons([case_id]).get(case_id)

    def find_persons(self, case_ids: Iterable[str]) -> dict[str, PersonLabel]:
        """The same for many cases."""
        found: dict[str, PersonLabel] = {}
        with reading(self._engine) as session:
            for some in _parts(case_ids):
                question = select(PersonLabelRow).where(PersonLabelRow.case_id.in_(some))
                for row in session.scalars(question.order_by(PersonLabelRow.id)):
                    found[row.case_id] = person_label(row)
        return found

    def history(self, case_id: str) -> tuple[PersonLabel, ...]:
        """All that people said about a case, the oldest first."""
        question = select(PersonLabelRow).where(PersonLabelRow.case_id == case_id)
        with reading(self._engine) as session:
            return tuple(person_label(row) for row in session.scalars(question.order_by(PersonLabelRow.id)))

    def targets(self, case_id: str, teacher_sha256: str | None = None) -> Targets | None:
        """What counts of a case; see `counting`."""
        return counting(self.find_person(case_id), self.find_teacher(case_id, teacher_sha256))

    def all_targets(self, case_ids: Iterable[str], teacher_sha256: str | None = None) -> dict[str, Targets]:
        """The same for many cases; those of which nothing is to be learned are left out."""
        wanted = list(case_ids)
        people, teachers = self.find_persons(wanted), self.find_teachers(wanted, teacher_sha256)
        counted = {each: counting(people.get(each), teachers.get(each)) for each in wanted}
        return {each: targets for each, targets in counted.items() if targets is not None}

    def to_review(self, limit: int | None = None, *, done: bool = False) -> tuple[str, ...]:
        """Cases that a teacher wants people to look at: the least agreed first; `done`: those that people have looked
        at, the last first."""
        said = select(PersonLabelRow.case_id)
        question = (
            select(TeacherLabelRow.case_id)
            .where(_is_newest(), TeacherLabelRow.verdict == Verdict.ASK.value)
            .limit(limit)
        )
        if done:
            last_id = (
                select(func.max(PersonLabelRow.id))
                .where(PersonLabelRow.case_id == TeacherLabelRow.case_id)
                .scalar_subquery()
            )
            question = question.where(TeacherLabelRow.case_id.in_(said)).order_by(last_id.desc())
        else:
            question = question.where(TeacherLabelRow.case_id.not_in(said)).order_by(
                TeacherLabelRow.agreement, TeacherLabelRow.case_id
            )
        with reading(self._engine) as session:
            return tuple(session.scalars(question))

    def count(self) -> LabelCounts:
        """How many cases are labelled, and how."""
        said = select(PersonLabelRow.case_id)
        verdicts = (
            select(TeacherLabelRow.verdict, func.count())
            .where(_is_newest(), TeacherLabelRow.case_id.not_in(said))
            .group_by(TeacherLabelRow.verdict)
        )
        with reading(self._engine) as session:
            people = session.scalar(select(func.count(PersonLabelRow.case_id.distinct()))) or 0
            counts = {row[0]: int(row[1]) for row in session.execute(verdicts)}
        return LabelCounts(
            people, *(counts.get(each.value, 0) for each in (Verdict.ACCEPT, Verdict.DROP, Verdict.ASK))
        )


def _is_newest() -> ColumnElement[bool]:
    """Of the labels of a case, the one of the teacher that spoke last; of two at one instant, one of them."""
    other = aliased(TeacherLabelRow)
    is_later = or_(
        other.labelled_at > TeacherLabelRow.labelled_at,
        and_(
            other.labelled_at == TeacherLabelRow.labelled_at,
            other.teacher_sha256 > TeacherLabelRow.teacher_sha256,
        ),
    )
    return ~exists().where(other.case_id == TeacherLabelRow.case_id, is_later)


def _age() -> tuple[Any, Any]:
    return TeacherLabelRow.labelled_at, TeacherLabelRow.teacher_sha256


def _check_known(session: Session, case_id: str) -> None:
    if session.get(CaseRow, case_id) is None:
        raise NotFound(f"label of case {case_id[:12]}: there is no such case")


def _newest_person(case_id: str) -> Select[PersonLabelRow]:
    return (
        select(PersonLabelRow)
        .where(PersonLabelRow.case_id == case_id)
        .order_by(PersonLabelRow.id.desc())
        .limit(1)
    )


def _newest_teacher_sha256(case_id: str) -> Select[str]:
    return (
        select(TeacherLabelRow.teacher_sha256)
        .where(TeacherLabelRow.case_id == case_id)
        .order_by(*(column.desc() for column in _age()))
        .limit(1)
    )


def _parts(case_ids: Iterable[str]) -> Iterable[list[str]]:
    """In portions that any database takes."""
    wanted = list(case_ids)
    return [wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE)]
