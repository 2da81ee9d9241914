"""The tables of labels: what teachers said, and what people said. A label is read and replaced as a whole, so its
boxes are one JSON text."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import SHA256_HEX, Table


class TeacherLabelRow(Table):
    """What one version of a teacher says about a case, and how far it is believed."""

    __tablename__ = "teacher_labels"
    __table_args__ = (Index(None, "verdict"), Index(None, "teacher_sha256"))

    case_id: Mapped[str] = mapped_column(
        String(SHA256_HEX), ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True
    )
    teacher_sha256: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    teacher_name: Mapped[str]
    teacher_version: Mapped[str]
    views: Mapped[str]
    """how it looked: `frame`, or `frame+hflip`, or names of several models"""
    is_reused: Mapped[bool]
    """the cloud had given this answer already, in time"""
    labelled_at: Mapped[datetime]
    width: Mapped[int] = mapped_column(Integer)
    height: Mapped[int] = mapped_column(Integer)
    """px of the picture: boxes are in these"""
    boxes: Mapped[str]
    """JSON: [[x1, y1, x2, y2, score, class id, class name, weight], ...], best first"""
    ignored: Mapped[str]
    """JSON: [[x1, y1, x2, y2], ...]: neither object nor background"""
    agreement: Mapped[float]
    witnesses: Mapped[int] = mapped_column(Integer)
    verdict: Mapped[str]
    doubts: Mapped[str]
    """words of `Doubt`, with spaces between, the weightiest first"""
    judged_by: Mapped[str]
    """JSON: the thresholds"""


class PersonLabelRow(Table):
    """What a person said about a case. Nothing is overwritten: the newest counts."""

    __tablename__ = "person_labels"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    case_id: Mapped[str] = mapped_column(
        String(SHA256_HEX), ForeignKey("cases.id", ondelete="CASCADE"), index=True
    )
    said_by: Mapped[str]
    said_at: Mapped[datetime]
    came_by: Mapped[str]
    """the way it came: console, coco, label_studio, or another word"""
    is_usable: Mapped[bool]
    """False: nobody can say what is in that picture"""
    width: Mapped[int] = mapped_column(Integer)
    height: Mapped[int] = mapped_column(Integer)
    """px of the picture: boxes are in these"""
    boxes: Mapped[str]
    """JSON: [{box_xyxy, label, ignore}, ...]"""
    replaces_teacher_sha256: Mapped[str | None] = mapped_column(String(SHA256_HEX))
    """the teacher whose label counted until then"""
    replaces_id: Mapped[int | None] = mapped_column(Integer)
    """the person's label that counted until then"""
