"""Reads from the store what `cloud.cases.selection` chooses by."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from cloud.cases.filtering import conditions_of
from cloud.cases.picture_facts import from_signed
from cloud.cases.selection import Pool, Selection, choose
from cloud.cases.tables import AnswerRow, BoxRow, CaseRow, ReasonRow
from fovea.core.detections import TOLD_FROM

_AT_ONCE = 500


def selected_ids(session: Session, selection: Selection) -> list[str]:
    """The ids of the cases that are chosen, the most wanted first, and then those of all audits, by id."""
    rows = _sample(session, selection, is_audit=None if not selection.with_audits else False)
    audits = _sample(session, selection, is_audit=True) if selection.with_audits else []
    known = rows + audits
    if not known:
        return []
    is_given = np.arange(len(known)) >= len(rows)
    chosen = choose(_pool(session, known), selection, is_given)
    return [known[place].id for place in chosen] + _all_audits(session, selection)


def _sample(session: Session, selection: Selection, is_audit: bool | None) -> list[CaseRow]:
    """Those that are meant, or a random part of them: ids are digests, so any stretch of them is one."""
    conditions = conditions_of(selection.filter)
    if is_audit is not None:
        conditions.append(CaseRow.is_audit.is_(is_audit))
    start = f"{random.Random(selection.seed).getrandbits(256):064x}"
    question = select(CaseRow).where(*conditions).order_by(CaseRow.id)
    rows = list(session.scalars(question.where(CaseRow.id >= start).limit(selection.look_at)))
    left = selection.look_at - len(rows)
    if left > 0:
        rows += session.scalars(question.where(CaseRow.id < start).limit(left))
    return sorted(rows, key=lambda row: row.id)


def _all_audits(session: Session, selection: Selection) -> list[str]:
    if not selection.with_audits:
        return []
    conditions = [*conditions_of(selection.filter), CaseRow.is_audit.is_(True)]
    return list(session.scalars(select(CaseRow.id).where(*conditions).order_by(CaseRow.id)))


def _pool(session: Session, rows: Sequence[CaseRow]) -> Pool:
    ids = [row.id for row in rows]
    reasons = _reasons(session, ids)
    classes = _classes(session, ids)
    channels = {class_id: place for place, class_id in enumerate(sorted(set().union(*classes.values())))}
    has_class = np.zeros((len(rows), len(channels)), bool)
    for place, case_id in enumerate(ids):
        has_class[place, [channels[class_id] for class_id in classes[case_id]]] = True
    return Pool(
        gains=np.array([np.nan if row.measured_gain is None else row.measured_gain for row in rows]),
        reasons=[reasons[case_id] for case_id in ids],
        send_probabilities=np.array([row.send_probability for row in rows]),
        hashes=np.array([from_signed(row.picture_hash or 0) for row in rows], np.uint64),
        cameras=_numbers([row.camera for row in rows]),
        conditions=_numbers([row.condition or "" for row in rows]),
        hours=np.array([row.captured_at.hour + row.captured_at.minute / 60 for row in rows]),
        has_class=has_class,
    )


def _reasons(session: Session, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for start in range(0, len(ids), _AT_ONCE):
        question = select(ReasonRow).where(ReasonRow.case_id.in_(ids[start : start + _AT_ONCE]))
        for row in session.scalars(question.order_by(ReasonRow.case_id, ReasonRow.position)):
            found[row.case_id].append(row.reason)
    return found


def _classes(session: Session, ids: Sequence[str]) -> dict[str, set[int]]:
    """What the highest tier told of each case."""
    found: dict[str, set[int]] = {case_id: set() for case_id in ids}
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        highest = (
            select(AnswerRow.case_id, func.max(AnswerRow.tier).label("tier"))
            .where(AnswerRow.case_id.in_(part))
            .group_by(AnswerRow.case_id)
            .subquery()
        )
        question = (
            select(BoxRow.case_id, BoxRow.class_id)
            .join(highest, (BoxRow.case_id == highest.c.case_id) & (BoxRow.tier == highest.c.tier))
            .where(BoxRow.score >= TOLD_FROM)
            .distinct()
        )
        for case_id, class_id in session.execute(question):
            found[case_id].add(class_id)
    return found


def _numbers(words: Sequence[str]) -> np.ndarray:
    places = {word: place for place, word in enumerate(sorted(set(words)))}
    return np.array([places[word] for word in words], np.int64)
