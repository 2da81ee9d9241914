"""Where hard cases are kept: rows in a database, pictures as files beside it. Safe to be told the same twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from cloud.cases import counting, marks
from cloud.cases.condition import condition_of
from cloud.cases.deleting import delete_pictures, delete_rows, held_bytes, oldest_deletable
from cloud.cases.filtering import beyond, conditions_of
from cloud.cases.images import CaseImages
from cloud.cases.near import NearRule
from cloud.cases.picture_facts import measured
from cloud.cases.retention import Held, PruneReport, Retention, going
from cloud.cases.rows import find_place, keep, new_row, stored_cases
from cloud.cases.selecting import selected_ids
from cloud.cases.selection import Selection
from cloud.cases.stored_case import CameraCount, CaseFilter, ConditionCount, Order, Receipt, StoredCase
from cloud.cases.tables import CaseRow, NearFrameRow, PictureRow
from cloud.database import WRITES, check_revision, checked_database, migrate, named_errors, open_engine
from fovea.core.errors import FoveaError, NotFound, StoreCorrupt, Unavailable
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


@dataclass(frozen=True, slots=True)
class KeepRules:
    """How cases are taken in. `limits`: what is refused before it is opened. `near`: which frames are counted at a
    case that shows the same; None: every frame is kept. `time_zone`: where the cameras are, for the hour of the
    day."""

    limits: ImageLimits = field(default_factory=ImageLimits)
    near: NearRule | None = None
    time_zone: tzinfo = UTC


class CaseStore:
    """Used from any thread, by many at once, and by several processes on one machine.

    Every method raises Unavailable when the database is away, busy for ten seconds or out of room, and StoreCorrupt
    when what is there is not what was written.
    """

    def __init__(
        self, engine: Engine, images: CaseImages, rules: KeepRules, now: Callable[[], datetime]
    ) -> None:
        """Over tables of this version; see `open`."""
        self._engine = engine
        self._writing = engine.execution_options(**{WRITES: True})
        self._images = images
        self._rules = rules
        self._now = now
        # Writers of this process wait here, and not by turns of sleep inside SQLite.
        self._one_writes = threading.Lock()

    @classmethod
    def open(
        cls,
        address: StoreAddress,
        rules: KeepRules = KeepRules(),
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
        return cls(engine, images, rules, now)

    @classmethod
    def open_existing(cls, address: StoreAddress, rules: KeepRules = KeepRules()) -> Self:
        """`open` for who comes to look: raises NotFound where there is no store, and makes none."""
        url = checked_database(address.database)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            raise NotFound(f"no case store at {url.database}")
        return cls.open(address, rules)

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
        answers of tiers and reasons that were missing are added, and nothing is replaced. A frame that shows what a
        case shows is counted there (`KeepRules.near`), unless it is an audit. Raises Malformed for what is no whole
        picture and TooLarge beyond the limits; what fails leaves nothing behind.
        """
        return self._add(case, size, self._rules.near)

    def add_always(self, case: HardCase, size: ImageSize | None = None) -> Receipt:
        """`add` for what somebody has chosen: a frame that shows what a case shows is kept, too."""
        return self._add(case, size, None)

    def _add(self, case: HardCase, size: ImageSize | None, near: NearRule | None) -> Receipt:
        row = self._new_row(case, size)
        path, digest = row.image_path, row.id
        with self._one_writes:
            with self._session(self._engine) as session:
                place = find_place(session, case, row, near)
                known_path = place.image_path if place is not None and place.id == case.id else None
            if known_path is not None:
                self._images.mend(known_path, case.id, case.jpeg)
            if place is None:  # the picture first: a row is never without one
                self._images.put(path, case.jpeg)
            try:
                with self._session(self._writing) as session:
                    ensure_picture = partial(self._images.ensure, path, case.jpeg)
                    receipt = keep(session, case, row, near, ensure_picture)
            except BaseException:
                if known_path is None and not self._is_known(digest):
                    self._images.remove(path)
                raise
            if place is None and receipt.case_id != digest:  # another process was faster
                self._images.remove(path)
            return receipt

    def _new_row(self, case: HardCase, size: ImageSize | None) -> CaseRow:
        """Opens the picture, and measures it."""
        image_format = read_header(case.jpeg).format
        size = size or size_of(decode_image(case.jpeg, self._rules.limits))
        facts = measured(case.jpeg)
        local = case.captured_at.astimezone(self._rules.time_zone)
        condition = condition_of(facts.luminance, facts.contrast, local.hour + local.minute / 60)
        path = self._images.path_of(case.id, image_format)
        return new_row(case, size, path, self._now(), facts, condition)

    def find(self, digest: str) -> StoredCase | None:
        """The case of a picture, by the digest of any picture that was sent of its frame, or of a frame that shows
        the same."""
        with self._session(self._engine) as session:
            picture = session.get(PictureRow, digest) or session.get(NearFrameRow, digest)
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
        """The picture as it was sent. Raises StoreCorrupt, naming it, when it is missing or damaged, and NotFound
        when the case was deleted meanwhile."""
        try:
            return self._images.get(case.image_path, case.id)
        except StoreCorrupt:
            if self._is_known(case.id):
                raise
            raise NotFound(f"case {case.id[:12]}: it was deleted a moment ago") from None

    def count(self, wanted: CaseFilter = CaseFilter()) -> int:
        """How many cases are meant."""
        with self._session(self._engine) as session:
            return (
                session.scalar(select(func.count()).select_from(CaseRow).where(*conditions_of(wanted))) or 0
            )

    def count_by_camera(self) -> tuple[CameraCount, ...]:
        """What is kept of each camera, by name."""
        with self._session(self._engine) as session:
            return counting.cameras(session)

    def count_by_condition(self) -> tuple[ConditionCount, ...]:
        """What is kept of each camera under each condition."""
        with self._session(self._engine) as session:
            return counting.conditions(session)

    def count_by_tag(self) -> dict[str, int]:
        """How many cases carry each tag."""
        with self._session(self._engine) as session:
            return counting.tags(session)

    def select(self, selection: Selection) -> list[StoredCase]:
        """The cases that are worth learning from (see there), the most wanted first, and then all audits by id."""
        with self._session(self._engine) as session:
            ids = selected_ids(session, selection)
        chosen: list[StoredCase] = []
        for start in range(0, len(ids), _PAGE):
            chosen += self._loaded(ids[start : start + _PAGE])
        return chosen

    def tag(self, case_ids: Sequence[str], words: Sequence[str]) -> None:
        """Puts each word on each case, once. Raises NotFound for a case that is not there, and Malformed."""
        with self._one_writes, self._session(self._writing) as session:
            marks.tag(session, case_ids, words)

    def protect(self, case_ids: Sequence[str], why: str) -> None:
        """These cases are not deleted while `why` (such as `golden:yard`, `review`, `snapshot:DIGEST`) stands,
        however old they get. Twice is fine. Raises NotFound for one that is not there, and protects none then."""
        with self._one_writes, self._session(self._writing) as session:
            marks.protect(session, case_ids, why, self._now())

    def unprotect(self, why: str, case_ids: Sequence[str] | None = None) -> None:
        """Takes `why` away from these cases, or from all; other reasons to keep them still stand."""
        with self._one_writes, self._session(self._writing) as session:
            marks.unprotect(session, case_ids, why)

    def protected(self, why: str) -> list[str]:
        """The ids of the cases that are protected for this reason, or a kind of it: `golden` means `golden:yard`,
        too."""
        with self._session(self._engine) as session:
            return marks.protected(session, why)

    def protections_of(self, case_id: str) -> tuple[str, ...]:
        """Why a case must not be deleted."""
        with self._session(self._engine) as session:
            return marks.reasons_to_keep(session, case_id)

    def prune(self, retention: Retention) -> PruneReport:
        """Deletes what is too old or too much, the oldest first, and never what is protected. May be killed at any
        moment: the next one goes on."""
        cases = image_bytes = 0
        while retention.is_limited:
            with self._one_writes, self._session(self._writing) as session:
                left = held_bytes(session)
                oldest = oldest_deletable(session, retention, self._now(), None, _PAGE)
                gone = oldest[: going(oldest, left, self._now(), retention)]
                delete_rows(session, [held.id for held in gone])
            cases, image_bytes = cases + len(gone), image_bytes + sum(held.image_bytes for held in gone)
            if len(gone) < _PAGE:
                break
        self._delete_pictures()
        with self._session(self._engine) as session:
            return _prune_report(cases, image_bytes, held_bytes(session), retention)

    def would_prune(self, retention: Retention) -> PruneReport:
        """What `prune` would do now."""
        cases = image_bytes = 0
        with self._session(self._engine) as session:
            left, last, page = held_bytes(session), None, list[Held]()
            while retention.is_limited:
                page = oldest_deletable(session, retention, self._now(), last, _PAGE)
                gone = page[: going(page, left - image_bytes, self._now(), retention)]
                cases, image_bytes = cases + len(gone), image_bytes + sum(held.image_bytes for held in gone)
                if len(gone) < _PAGE:
                    break
                last = gone[-1]
        return _prune_report(cases, image_bytes, left - image_bytes, retention)

    def _delete_pictures(self) -> None:
        """Those of which the rows are gone, also of an earlier time that was cut short."""
        while True:
            with self._one_writes, self._session(self._writing) as session:
                if not delete_pictures(session, self._images):
                    return

    def _loaded(self, ids: Sequence[str]) -> list[StoredCase]:
        """In this order; what was deleted meanwhile is left out."""
        with self._session(self._engine) as session:
            rows = {row.id: row for row in session.scalars(select(CaseRow).where(CaseRow.id.in_(ids)))}
            return stored_cases(session, [rows[case_id] for case_id in ids if case_id in rows])

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
        question = select(CaseRow).where(*conditions_of(wanted)).limit(most)
        if order is Order.NEWEST:
            question = question.order_by(*(column.desc() for column in key))
        else:
            question = question.order_by(*key)
        if after is not None:
            question = question.where(beyond(after, order))
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


def _prune_report(cases: int, image_bytes: int, left_bytes: int, retention: Retention) -> PruneReport:
    allowed = left_bytes if retention.max_bytes is None else retention.max_bytes
    return PruneReport(cases, image_bytes, left_bytes, max(0, left_bytes - allowed))


def _make_folder_of(database: str | None) -> None:
    if not database or database == ":memory:":
        return
    folder = Path(database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"case store: cannot make the folder {folder}: {error.strerror}") from error
