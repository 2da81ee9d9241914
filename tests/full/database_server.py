"""A PostgreSQL of its own for a test: in a temporary folder, on 127.0.0.1, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

_OWNER = "postgres"
_PASSWORD = "a word: with / odd @ signs"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tools() -> Path:
    """Where the programs of the server are; skips the test where they are not."""
    places = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    pytest.skip("PostgreSQL is not installed here (Debian: apt-get install postgresql)")


@contextmanager
def running_postgres() -> Iterator[str]:
    """Starts a server and gives the URL of an empty database."""
    programs = tools()
    # Not below pytest's own folders, which nobody but this user may enter.
    with tempfile.TemporaryDirectory(prefix="fovea-postgres-") as name:
        yield from _served(programs, Path(name), _owner())


def _owner() -> pwd.struct_passwd | None:
    """Whom the server is to run as; None: as this user. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_OWNER)
    except KeyError:
        pytest.skip(f"PostgreSQL does not run as root, and there is no user {_OWNER} here")


def _served(programs: Path, folder: Path, owner: pwd.struct_passwd | None) -> Iterator[str]:
    port, secret = free_port(), folder / "password"
    secret.write_text(_PASSWORD)
    options: dict[str, object] = {}
    if owner is not None:
        for path in (folder, secret):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        options = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    data, log = folder / "data", folder / "log"

    def run(*words: object) -> None:
        done = subprocess.run(
            [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False, timeout=120,
            **options,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, f"{words[0]}: {done.stdout} {done.stderr}"

    run(
        programs / "initdb",
        "-D",
        data,
        "-U",
        "fovea",
        "-A",
        "scram-sha-256",
        f"--pwfile={secret}",
        "-E",
        "UTF8",
        "-N",
    )
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    # Its own streams must not be the pipes of this call, or the call would never end.
    run(
        "sh",
        "-c",
        f'"{programs}/pg_ctl" -D "{data}" -l "{log}" -w -t 60 -o "{settings}" start >/dev/null 2>&1',
    )
    try:
        url = URL.create("postgresql+psycopg", "fovea", _PASSWORD, "127.0.0.1", port, "postgres")
        yield url.render_as_string(hide_password=False)
    finally:
        run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
