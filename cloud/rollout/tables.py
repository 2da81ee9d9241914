"""The tables of rollouts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import Table


class RolloutRow(Table):
    """One candidate on its way up, as it stands."""

    __tablename__ = "rollouts"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    group: Mapped[str] = mapped_column("device_group", Text, index=True)
    family: Mapped[str]
    champion: Mapped[str]
    """JSON, as a ModelPin; so is `candidate`"""
    candidate: Mapped[str]
    stage: Mapped[str]
    status: Mapped[str]
    since: Mapped[datetime]
    """when the stage began"""
    serial: Mapped[int] = mapped_column(Integer)
    """of the desired state that carries the stage"""
    is_published: Mapped[bool] = mapped_column(Boolean)
    salt: Mapped[str]
    plan: Mapped[str]
    probation: Mapped[str]
    policy: Mapped[str | None]
    reasons: Mapped[str]
    """JSON: why it stands as it does"""


class MoveRow(Table):
    """One step of a rollout, with what it was decided from."""

    __tablename__ = "rollout_moves"
    __table_args__ = (Index(None, "rollout_id"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    rollout_id: Mapped[int] = mapped_column(ForeignKey("rollouts.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    stage: Mapped[str]
    status: Mapped[str]
    serial: Mapped[int] = mapped_column(Integer)
    by: Mapped[str] = mapped_column("moved_by", Text)
    """`evidence`, or a person"""
    reasons: Mapped[str]


class ReportRow(Table):
    """What a device said last, and what it had said when the stage began."""

    __tablename__ = "device_reports"

    group: Mapped[str] = mapped_column("device_group", Text, primary_key=True)
    device: Mapped[str] = mapped_column(Text, primary_key=True)
    state: Mapped[str]
    received_at: Mapped[datetime]
    before: Mapped[str | None] = mapped_column("state_before", Text)
