"""The table of golden frames: which cases people are asked to label. What they say is in `person_labels`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import SHA256_HEX, Table


class GoldenFrameRow(Table):
    """One frame of a site's golden set; it is done when a person has labelled it."""

    __tablename__ = "golden_frames"

    case_id: Mapped[str] = mapped_column(
        String(SHA256_HEX), ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True
    )
    site: Mapped[str] = mapped_column(index=True)
    wanted_at: Mapped[datetime]
    stratum: Mapped[str]
    """what it stands for among the others: camera, time of day, how full it is"""
