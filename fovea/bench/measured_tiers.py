"""Agent, edge and cloud as the processes that they are, started by a benchmark and measured from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fovea.bench.children import Child, child, is_listening
from fovea.bench.result_lines import Published, lines_between
from fovea.core.errors import BrokenError

HOST = "127.0.0.1"
READY_WITHIN_S = 180.0
"""A liveness limit, for machines that are slow."""


@dataclass(frozen=True, slots=True, eq=False)
class AgentRun:
    """One agent process, measured while it ran freely. `answers` are those of the measured time; `stats` are the
    agent's own figures at its end, warm-up included, and `cpu_parts_ms` are of those while its threads still ran."""

    fps: float
    cpu_ms_per_frame: float
    rss_mb: float
    answers: list[Published]
    stats: Mapping[str, Any]
    cpu_parts_ms: Mapping[str, float]

    @property
    def asked_share(self) -> float:
        """Of the frames that were answered."""
        own = [answer for answer in self.answers if answer.revision == 0]
        return sum(answer.is_asked for answer in own) / len(own)


def measure_agent(
    config: Mapping[str, object], work: Path, cores: Collection[int], warm_up_frames: int, seconds: float
) -> AgentRun:
    """Runs an agent with `config`, to which the files for results and figures are added, and measures it for
    `seconds`, once it has answered some frames and had its first answer from above. Raises BrokenError,
    DeadlineExceeded."""
    results, stats = work / "results.jsonl", work / "stats.json"
    for old in (results, stats):
        old.unlink(missing_ok=True)
    files = {"results_file": str(results.absolute()), "stats_file": str(stats.absolute())}
    path = write_config(work / "agent.yaml", {**config, **files})
    argv = ("-m", "fovea.cli.main", "agent", "--config", str(path))
    with child("agent", argv, work / "agent.log", cores) as agent:
        agent.wait_for(lambda: _is_warm(results, warm_up_frames), "results", READY_WITHIN_S)
        begun_s, cpu_s, begin = time.monotonic(), agent.cpu_s(), results.stat().st_size
        time.sleep(seconds)
        ended_s, cpu_s, end = time.monotonic(), agent.cpu_s() - cpu_s, results.stat().st_size
        rss_mb = agent.rss_mb()
        agent.wait_for(stats.is_file, "figures", READY_WITHIN_S)
        parts_ms = cpu_parts_ms(json.loads(stats.read_text(encoding="utf-8")))
    answers = lines_between(results, begin, end)
    frames = sum(answer.revision == 0 for answer in answers)
    if not frames:
        raise BrokenError(f"agent: {frames} results in {ended_s - begun_s:.1f} s; its log is in {work}")
    return AgentRun(
        fps=frames / (ended_s - begun_s),
        cpu_ms_per_frame=1000 * cpu_s / frames,
        rss_mb=rss_mb,
        answers=answers,
        stats=json.loads(stats.read_text(encoding="utf-8")),
        cpu_parts_ms=parts_ms,
    )


_PARTS = {"camera": "capture", "agent": "walk", "escalation": "ask", "link": "ask", "others": "ask"}
"""What the threads of an agent are for, by their names; the rest begins and ends it."""


def cpu_parts_ms(stats: Mapping[str, Any]) -> dict[str, float]:
    """CPU time of a frame by what it went for, from the agent's own figures: `capture` reads the source, `walk` is
    all from the motion gate to the publication, `ask` encodes, sends and waits for questions (the threads of gRPC
    among it). Empty where the system does not tell."""
    frames = sum(camera["frames"] for camera in stats["cameras"])
    spent_ms: dict[str, float] = {}
    for thread, seconds in stats["threads_cpu_s"].items():
        part = _PARTS.get(thread.partition(" ")[0])
        if part is not None:
            spent_ms[part] = spent_ms.get(part, 0.0) + 1000 * seconds / max(frames, 1)
    return spent_ms


@contextmanager
def serving(
    tier: str, bundle: Path, address: str, work: Path, cores: Collection[int], **more: object
) -> Iterator[Child]:
    """An edge or a cloud that takes calls at `address`, on one thread of its model. Raises BrokenError,
    DeadlineExceeded."""
    config = {"listen": address, "bundle": str(bundle.absolute()), "device": "cpu", "threads": 1, **more}
    path = write_config(work / f"{tier}.yaml", config)
    host, _, port = address.rpartition(":")
    argv = ("-m", "fovea.cli.main", tier, "--config", str(path))
    with child(tier, argv, work / f"{tier}.log", cores) as running:
        running.wait_for(lambda: is_listening(host, int(port)), "open port", READY_WITHIN_S)
        yield running


def write_config(path: Path, config: Mapping[str, object]) -> Path:
    """Writes YAML; the absolute path."""
    path.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
    return path.absolute()


def _is_warm(results: Path, frames: int) -> bool:
    if not results.exists():
        return False
    lines = results.read_bytes().splitlines()[:-1]
    # The first question of all pays for connecting: it belongs to the warm-up.
    return len(lines) >= frames and any(b'"revision":1' in line for line in lines)
