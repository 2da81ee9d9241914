"""From a CaseFilter to the conditions of a question, and from one page of cases to the next."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, exists, not_, or_

from cloud.cases.stored_case import CaseFilter, Order, StoredCase
from cloud.cases.tables import AnswerRow, CaseRow, ProtectionRow, ReasonRow, TagRow


def conditions_of(wanted: CaseFilter) -> list[ColumnElement[bool]]:
    """All of them have to hold."""
    conditions: list[ColumnElement[bool]] = []
    if wanted.camera is not None:
        conditions.append(CaseRow.camera == wanted.camera)
    if wanted.since is not None:
        conditions.append(CaseRow.captured_at >= wanted.since)
    if wanted.is_audit is not None:
        conditions.append(CaseRow.is_audit.is_(wanted.is_audit))
    if wanted.condition is not None:
        conditions.append(CaseRow.condition == wanted.condition)
    if wanted.reason is not None:
        conditions.append(exists().where(ReasonRow.case_id == CaseRow.id, ReasonRow.reason == wanted.reason))
    if wanted.tier is not None:
        conditions.append(exists().where(AnswerRow.case_id == CaseRow.id, AnswerRow.tier == int(wanted.tier)))
    if wanted.tag is not None:
        conditions.append(exists().where(TagRow.case_id == CaseRow.id, TagRow.tag == wanted.tag))
    if wanted.unprotected_as is not None:
        conditions.append(
            not_(exists().where(ProtectionRow.case_id == CaseRow.id, is_kind(wanted.unprotected_as)))
        )
    return conditions


def is_kind(why: str) -> ColumnElement[bool]:
    """A protection for this reason, or a kind of it: `golden` or `golden:...`."""
    return or_(ProtectionRow.why == why, ProtectionRow.why.startswith(f"{why}:", autoescape=True))


def beyond(last: StoredCase, order: Order) -> ColumnElement[bool]:
    """What comes after `last`, also when the cases before it have changed in number meanwhile."""
    at, case_id = last.captured_at, last.id
    if order is Order.NEWEST:
        return or_(CaseRow.captured_at < at, and_(CaseRow.captured_at == at, CaseRow.id < case_id))
    return or_(CaseRow.captured_at > at, and_(CaseRow.captured_at == at, CaseRow.id > case_id))
