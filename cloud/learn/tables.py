"""The tables of rounds of learning: what was wanted, how far each has come, and what came of it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import SHA256_HEX, Table


class RoundRow(Table):
    """One round, from the choice of its cases to a registered model or a refusal."""

    __tablename__ = "rounds"
    __table_args__ = (Index(None, "site", "began_at"), Index(None, "state"))

    id: Mapped[str] = mapped_column(primary_key=True)
    site: Mapped[str]
    condition: Mapped[str | None]
    """what the round was to teach, None: nothing in particular"""
    why: Mapped[str]
    plan: Mapped[str]
    """JSON: everything that was decided before it began"""
    state: Mapped[str]
    """running, done or failed"""
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    champion_id: Mapped[str | None] = mapped_column(String(SHA256_HEX))
    """digest of the model that it started from and was judged against"""
    candidate_id: Mapped[str | None] = mapped_column(String(SHA256_HEX))
    """digest of the model that it made"""
    verdict: Mapped[str | None]
    """promote, refuse or shadow_only"""
    reasons: Mapped[str | None]
    """JSON: list of sentences; of a failed round, why it failed"""


class RoundStepRow(Table):
    """One step of a round that has begun."""

    __tablename__ = "round_steps"

    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(Integer)
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    """None: it is at work, or was killed in it"""
    spent_ms: Mapped[int | None] = mapped_column(BigInteger)
    said: Mapped[str | None]
    """one sentence for people"""
    facts: Mapped[str | None]
    """JSON: figures, and the files that later steps read"""
