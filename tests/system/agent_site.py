"""A site for tests of a whole agent: its pictures and files, and its results, each with the moment it came out."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml

from fovea.core.arrays import ImageArray
from fovea.runtime.images import encode_png
from fovea.sim.source import SimSource
from tests.system.service_process import FOVEA, ServiceProcess, until

STUDENT = "zoo:street-student-int8"
ASKS_ALWAYS = {"ask_from": 0.0001}
_SIZE_PX = (320, 180)
_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Published:
    """One published result, and when it was there (monotonic; the clock is that of the agent's process, too)."""

    at_mono_s: float
    result: Mapping[str, Any]

    @property
    def latency_s(self) -> float:
        """From the capture of the frame to here."""
        return self.at_mono_s - float(self.result["captured_mono_s"])


class Results:
    """Hears what agents write into their `results_file`, which is a pipe: a line is there when it was published."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._lock = threading.Lock()
        self._all: list[Published] = []
        self._is_over = False
        # Open at both ends, so that writers may come and go.
        self._pipe = os.open(path, os.O_RDWR)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def all(self) -> list[Published]:
        with self._lock:
            return list(self._all)

    def own(self, since_mono_s: float = 0.0) -> list[Published]:
        """Answers of the camera itself to frames captured since then."""
        return [
            each
            for each in self.all()
            if each.result["revision"] == 0 and each.result["captured_mono_s"] >= since_mono_s
        ]

    def later(self, since_mono_s: float = 0.0) -> list[Published]:
        """Answers from above to frames captured since then."""
        return [
            each
            for each in self.all()
            if each.result["revision"] > 0 and each.result["captured_mono_s"] >= since_mono_s
        ]

    def degraded(self, since_mono_s: float) -> list[Published]:
        return [each for each in self.own(since_mono_s) if each.result["degraded"] == "edge_lost"]

    def close(self) -> None:
        self._is_over = True
        os.write(self._pipe, b"\n")
        self._thread.join()
        os.close(self._pipe)

    def _read(self) -> None:
        rest = b""
        while not self._is_over:
            rest += os.read(self._pipe, _CHUNK_BYTES)
            at_mono_s = time.monotonic()
            *lines, rest = rest.split(b"\n")
            # Whoever was killed in the midst of a line has left a part of it.
            for line in lines:
                with suppress(ValueError), self._lock:
                    self._all.append(Published(at_mono_s, json.loads(line)))


@contextmanager
def hearing_results(folder: Path) -> Iterator[Results]:
    results = Results(folder / "results")
    try:
        yield results
    finally:
        results.close()


@dataclass(frozen=True, slots=True)
class Window:
    """How frames fared that were due within a stretch of time."""

    due: int
    answered: int
    p50_ms: float
    p99_ms: float
    late: int
    """came out later after their capture than `limit_s`"""

    @classmethod
    def of(
        cls, results: Results, begun_mono_s: float, ended_mono_s: float, fps: float, limit_s: float
    ) -> Window:
        """Waits for the first frame after it, so that all of it have come out that ever will."""
        until(lambda: bool(results.own(ended_mono_s)), "a frame after the stretch of time")
        waits_s = [
            each.latency_s
            for each in results.own(begun_mono_s)
            if each.result["captured_mono_s"] < ended_mono_s
        ]
        assert waits_s, "no frame at all was answered"
        p50_ms, p99_ms = (np.percentile(waits_s, (50, 99)) * 1000).round(1).tolist()
        due = int((ended_mono_s - begun_mono_s) * fps)
        return cls(due, len(waits_s), p50_ms, p99_ms, sum(wait_s > limit_s for wait_s in waits_s))

    def __str__(self) -> str:
        return f"{self.answered} of {self.due} due frames, p50 {self.p50_ms} ms, p99 {self.p99_ms} ms"


def street_pictures(count: int, first: int = 0) -> list[ImageArray]:
    """u8[180, 320, 3] BGR, all different: a street half a second later each time."""
    source = SimSource("sim://street-v1/day?fps=2")
    pixels = [source.read()[0] for _ in range(first + count)][first:]
    return [cv2.resize(each, _SIZE_PX, interpolation=cv2.INTER_AREA) for each in pixels]


def write_pictures(folder: Path, pictures: Sequence[ImageArray]) -> Path:
    """A folder that stands for a camera; nothing of the pixels is lost."""
    folder.mkdir()
    for number, pixels in enumerate(pictures):
        (folder / f"{number:03}.png").write_bytes(encode_png(pixels))
    return folder


def write_yaml(file: Path, config: Mapping[str, Any]) -> Path:
    file.write_text(yaml.safe_dump(dict(config), allow_unicode=True), encoding="utf-8")
    return file


def agent_command(folder: Path, cameras: Sequence[Mapping[str, Any]], **more: Any) -> tuple[str | Path, ...]:
    """An agent that asks about every frame that it looks at, as far as somebody is there."""
    config = {
        "device": "porch",
        "bundle": STUDENT,
        "cameras": [{"fps": 5.0, **camera} for camera in cameras],
        "gate": ASKS_ALWAYS,
        "budget": {"asks_per_s": 1000.0},
        "audit_share": 0.0,
        "log": {"format": "json"},
        **more,
    }
    return FOVEA, "agent", "--config", write_yaml(folder / "agent.yaml", config)


def edge_command(folder: Path, port: int, **more: Any) -> tuple[str | Path, ...]:
    config = {
        "bundle": STUDENT,
        "listen": f"127.0.0.1:{port}",
        "device": "cpu",
        "log": {"format": "json"},
        **more,
    }
    return FOVEA, "edge", "--config", write_yaml(folder / "edge.yaml", config)


def said(process: ServiceProcess, words: str) -> list[str]:
    """What it logged that begins with these words."""
    events = []
    for line in list(process.said):
        with suppress(ValueError):
            events.append(str(json.loads(line)["event"]))
    return [event for event in events if event.startswith(words)]


def spooled(folder: Path, shelf: str) -> list[str]:
    """Ids of the cases on a shelf of a spool, whoever has it open."""
    with suppress(FileNotFoundError):
        return [file.name.split(".")[2] for file in (folder / shelf).iterdir() if file.suffix == ".case"]
    return []
