"""The pieces of learning that executors run: JSON in, JSON out, files by path."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud.learn.dataset import Snapshot
from cloud.learn.distil import DistilRun, Mode, distil
from cloud.learn.executor import Task
from cloud.learn.tracking import MlflowTracking, NoTracking
from fovea.core.errors import Malformed
from fovea.runtime.bundle import Bundle

log = logging.getLogger(__name__)


def distil_task(
    name: str,
    student: Path,
    snapshot: Path,
    out_dir: Path,
    teacher: Path | None = None,
    mode: Mode = Mode.PSEUDO_KD,
    minutes: float | None = None,
    epochs: float | None = None,
    seed: int = 0,
    tracking: Path | None = None,
) -> Task:
    """A distillation as a task; `student` and `teacher` are bundle files, `tracking` the folder of MLflow's records.
    Its result names the file of the new bundle (`bundle`), the curves and the facts."""
    paths = {
        "student": student,
        "snapshot": snapshot,
        "out_dir": out_dir,
        "teacher": teacher,
        "tracking": tracking,
    }
    arguments: dict[str, Any] = {key: str(path.resolve()) for key, path in paths.items() if path is not None}
    arguments |= {"mode": str(mode), "minutes": minutes, "epochs": epochs, "seed": seed, "run": name}
    return Task(name, "cloud.learn.tasks:run_distil", arguments)


def run_distil(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Does what `distil_task` describes. Raises what `distil` raises, and Malformed for other arguments."""
    try:
        teacher, out_dir = arguments.get("teacher"), Path(arguments["out_dir"])
        run = DistilRun(
            student=Bundle.open(Path(arguments["student"])), snapshot=Snapshot.open(Path(arguments["snapshot"])),
            out_dir=out_dir, teacher=Bundle.open(Path(teacher)) if teacher else None,
            mode=Mode(arguments["mode"]), minutes=arguments["minutes"], epochs=arguments["epochs"],
            seed=arguments["seed"],
        )  # fmt: skip
        records = arguments.get("tracking")
        tracking = MlflowTracking(Path(records), "distil", arguments["run"]) if records else NoTracking()
    except (KeyError, ValueError) as error:
        raise Malformed(f"distillation task: {error!r}") from error
    outcome = distil(run, log.info, tracking)
    path = out_dir / outcome.bundle.manifest.file_name
    return {"bundle": str(path), "curves": str(outcome.curves), "facts": outcome.facts}
