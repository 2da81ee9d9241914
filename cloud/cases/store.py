"""Where hard cases are kept: rows in a database, pictures as files beside it. Safe to be told the same twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from sqlalchemy import ColumnElement, Engine, and_, exists, func, or_, select
from sqlalchemy.orm import Session

from cloud.cases.images import CaseImages
from cloud.cases.rows import find_known, keep, new_row, stored_cases
from cloud.cases.stored_case import CameraCount, CaseFilter, Order, Receipt, StoredCase
from cloud.cases.tables import AnswerRow, CaseRow, PictureRow, ReasonRow
from cloud.database import WRITES, check_revision, checked_database, migrate, named_errors, open_engine
from fovea.core.errors import FoveaError, NotFound, Unavailable
from fovea.core.frame import ImageSize, size_of
from fovea.core.hard_case import HardCase
from fovea.runtime.image_header import read_header
from fovea.runtime.images import ImageLimits, decode_image

_PAGE = 200
_DATABASE_FILE = "cases.sqlite"
_IMAGES_FOLDER = "images"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a case store is. `database` is a URL of SQLAlchemy, `images` a folder or a URL of fsspec; both may carry
    a password, so neither is shown."""

    database: str = field(repr=False)
    images: str = field(repr=False)

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """All in one folder: cases.sqlite and images/."""
        plain = folder.absolute()
        return cls(f"sqlite:///{plain / _DATABASE_FILE}", str(plain / _IMAGES_FOLDER))


class CaseStore:
    """Used from any thread, by many at once, and by several processes on one machine.

    Every method raises Unavailable when the database is away, busy for ten seconds or out of room, and StoreCorrupt
    when what is there is not what was written.
    """

    def __init__(
        self, engine: Engine, images: CaseImages, limits: ImageLimits, now: Callable[[], datetime]
    ) -> None:
        """Over tables of this version; see `open`."""
        self._engine = engine
        self._writing = engine.execution_options(**{WRITES: True})
        self._images = images
        self._limits = limits
        self._now = now
        # Writers of this process wait here, and not by turns of sleep inside SQLite.
        self._one_writes = threading.Lock()

    @classmethod
    def open(
        cls,
        address: StoreAddress,
        limits: ImageLimits = ImageLimits(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Opens the store, or makes it. The tables of a SQLite file are brought up to date; those of a server are the
        business of `fovea cases migrate`. Raises Malformed (no such URL), Incompatible (tables of another version, no
        driver), Unavailable, StoreCorrupt."""
        url = checked_database(address.database)
        images = CaseImages(address.images)
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
        return cls(engine, images, limits, now)

    @classmethod
    def open_existing(cls, address: StoreAddress) -> Self:
        """`open` for who comes to look: raises NotFound where there is no store, and makes none."""
        url = checked_database(address.database)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            raise NotFound(f"no case store at {url.database}")
        return cls.open(address)

    def close(self) -> None:
        """Twice is fine."""
        self._engine.dispose()

    def sweep(self) -> int:
        """Removes what killed processes left half-written, and says how many files that were."""
        return self._images.sweep()

    def add(self, case: HardCase, size: ImageSize | None = None) -> Receipt:
        """Keeps a case: when this returns it is on disk.

        `size` is that of the picture, upright, from a caller who has opened it; else it is opened here. The picture
        is kept byte for byte. Told again, also with another picture of the same frame (same id, instant and size),
        answers of tiers and reasons that were missing are added, and nothing is replaced. Raises Malformed for what
        is no whole picture and TooLarge beyond the limits; what fails leaves nothing behind.
        """
        image_format = read_header(case.jpeg).format
        size = size or size_of(decode_image(case.jpeg, self._limits))
        with self._one_writes:
            row = new_row(case, size, self._images.path_of(case.id, image_format), self._now())
            with self._session(self._engine) as session:
                known = find_known(session, row)
                known_path = known.image_path if known is not None and known.id == case.id else None
            if known is None:
                return self._add_new(case, row)
            if known_path is not None:
                self._images.mend(known_path, case.id, case.jpeg)
            with self._session(self._writing) as session:
                return keep(session, case, row)

    def find(self, digest: str) -> StoredCase | None:
        """The case of a picture, by the digest of any picture that was sent of its frame."""
        with self._session(self._engine) as session:
            picture = session.get(PictureRow, digest)
            row = session.get(CaseRow, picture.case_id) if picture else None
            return stored_cases(session, [row])[0] if row else None

    def get(self, id_start: str) -> StoredCase:
        """The one case whose id starts so. Raises NotFound when there is none, or more than one."""
        starts_so = CaseRow.id.startswith(id_start.strip().lower(), autoescape=True)
        with self._session(self._engine) as session:
            rows = session.scalars(select(CaseRow).where(starts_so).limit(2)).all()
            if len(rows) != 1:
                told = (
                    "the id of more than one case starts so" if rows else "no case has an id that starts so"
                )
                raise NotFound(f"case {id_start!r:.80}: {told}")
            return stored_cases(session, rows)[0]

    def walk(
        self, wanted: CaseFilter = CaseFilter(), order: Order = Order.NEWEST, limit: int | None = None
    ) -> Iterator[StoredCase]:
        """Cases by their time of capture, read page by page, so that a store of any size can be walked."""
        last: StoredCase | None = None
        left = limit
        while left is None or left > 0:
            most = _PAGE if left is None else min(left, _PAGE)
            page = self._page(wanted, order, last, most)
            yield from page
            if len(page) < most:
                return
            last = page[-1]
            left = None if left is None else left - len(page)

    def load_image(self, case: StoredCase) -> bytes:
        """The picture as it was sent. Raises StoreCorrupt, naming it, when it is missing or damaged."""
        return self._images.get(case.image_path, case.id)

    def count(self, wanted: CaseFilter = CaseFilter()) -> int:
        """How many cases are meant."""
        with self._session(self._engine) as session:
            return session.scalar(select(func.count()).select_from(CaseRow).where(*_conditions(wanted))) or 0

    def count_by_camera(self) -> tuple[CameraCount, ...]:
        """What is kept of each camera, by name."""
        question = (
            select(
                CaseRow.camera,
                func.count(),
                func.count().filter(CaseRow.is_audit),
                func.sum(CaseRow.image_bytes),
                func.max(CaseRow.captured_at),
            )
            .group_by(CaseRow.camera)
            .order_by(CaseRow.camera)
        )
        with self._session(self._engine) as session:
            return tuple(
                CameraCount(camera, cases, audits, int(size_bytes), newest_at)
                for camera, cases, audits, size_bytes, newest_at in session.execute(question)
            )

    def _add_new(self, case: HardCase, row: CaseRow) -> Receipt:
        """The picture first: a row is never without one."""
        path, digest = row.image_path, row.id
        self._images.put(path, case.jpeg)
        try:
            with self._session(self._writing) as session:
                return keep(session, case, row)
        except BaseException:
            if not self._is_known(digest):
                self._images.remove(path)
            raise

    def _is_known(self, digest: str) -> bool:
        try:
            with self._session(self._engine) as session:
                return session.get(CaseRow, digest) is not None
        except FoveaError:  # nothing can be said: a file too many is better than one too few
            return True

    def _page(
        self, wanted: CaseFilter, order: Order, after: StoredCase | None, most: int
    ) -> list[StoredCase]:
        key = (CaseRow.captured_at, CaseRow.id)
        question = select(CaseRow).where(*_conditions(wanted)).limit(most)
        if order is Order.NEWEST:
            question = question.order_by(*(column.desc() for column in key))
        else:
            question = question.order_by(*key)
        if after is not None:
            question = question.where(_beyond(after, order))
        with self._session(self._engine) as session:
            return stored_cases(session, session.scalars(question).all())

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        """One transaction, that ends with the block; its rows can be read afterwards."""
        with (
            named_errors(engine.url),
            Session(engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session


def _conditions(wanted: CaseFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.camera is not None:
        conditions.append(CaseRow.camera == wanted.camera)
    if wanted.since is not None:
        conditions.append(CaseRow.captured_at >= wanted.since)
    if wanted.is_audit is not None:
        conditions.append(CaseRow.is_audit.is_(wanted.is_audit))
    if wanted.reason is not None:
        conditions.append(exists().where(ReasonRow.case_id == CaseRow.id, ReasonRow.reason == wanted.reason))
    if wanted.tier is not None:
        conditions.append(exists().where(AnswerRow.case_id == CaseRow.id, AnswerRow.tier == int(wanted.tier)))
    return conditions


def _beyond(last: StoredCase, order: Order) -> ColumnElement[bool]:
    """What comes after `last`, also when the cases before it have changed in number meanwhile."""
    at, case_id = last.captured_at, last.id
    if order is Order.NEWEST:
        return or_(CaseRow.captured_at < at, and_(CaseRow.captured_at == at, CaseRow.id < case_id))
    return or_(CaseRow.captured_at > at, and_(CaseRow.captured_at == at, CaseRow.id > case_id))


def _make_folder_of(database: str | None) -> None:
    if not database or database == ":memory:":
        return
    folder = Path(database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"case store: cannot make the folder {folder}: {error.strerror}") from error
