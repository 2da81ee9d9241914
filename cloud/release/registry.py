"""The model registry: versions that never change, and which of them is champion, candidate or previous."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from cloud.database import WRITES, check_revision, checked_database, migrate, named_errors, open_engine
from cloud.kept_files import KeptFiles
from cloud.release.registered import Alias, AliasChange, RegisteredModel
from cloud.release.rows import find_known, model_of, named_row, ref_of, row_of, verdict_json, write_alias
from cloud.release.tables import AliasChangeRow, AliasRow, ModelRow
from fovea.core.detections import ModelRef
from fovea.core.errors import BrokenError, Malformed
from fovea.core.release import check_name
from fovea.runtime.bundle import Bundle


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Where a registry is. `database` is a URL of SQLAlchemy, `models` a folder or a URL of fsspec; both may carry a
    password, so neither is shown."""

    database: str = field(repr=False)
    models: str = field(repr=False)

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """All in the cloud's one folder: cases.sqlite and models/."""
        plain = folder.absolute()
        return cls(f"sqlite:///{plain / 'cases.sqlite'}", str(plain / "models"))


class Registry:
    """Used from any thread and by several processes at once.

    Every method raises Unavailable when the database or the files are away or out of room, and StoreCorrupt when what
    is there is not what was written.
    """

    def __init__(self, engine: Engine, files: KeptFiles, now: Callable[[], datetime]) -> None:
        """Over tables of this version; see `open`."""
        self._engine = engine
        self._writing = engine.execution_options(**{WRITES: True})
        self._files = files
        self._now = now

    @classmethod
    def open(cls, address: RegistryAddress, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Self:
        """Opens the registry, or makes it. Raises Malformed (no such URL), Incompatible (tables of another version,
        no driver), Unavailable, StoreCorrupt."""
        url = checked_database(address.database)
        files = KeptFiles(address.models, "models")
        engine = open_engine(url)
        try:
            if url.get_backend_name() == "sqlite":
                _make_folder_of(url.database)
                migrate(engine)
            else:
                check_revision(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, files, now)

    def close(self) -> None:
        """Twice is fine."""
        self._engine.dispose()

    def register(
        self, family: str, bundle: Bundle, verdict: Mapping[str, Any] | None = None
    ) -> RegisteredModel:
        """Keeps a model: when this returns its file and its row are on disk. Told again it changes nothing. Raises
        Malformed when the same name and version is registered with another manifest."""
        check_name("family", family)
        ref, data = bundle.ref, bundle.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        path = f"{family}/{ref.sha256[:16]}-{bundle.manifest.file_name}"
        parent = bundle.manifest.parent
        with self._session(self._engine) as session:
            known = find_known(session, family, ref)
        if known is not None:
            self._files.mend(known.path, known.file_sha256, data)
            return known
        self._files.put(path, data)
        row = ModelRow(
            id=ref.sha256,
            family=family,
            name=ref.name,
            version=ref.version,
            path=path,
            file_sha256=digest,
            file_bytes=len(data),
            parent_id=parent.sha256 if parent else None,
            dataset=bundle.manifest.dataset,
            verdict=None if verdict is None else verdict_json(verdict),
            made_at=bundle.manifest.created_at,
            registered_at=self._now(),
        )
        with self._session(self._writing) as session:
            known = find_known(session, family, ref)
            if known is not None:
                return known
            session.add(row)
            session.flush()
            return model_of(row)

    def judge(self, ref: ModelRef, verdict: Mapping[str, Any]) -> None:
        """Keeps what the promotion gates said of a model. Raises Malformed when they said something else before."""
        told = verdict_json(verdict)
        with self._session(self._writing) as session:
            row = row_of(session, ref.sha256)
            if row.verdict not in (None, told):
                raise Malformed(f"{ref}: has a verdict already, and a verdict stays as it is")
            row.verdict = told

    def get(self, wanted: str) -> RegisteredModel:
        """The model that is called so: the first digits of its digest, NAME@VERSION, or FAMILY:ALIAS. Raises NotFound
        when there is none, or more than one."""
        with self._session(self._engine) as session:
            return model_of(named_row(session, wanted))

    def models(self, family: str | None = None) -> list[RegisteredModel]:
        """All models, or those of a family; the newest first."""
        chosen = select(ModelRow).order_by(ModelRow.registered_at.desc(), ModelRow.id)
        if family is not None:
            chosen = chosen.where(ModelRow.family == family)
        with self._session(self._engine) as session:
            return [model_of(row) for row in session.scalars(chosen)]

    def load(self, model: RegisteredModel) -> Bundle:
        """The model itself, checked. Raises StoreCorrupt, Unavailable."""
        return Bundle.from_bytes(self._files.get(model.path, model.file_sha256), model.path)

    def aliases(self, family: str) -> dict[Alias, RegisteredModel]:
        """Who is champion, candidate and previous now."""
        chosen = select(AliasRow.alias, ModelRow).join(ModelRow).where(AliasRow.family == family)
        with self._session(self._engine) as session:
            return {Alias(alias): model_of(row) for alias, row in session.execute(chosen)}

    def history(self, family: str) -> list[AliasChange]:
        """Every change of the family's aliases, the oldest first."""
        chosen = (
            select(AliasChangeRow, ModelRow)
            .outerjoin(ModelRow, ModelRow.id == AliasChangeRow.model_id)
            .where(AliasChangeRow.family == family)
            .order_by(AliasChangeRow.id)
        )
        with self._session(self._engine) as session:
            return [
                AliasChange(family, Alias(row.alias), ref_of(model) if model else None, row.at, row.why)
                for row, model in session.execute(chosen)
            ]

    def name(self, family: str, alias: Alias, ref: ModelRef | None, why: str) -> None:
        """Makes `alias` name a registered model of the family, or nothing. Raises NotFound, and Malformed for a model
        of another family."""
        self._change(family, lambda _now: {alias: ref}, why)

    def promote(self, family: str, why: str) -> RegisteredModel:
        """The candidate becomes champion, and the champion previous, in one step. Raises Malformed without one."""

        def changes(now: Mapping[Alias, ModelRef]) -> dict[Alias, ModelRef | None]:
            if Alias.CANDIDATE not in now:
                raise Malformed(f"family {family}: expected a candidate to promote, there is none")
            promoted = now[Alias.CANDIDATE]
            before = now.get(Alias.CHAMPION)
            kept = now.get(Alias.PREVIOUS) if before == promoted else before
            return {Alias.CHAMPION: promoted, Alias.PREVIOUS: kept, Alias.CANDIDATE: None}

        self._change(family, changes, why)
        return self.get(f"{family}:{Alias.CHAMPION}")

    def demote(self, family: str, why: str) -> RegisteredModel:
        """The previous becomes champion again, in one step; nothing is previous then. Malformed without one."""

        def changes(now: Mapping[Alias, ModelRef]) -> dict[Alias, ModelRef | None]:
            if Alias.PREVIOUS not in now:
                raise Malformed(f"family {family}: expected a previous champion to go back to, there is none")
            return {Alias.CHAMPION: now[Alias.PREVIOUS], Alias.PREVIOUS: None}

        self._change(family, changes, why)
        return self.get(f"{family}:{Alias.CHAMPION}")

    def _change(
        self,
        family: str,
        changes: Callable[[Mapping[Alias, ModelRef]], Mapping[Alias, ModelRef | None]],
        why: str,
    ) -> None:
        """One transaction: reads the aliases, asks what becomes of them, and writes that down."""
        with self._session(self._writing) as session:
            rows = {
                Alias(row.alias): row
                for row in session.scalars(
                    select(AliasRow).where(AliasRow.family == family).with_for_update()
                )
            }
            now = {alias: ref_of(row_of(session, row.model_id)) for alias, row in rows.items()}
            for alias, ref in changes(now).items():
                if now.get(alias) == ref:
                    continue
                if ref is not None and row_of(session, ref.sha256).family != family:
                    raise Malformed(f"{ref}: expected a model of {family}")
                write_alias(session, family, alias, ref, self._now(), why, rows.get(alias))

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        with named_errors(engine.url), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session


def _make_folder_of(file: str | None) -> None:
    if file and not file.startswith(":"):
        try:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokenError(f"cannot make the folder of {file}: {error.strerror or error}") from error
