"""The tables of the case store."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import SHA256_HEX, Table


class CaseRow(Table):
    """One frame, with the picture that came first; `id` is the digest of that picture's bytes."""

    __tablename__ = "cases"
    __table_args__ = (
        Index(None, "camera", "boot_id", "sequence"),
        Index(None, "captured_at"),
        Index(None, "received_at"),
        Index(None, "camera", "captured_at"),
        Index(None, "condition"),
    )

    id: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    image_path: Mapped[str]
    """below the folder (or bucket) of images"""
    image_bytes: Mapped[int] = mapped_column(BigInteger)
    width: Mapped[int] = mapped_column(Integer)
    height: Mapped[int] = mapped_column(Integer)
    """px, upright"""
    camera: Mapped[str]
    boot_id: Mapped[str]
    sequence: Mapped[int] = mapped_column(BigInteger)
    captured_at: Mapped[datetime]
    received_at: Mapped[datetime]
    """when this store took it, on its own clock"""
    send_probability: Mapped[float]
    is_audit: Mapped[bool]
    picture_hash: Mapped[int | None] = mapped_column(BigInteger)
    """as `cloud.cases.picture_facts.as_signed`; this and the next three are None in stores of an earlier version"""
    luminance: Mapped[float | None]
    contrast: Mapped[float | None]
    condition: Mapped[str | None]
    measured_gain: Mapped[float | None]
    """1 minus the agreement of the lowest and the highest tier; None where fewer than two have looked"""
    near_frames: Mapped[int] = mapped_column(Integer, server_default="0")
    """how many frames more were sent that show the same"""


class PictureRow(Table):
    """Every picture that was sent of a frame, by its digest: the first, and others of the same frame."""

    __tablename__ = "pictures"

    id: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), index=True)


class ReasonRow(Table):
    """Why a frame was sent, in the order told."""

    __tablename__ = "case_reasons"

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True)
    reason: Mapped[str] = mapped_column(primary_key=True, index=True)
    position: Mapped[int] = mapped_column(Integer)


class LabelSetRow(Table):
    """All that a model can see; many answers share one. `id` is the digest of `names`."""

    __tablename__ = "label_sets"

    id: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    names: Mapped[str]
    """JSON: [[id, name], ...] in the order of the model's channels"""


class AnswerRow(Table):
    """What one tier alone saw in a frame."""

    __tablename__ = "case_answers"

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True)
    tier: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    model_name: Mapped[str]
    model_version: Mapped[str]
    model_sha256: Mapped[str] = mapped_column(String(SHA256_HEX), index=True)
    label_set_id: Mapped[str] = mapped_column(ForeignKey("label_sets.id"))
    width: Mapped[int] = mapped_column(Integer)
    height: Mapped[int] = mapped_column(Integer)
    """px of the frame that the tier looked at: its boxes are in these"""
    received_at: Mapped[datetime]


class BoxRow(Table):
    """One box of an answer, best first."""

    __tablename__ = "case_boxes"
    __table_args__ = (Index(None, "class_id"),)

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True)
    tier: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    class_id: Mapped[int] = mapped_column(Integer)
    class_name: Mapped[str]
    score: Mapped[float]
    x1: Mapped[float]
    y1: Mapped[float]
    x2: Mapped[float]
    y2: Mapped[float]


class NearFrameRow(Table):
    """A picture that was sent and not kept, as its case shows the same; `id` is the digest of its bytes."""

    __tablename__ = "near_frames"
    __table_args__ = (Index(None, "camera", "boot_id", "sequence"),)

    id: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), index=True)
    camera: Mapped[str]
    boot_id: Mapped[str]
    sequence: Mapped[int] = mapped_column(BigInteger)
    captured_at: Mapped[datetime]


class TagRow(Table):
    """A word that somebody put on a case: a condition nobody can measure, the data set it came with."""

    __tablename__ = "case_tags"

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(primary_key=True, index=True)


class ProtectionRow(Table):
    """Why a case must not be deleted. The database itself refuses it, too."""

    __tablename__ = "case_protections"

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    why: Mapped[str] = mapped_column(primary_key=True, index=True)
    since: Mapped[datetime]


class DoomedPictureRow(Table):
    """A picture whose case was deleted, until its file is, too."""

    __tablename__ = "doomed_pictures"

    path: Mapped[str] = mapped_column(primary_key=True)
