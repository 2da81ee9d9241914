"""A real edge that gets another model while it serves: no question goes unanswered, and a bad model goes again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from fovea.core.release import Probation
from fovea.link.remote_detector import PixelEncoding, RemoteDetector, RemoteSettings
from tests.builders import scene
from tests.system.agent_site import edge_command
from tests.system.service_process import free_port, health_at, metrics_at, running, until
from tests.system.update_site import breaks_on_white, releases, small_model, write_bundle

PATIENT = RemoteSettings(timeout_s=30.0, encoding=PixelEncoding.PNG)
WHITE = scene(96, 96) * 0 + 255


class Caller:
    """Asks without a pause, and notes which model answered, or what was wrong."""

    def __init__(self, address: str) -> None:
        self.models: list[str] = []
        self.errors: list[str] = []
        self.pixels = scene(96, 96)
        self._remote = RemoteDetector.connect(address, PATIENT)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._is_over.wait(0.02):
            try:
                [inference] = self._remote.detect([self.pixels])
                self.models.append(inference.detections.model.version)
            except Exception as error:
                self.errors.append(repr(error))

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._remote.close()


def test_questions_are_answered_without_a_gap_while_the_model_changes_and_changes_back(
    tmp_path: Path,
) -> None:
    old, new, bad = small_model("1.0"), small_model("2.0"), breaks_on_white("3.0")
    port = free_port()
    with releases(tmp_path / "releases") as repository:
        pins = [repository.add(each) for each in (old, new, bad)]
        command = edge_command(
            tmp_path,
            port,
            bundle=str(write_bundle(tmp_path / "factory.fovea", old)),
            metrics="127.0.0.1:0",
            updates=repository.updates_config(tmp_path / "updates") | {"device": "edge-1"},
        )
        with running(command) as edge:
            serving = edge.event("serving")
            metrics = serving["metrics"]

            def state() -> dict[str, Any]:
                return health_at(metrics)["updates"] or {}

            def is_in(phase: str, version: str) -> bool:
                told = state()
                return bool(told) and (told["phase"], told["running"]["version"]) == (phase, version)

            caller = Caller(serving["address"])
            until(lambda: len(caller.models) > 3, "the first model answers")
            repository.order_all(pins[0], pins[1])
            until(lambda: is_in("committed", "2.0"), "the new model is committed")
            assert caller.errors == []
            assert caller.models == sorted(caller.models) and set(caller.models) == {"1.0", "2.0"}
            info = [name for name in metrics_at(metrics) if name.startswith("fovea_model{")]
            assert len(info) == 1 and 'version="2.0"' in info[0]

            caller.pixels = WHITE
            repository.order_all(pins[1], pins[2], probation=Probation(10**6, 10**6))
            until(lambda: is_in("stepped_back", "2.0"), "the bad model goes again")
            assert "it broke on" in state()["reason"]
            assert caller.errors, "only the bad model failed its callers"
            answered = len(caller.models)
            until(lambda: len(caller.models) > answered, "the old model answers again")
            failed = len(caller.errors)
            until(lambda: len(caller.models) > answered + 4, "and goes on to")
            assert len(caller.errors) == failed
            caller.end()
            edge.stop()
        assert edge.process.returncode == 0
        with running(command) as edge:
            assert "2.0" in edge.event("serving")["model"], "what was committed is what it starts from"
            edge.stop()
