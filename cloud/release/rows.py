"""Rows of the model registry: how they are found, written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from cloud.release.registered import Alias, RegisteredModel
from cloud.release.tables import AliasChangeRow, AliasRow, ModelRow
from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed, NotFound
from fovea.runtime.manifest import canonical_json


def write_alias(
    session: Session,
    family: str,
    alias: Alias,
    ref: ModelRef | None,
    at: datetime,
    why: str,
    row: AliasRow | None,
) -> None:
    """Changes an alias (`row`: as it is now) and keeps that it was changed."""
    model_id = ref.sha256 if ref else None
    session.add(AliasChangeRow(family=family, alias=alias.value, model_id=model_id, at=at, why=why))
    if model_id is None:
        session.delete(row)
    elif row is None:
        session.add(AliasRow(family=family, alias=alias.value, model_id=model_id, since=at))
    else:
        row.model_id, row.since = model_id, at


def find_known(session: Session, family: str, ref: ModelRef) -> RegisteredModel | None:
    """The model `ref`, if it is registered. Raises Malformed where its version or family is another model's."""
    same = select(ModelRow).where(
        or_(ModelRow.id == ref.sha256, (ModelRow.name == ref.name) & (ModelRow.version == ref.version))
    )
    row = session.scalars(same).first()
    if row is None:
        return None
    if row.id != ref.sha256:
        raise Malformed(
            f"{ref.name} {ref.version} is registered already as another model, and stays as it is: expected a new "
            "version"
        )
    if row.family != family:
        raise Malformed(f"{ref}: expected the family {row.family}, in which it is registered, got {family}")
    return model_of(row)


def named_row(session: Session, wanted: str) -> ModelRow:
    """See Registry.get."""
    name, at, version = wanted.partition("@")
    family, colon, alias = wanted.partition(":")
    if at:
        chosen = select(ModelRow).where(ModelRow.name == name, ModelRow.version == version)
    elif colon:
        chosen = select(ModelRow).join(AliasRow).where(AliasRow.family == family, AliasRow.alias == alias)
    else:
        chosen = select(ModelRow).where(ModelRow.id.startswith(wanted.strip().lower(), autoescape=True))
    rows = session.scalars(chosen.limit(2)).all()
    if len(rows) != 1 or not wanted.strip():
        told = "more than one is called so" if rows else "none is called so"
        raise NotFound(
            f"model {wanted!r:.120}: {told}; expected the first digits of a digest, NAME@VERSION or FAMILY:ALIAS"
        )
    return rows[0]


def row_of(session: Session, sha256: str) -> ModelRow:
    """The row of a model. Raises NotFound."""
    row = session.get(ModelRow, sha256)
    if row is None:
        raise NotFound(f"model {sha256[:12]}: is not registered")
    return row


def ref_of(row: ModelRow) -> ModelRef:
    """Names the model of a row."""
    return ModelRef(row.name, row.version, row.id)


def model_of(row: ModelRow) -> RegisteredModel:
    """The model of a row."""
    return RegisteredModel(
        row.family,
        ref_of(row),
        row.path,
        row.file_sha256,
        row.file_bytes,
        row.parent_id,
        row.dataset,
        None if row.verdict is None else json.loads(row.verdict),
        row.made_at,
        row.registered_at,
    )


def verdict_json(verdict: Mapping[str, Any]) -> str:
    """Equal verdicts give equal text. Raises Malformed."""
    try:
        return canonical_json(dict(verdict)).decode()
    except (TypeError, ValueError) as error:
        raise Malformed(f"verdict: expected what JSON can hold ({error})") from error
