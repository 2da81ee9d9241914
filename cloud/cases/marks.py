"""What others put on cases: protections, so that they stay, and tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from cloud.cases.filtering import is_kind
from cloud.cases.tables import CaseRow, ProtectionRow, TagRow
from fovea.core.errors import Malformed, NotFound

_AT_ONCE = 500
"""Databases take so many values in one question, and not many times more."""
_LONGEST_WORD = 100


def protect(session: Session, case_ids: Sequence[str], why: str, since: datetime) -> None:
    """Notes `why` on each. Raises NotFound, naming the first that is not there, and Malformed for a bad word."""
    _check_word("protection", why)
    for ids in _portions(case_ids):
        _check_there(session, ids)
        noted = set(
            session.scalars(
                select(ProtectionRow.case_id).where(ProtectionRow.case_id.in_(ids), ProtectionRow.why == why)
            )
        )
        session.add_all(
            ProtectionRow(case_id=case_id, why=why, since=since)
            for case_id in dict.fromkeys(ids)
            if case_id not in noted
        )


def unprotect(session: Session, case_ids: Sequence[str] | None, why: str) -> None:
    """Takes `why` away from these, or from all (None)."""
    if case_ids is None:
        session.execute(delete(ProtectionRow).where(ProtectionRow.why == why))
        return
    for ids in _portions(case_ids):
        session.execute(delete(ProtectionRow).where(ProtectionRow.case_id.in_(ids), ProtectionRow.why == why))


def protected(session: Session, why: str) -> list[str]:
    """The cases that are protected for this reason or a kind of it, by id."""
    return list(
        session.scalars(
            select(ProtectionRow.case_id).where(is_kind(why)).distinct().order_by(ProtectionRow.case_id)
        )
    )


def reasons_to_keep(session: Session, case_id: str) -> tuple[str, ...]:
    """Why a case must not be deleted; nothing when it may."""
    return tuple(
        session.scalars(
            select(ProtectionRow.why).where(ProtectionRow.case_id == case_id).order_by(ProtectionRow.why)
        )
    )


def tag(session: Session, case_ids: Sequence[str], words: Sequence[str]) -> None:
    """Puts each word on each case, once. Raises NotFound and Malformed as `protect`."""
    for word in words:
        _check_word("tag", word)
    for ids in _portions(case_ids):
        _check_there(session, ids)
        for word in dict.fromkeys(words):
            tagged = set(
                session.scalars(select(TagRow.case_id).where(TagRow.case_id.in_(ids), TagRow.tag == word))
            )
            session.add_all(
                TagRow(case_id=case_id, tag=word) for case_id in dict.fromkeys(ids) if case_id not in tagged
            )


def _portions(case_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(case_ids), _AT_ONCE):
        yield case_ids[start : start + _AT_ONCE]


def _check_there(session: Session, ids: Sequence[str]) -> None:
    missing = set(ids) - set(session.scalars(select(CaseRow.id).where(CaseRow.id.in_(ids))))
    if missing:
        raise NotFound(f"case {min(missing)[:24]!r}: there is no such case")


def _check_word(what: str, word: str) -> None:
    if not word or len(word) > _LONGEST_WORD or not word.isprintable() or word != word.strip():
        raise Malformed(
            f"{what}: expected 1 to {_LONGEST_WORD} printable characters without space around, got {word!r:.120}"
        )
