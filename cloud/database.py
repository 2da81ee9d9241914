"""Opens the database of the cloud, and brings its tables up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session

from cloud import migrations
from cloud.table import Table
from fovea.core.errors import FoveaError, Incompatible, Malformed, StoreCorrupt, Unavailable

WRITES = "fovea_writes"
"""Execution option of a connection that is going to write: its transaction takes SQLite's write lock at once, as a
transaction that asks for it after reading would be refused without waiting."""

_BUSY_TIMEOUT_S = 10.0
_ROOT = Path(migrations.__file__).parent


def checked_database(url: str) -> URL:
    """`url` as SQLAlchemy reads it. Raises Malformed."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise Malformed(
            "database: expected sqlite:///FILE or postgresql+DRIVER://USER:PASSWORD@HOST/NAME"
        ) from error


def database_from(url: str, folder: Path) -> str:
    """`url` with a SQLite file that does not depend on the current folder, but on `folder`. Raises Malformed."""
    parsed = checked_database(url)
    if (
        parsed.get_backend_name() != "sqlite"
        or not parsed.database
        or parsed.database.startswith((":", "file:"))
    ):
        return url
    return parsed.set(database=str(folder / parsed.database)).render_as_string(hide_password=False)


def shown(url: URL) -> str:
    """`url` without its password."""
    return url.render_as_string(hide_password=True)


def open_engine(url: URL) -> Engine:
    """Connects nowhere yet. Raises Incompatible where the driver is not installed."""
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True)
        engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False})
    except (ImportError, SQLAlchemyError) as error:
        raise Incompatible(f"database {shown(url)}: no driver for it here ({error})") from error
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def opened(database: str) -> Engine:
    """The database at a URL with tables of this version: those of a SQLite file are brought up to date, those of a
    server are the business of `fovea cases migrate`. Raises Malformed, Incompatible, Unavailable, StoreCorrupt."""
    url = checked_database(database)
    engine = open_engine(url)
    try:
        if url.get_backend_name() == "sqlite":
            migrate(engine)
        else:
            check_revision(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """One transaction that writes nothing; its rows can be read afterwards. Raises as `named_errors` does."""
    with named_errors(engine.url), Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """One transaction that is kept when the block ends well, and leaves nothing otherwise."""
    with reading(engine.execution_options(**{WRITES: True})) as session:
        yield session


@contextmanager
def named_errors(url: URL) -> Iterator[None]:
    """What a database says, as errors of the product: Unavailable (no room, busy, away, somebody else has written the
    same at the same moment) or StoreCorrupt."""
    try:
        yield
    except DBAPIError as error:
        raise _error_of(error, url) from error
    except SQLAlchemyError as error:
        raise StoreCorrupt(f"store {shown(url)}: {' '.join(str(error).split())[:300]}") from error


def migrate(engine: Engine) -> tuple[str | None, str]:
    """Brings the tables to the newest revision, in one transaction, and says from which to which.

    Raises Incompatible for a store of a newer version, Unavailable, StoreCorrupt.
    """
    scripts = _scripts()
    newest = str(scripts.get_current_head())
    with named_errors(engine.url), engine.execution_options(**{WRITES: True}).begin() as connection:
        before = revision_of(connection)
        if before != newest:
            _check_known(scripts, before, engine.url)
            _upgrade(connection, scripts, newest)
    return before, newest


def check_revision(engine: Engine) -> None:
    """Raises Incompatible when the tables are not those of this version."""
    newest = str(_scripts().get_current_head())
    with named_errors(engine.url), engine.connect() as connection:
        found = revision_of(connection)
    if found != newest:
        raise Incompatible(
            f"store {shown(engine.url)}: expected tables of revision {newest}, found {found or 'none'}; "
            "run `fovea cases migrate`"
        )


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables; None when there are none yet."""
    return MigrationContext.configure(connection).get_current_revision()


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(_ROOT).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


def _check_known(scripts: ScriptDirectory, revision: str | None, url: URL) -> None:
    try:
        scripts.get_revisions(revision or ())
    except (RevisionError, CommandError) as error:
        raise Incompatible(
            f"store {shown(url)}: made by a newer version (tables of revision {revision})"
        ) from error


def _upgrade(connection: Connection, scripts: ScriptDirectory, newest: str) -> None:
    def steps(revision: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs(newest, revision)

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(connection=connection, target_metadata=Table.metadata, transactional_ddl=True)
        with environment.begin_transaction():
            environment.run_migrations()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must not begin transactions by itself: `_begin_sqlite` does, with the right lock.
    connection.isolation_level = None
    cursor = connection.cursor()
    # FULL: what was committed is still there after a power cut, as its sender was told it is kept.
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


_PASSING_SQLITE = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)


def _error_of(error: DBAPIError, url: URL) -> FoveaError:
    said = f"store {shown(url)}: {' '.join(str(error.orig).split())[:300]}"
    code = getattr(error.orig, "sqlite_errorcode", None)
    if isinstance(error, IntegrityError):
        is_passing = True
    elif code is not None:
        is_passing = code & 0xFF in _PASSING_SQLITE
    else:
        is_passing = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    return Unavailable(said) if is_passing else StoreCorrupt(said)
