"""What all tables of the cloud share, on SQLite and PostgreSQL; `cloud.migrations` makes and changes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from sqlalchemy import DateTime, Dialect, Double, MetaData, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase

SHA256_HEX = 64

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name of its own, so that a later migration can change it."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Stored without a zone, in UTC, which SQLite sorts as text; handed out with the zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Table(DeclarativeBase):
    """What all tables share."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {datetime: UtcDateTime, float: Double, str: Text}
