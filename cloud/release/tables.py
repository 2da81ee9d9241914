"""The tables of the model registry."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from cloud.table import SHA256_HEX, Table


class ModelRow(Table):
    """One model, for ever the same; `id` is the digest of its manifest."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("name", "version"), Index(None, "family", "registered_at"))

    id: Mapped[str] = mapped_column(String(SHA256_HEX), primary_key=True)
    family: Mapped[str]
    name: Mapped[str]
    version: Mapped[str]
    path: Mapped[str]
    """below the folder (or bucket) of models"""
    file_sha256: Mapped[str] = mapped_column(String(SHA256_HEX))
    file_bytes: Mapped[int] = mapped_column(BigInteger)
    parent_id: Mapped[str | None] = mapped_column(String(SHA256_HEX), index=True)
    """the model it was made from, registered here or not"""
    dataset: Mapped[str]
    """digest or name of what it was trained on"""
    verdict: Mapped[str | None]
    """JSON: what the promotion gates said, once and for all"""
    made_at: Mapped[datetime]
    registered_at: Mapped[datetime]


class AliasRow(Table):
    """Which model of a family is champion, candidate or previous now."""

    __tablename__ = "model_aliases"

    family: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    since: Mapped[datetime]


class AliasChangeRow(Table):
    """Every change of an alias, the oldest first."""

    __tablename__ = "model_alias_changes"
    __table_args__ = (Index(None, "family", "id"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    family: Mapped[str]
    alias: Mapped[str]
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id"), index=True)
    """None: the alias names nothing from then on"""
    at: Mapped[datetime]
    why: Mapped[str]
