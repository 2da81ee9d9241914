"""Processes that run together: started in order, watched, stopped in reverse, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fovea.cli.tier_probes import free_ports, grpc_unready, http_unready, mqtt_unready
from fovea.cli.tiers import TierCommand, TierProcesses, fovea_command
from fovea.core.errors import BrokenError, Cancelled, DeadlineExceeded, Malformed

LIVENESS_S = 30.0


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-u", "-c", textwrap.dedent(code))


def sleeper(mark: Path, log: Path | None = None) -> tuple[str, ...]:
    """Makes `mark`, then sleeps; on SIGTERM writes its name into `log` and ends."""
    return python(
        f"""
        import pathlib, signal, sys, time
        def ended(*_):
            if {str(log)!r} != "None":
                with open({str(log)!r}, "a") as file:
                    file.write({mark.name!r} + "\\n")
            sys.exit(0)
        signal.signal(signal.SIGTERM, ended)
        print("up")
        pathlib.Path({str(mark)!r}).touch()
        time.sleep(600)
        """
    )


def exists(path: Path) -> Callable[[], str | None]:
    return lambda: None if path.exists() else f"no {path.name}"


def wait_for(is_true: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + LIVENESS_S
    while not is_true():
        assert time.monotonic() < ends_s, "waited too long"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_tiers_start_in_order_and_stop_in_reverse_order(tmp_path: Path) -> None:
    log, lines, notes = tmp_path / "log", list[tuple[str, str]](), list[str]()
    commands = [
        TierCommand(name, sleeper(tmp_path / name, log), exists(tmp_path / name)) for name in ("a", "b", "c")
    ]
    with TierProcesses(commands, lambda name, line: lines.append((name, line))) as tiers:
        tiers.start(note=notes.append)
        tiers.check()
        assert list(tiers.pids()) == ["a", "b", "c"]
        assert all(size > 0 for size in tiers.rss_bytes().values())
        assert set(tiers.cpu_s()) == {"a", "b", "c"}
        pids = tiers.pids().values()
        codes = tiers.stop()
    assert codes == {"c": 0, "b": 0, "a": 0}
    assert log.read_text().split() == ["c", "b", "a"]
    assert lines == [("a", "up"), ("b", "up"), ("c", "up")]
    assert [note.partition(" after")[0] for note in notes] == [
        f"{name}: {what}" for name in "abc" for what in ("starting", "ready")
    ]
    assert not any(is_alive(pid) for pid in pids)


def test_a_tier_that_dies_while_starting_is_named_with_its_last_lines() -> None:
    dying = python("print('reading the model'); print('no such file: x.fovea'); raise SystemExit(3)")
    with (
        TierProcesses([TierCommand("edge", dying, lambda: "not yet")]) as tiers,
        pytest.raises(BrokenError, match=r"edge ended with exit code 3(.|\n)*no such file: x\.fovea"),
    ):
        tiers.start()


def test_a_tier_that_dies_later_is_named_with_the_signal_that_ended_it(tmp_path: Path) -> None:
    commands = [
        TierCommand(name, sleeper(tmp_path / name), exists(tmp_path / name)) for name in ("cloud", "edge")
    ]
    with TierProcesses(commands) as tiers:
        tiers.start()
        os.kill(tiers.pids()["edge"], signal.SIGKILL)
        wait_for(lambda: not is_alive(tiers.pids()["edge"]))
        with pytest.raises(BrokenError, match="edge ended by SIGKILL"):
            tiers.check()


def test_a_tier_that_does_not_get_ready_is_given_up_with_the_reason(tmp_path: Path) -> None:
    hung = TierCommand("cloud", sleeper(tmp_path / "x"), lambda: "nobody answers", ready_within_s=0.3)
    with (
        TierProcesses([hung]) as tiers,
        pytest.raises(DeadlineExceeded, match=r"cloud was not ready after 0 s: nobody answers"),
    ):
        tiers.start()


def test_starting_ends_when_told_to_stop_and_leaves_nothing(tmp_path: Path) -> None:
    told = threading.Event()
    told.set()
    command = TierCommand("cloud", sleeper(tmp_path / "x"), lambda: "not yet")
    with TierProcesses([command]) as tiers:
        with pytest.raises(Cancelled, match="cloud"):
            tiers.start(told)
        (pid,) = tiers.pids().values()
    assert not is_alive(pid)


def test_a_tier_that_ignores_sigterm_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    deaf = python(
        f"""
        import pathlib, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(tmp_path / "part")!r}).write_text(str(child.pid))
        pathlib.Path({str(tmp_path / "part")!r}).rename({str(mark)!r})
        time.sleep(600)
        """
    )
    notes: list[str] = []
    tiers = TierProcesses([TierCommand("agent", deaf, exists(mark))], stop_within_s=0.3)
    tiers.start()
    assert tiers.stop(notes.append) == {"agent": -signal.SIGKILL}
    assert "killed" in notes[0]
    wait_for(lambda: not is_alive(int(mark.read_text())))
    assert tiers.stop() == {}


def test_no_tier_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    """Not even SIGKILL of the starter leaves an orphan: the kernel ends those that are tied to it."""
    starter = python(
        f"""
        import pathlib, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from fovea.cli.tiers import TierCommand, TierProcesses
        mark = pathlib.Path({str(tmp_path / "up")!r})
        tiers = TierProcesses([TierCommand("edge", (sys.executable, "-c",
            "import pathlib, time; pathlib.Path({str(tmp_path / "up")!r}).touch(); time.sleep(600)"),
            lambda: None if mark.exists() else "no")])
        tiers.start()
        print(tiers.pids()["edge"], flush=True)
        time.sleep(600)
        """
    )
    process = subprocess.Popen(starter, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        process.kill()
        process.wait(LIVENESS_S)
    wait_for(lambda: not is_alive(pid))


def test_programs_are_named_by_their_path_and_tiers_once() -> None:
    with pytest.raises(Malformed, match="absolute path"):
        TierCommand("edge", ("python", "x"), lambda: None)
    command = TierCommand("edge", fovea_command("edge"), lambda: None)
    with pytest.raises(Malformed, match="each name once"):
        TierProcesses([command, command])


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as each:
            each.bind(("127.0.0.1", port))


def test_probes_say_why_nobody_is_ready() -> None:
    (port,) = free_ports(1)
    assert f"127.0.0.1:{port}" in str(mqtt_unready("127.0.0.1", port))
    assert f"127.0.0.1:{port}" in str(http_unready(f"http://127.0.0.1:{port}/healthz"))
    assert f"127.0.0.1:{port}" in str(grpc_unready(f"127.0.0.1:{port}"))


def test_the_http_probe_tells_healthy_from_unhealthy() -> None:
    statuses = iter([503, 200])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"healthy": false, "camera": "lost"}'
            self.send_response(next(statuses))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/healthz"
        assert '"camera":"lost"' in str(http_unready(url))
        assert http_unready(url) is None
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("answer", "is_ready"), [(b"\x20\x02\x00\x00", True), (b"HTTP", False)])
def test_the_mqtt_probe_wants_a_broker_that_answers(answer: bytes, is_ready: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            link, _ = listener.accept()
            with link:
                assert link.recv(100).startswith(b"\x10")
                link.sendall(answer)

        thread = threading.Thread(target=reply, daemon=True)
        thread.start()
        assert (mqtt_unready("127.0.0.1", listener.getsockname()[1]) is None) is is_ready
        thread.join(LIVENESS_S)
