"""Keeps the curve of the second act and shows it while it is made: a thread of its own, so that no act has to."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from fovea.cli.demo_live import read_stats
from fovea.cli.demo_loop_findings import Mark, Moment
from fovea.cli.demo_loop_screen import ACTS, Scene, scene_line, scene_view
from fovea.cli.demo_loop_watch import BytesUp, FleetWatch
from fovea.core.errors import FoveaError

_log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_LINE_EVERY_S: Final = 10.0


class Recorder:
    """Takes a moment every second. `act`, `said`, `new_model` and `ap` are set by who plays, and read here."""

    def __init__(
        self,
        watch: FleetWatch,
        stats_files: Mapping[str, Path],
        count_cases: Callable[[], int],
        console: Console,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.act, self.said = ACTS[0], ""
        self.new_model: str | None = None
        self.ap: dict[str, float] = {}
        self.moments: list[Moment] = []
        self.marks: list[Mark] = []
        self.bytes_up = BytesUp()
        self._watch, self._stats_files, self._count_cases = watch, dict(stats_files), count_cases
        self._console, self._now_s, self._begun_s = console, now_s, now_s()
        self._is_over = threading.Event()
        self._line_at_s = 0.0

    @property
    def seconds(self) -> float:
        return self._now_s() - self._begun_s

    def mark(self, name: str, said: str = "") -> None:
        """Something happens now."""
        self.marks.append(Mark(self.seconds, name, said))

    def take(self) -> Scene:
        """The fleet as it is now becomes part of the curve."""
        for device, file in self._stats_files.items():
            self.bytes_up.take(device, read_stats(file))
        running = self._watch.running()
        devices = sum(running.values())
        on_new = running.get(self.new_model or "", 0) / devices if devices else 0.0
        scene = Scene(
            self.act, self.seconds, self.said, self._watch.now(), self._watch.asked_share(),
            self._count_cases(), self.bytes_up.total, dict(self.ap),
        )  # fmt: skip
        self.moments.append(Moment(scene.at_s, scene.asked_share, on_new, scene.cases))
        return scene

    @contextmanager
    def running(self) -> Iterator[None]:
        """Records and shows until the block ends."""
        with Live(console=self._console, auto_refresh=False, transient=False) as screen:
            thread = threading.Thread(target=self._run, args=(screen,), name="recorder", daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._is_over.set()
                thread.join(5.0)

    def asked_share(self, over_s: float) -> float:
        """Mean of the curve over its last seconds; NaN where it says nothing."""
        since_s = self.seconds - over_s
        shares = [m.asked_share for m in self.moments if m.at_s >= since_s and math.isfinite(m.asked_share)]
        return sum(shares) / len(shares) if shares else math.nan

    def _run(self, screen: Live) -> None:
        while not self._is_over.wait(_EVERY_S):
            try:
                scene = self.take()
            except FoveaError as error:  # the store is busy, say: there will be another moment
                _log.debug("no moment: %s", error)
                continue
            except Exception:  # the top of this thread
                _log.exception("the curve has a gap")
                continue
            self._show(screen, scene)

    def _show(self, screen: Live, scene: Scene) -> None:
        if self._console.is_terminal:
            screen.update(scene_view(scene), refresh=True)
        elif scene.at_s >= self._line_at_s:
            self._line_at_s = scene.at_s + _LINE_EVERY_S
            self._console.print(scene_line(scene), highlight=False, soft_wrap=True, markup=False)
