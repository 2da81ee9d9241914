"""Tasks on a Ray cluster. Every node has to have this package and to see the same paths."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from cloud.learn.executor import JobReport, JobState, Task, perform
from fovea.core.errors import Incompatible, NotFound


class RayExecutor:
    """`address` None joins or starts a cluster on this machine; `cpus` and `gpus` are what each task takes.

    A task whose node dies is started again elsewhere, `retries` times. Raises Incompatible where Ray is missing.
    """

    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, retries: int = 2
    ) -> None:
        self._ray: Any = load_ray()
        if not self._ray.is_initialized():
            self._ray.init(address=address, include_dashboard=False, log_to_driver=False)
        remote = self._ray.remote(_perform_text)
        self._remote = remote.options(
            num_cpus=cpus, num_gpus=gpus, max_retries=retries, scheduling_strategy="SPREAD"
        )
        self._jobs: dict[str, Any] = {}

    def start(self, task: Task) -> None:
        if task.name in self._jobs and self.report(task.name).state in (JobState.RUNNING, JobState.DONE):
            return
        self._jobs[task.name] = self._remote.remote(task.to_json())

    def report(self, name: str) -> JobReport:
        if name not in self._jobs:
            raise NotFound(f"task {name!r:.80}: was never started here")
        done, _ = self._ray.wait([self._jobs[name]], timeout=0)
        if not done:
            return JobReport(JobState.RUNNING)
        try:
            answer = self._ray.get(self._jobs[name])
        except self._ray.exceptions.RayTaskError as error:
            return JobReport(JobState.FAILED, reason=str(error.cause))
        except self._ray.exceptions.RayError as error:
            return JobReport(JobState.LOST, reason=f"{type(error).__name__}: its node or process went away")
        if "result" in answer:
            return JobReport(JobState.DONE, answer["result"])
        return JobReport(JobState.FAILED, reason=answer["reason"])

    def stop(self, name: str) -> None:
        if name in self._jobs:
            self._ray.cancel(self._jobs[name], force=True)

    def close(self) -> None:
        """Leave the cluster; tasks that still run end with it."""
        self._jobs.clear()
        self._ray.shutdown()


def load_ray() -> ModuleType:
    """Ray without its usage reports; the only place that imports it. Raises Incompatible where it is missing."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read by the cluster that it starts
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise Incompatible("Ray is not installed; install fovea[ray], or use the local executor") from error


def _perform_text(text: str) -> dict[str, Any]:
    return perform(Task.from_json(text))
