"""Where runs are recorded: MLflow in a local file by default, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

from fovea.core.errors import Incompatible

_LONGEST_VALUE = 500


class Tracking(Protocol):
    """Records one run, from `with` to its end; a run that is left by an exception is recorded as failed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def settings(self, values: Mapping[str, object]) -> None:
        """What was decided before the run."""

    def figures(self, values: Mapping[str, float], step: int) -> None:
        """What was measured after `step` steps."""

    def file(self, path: Path) -> None:
        """Something that the run made."""


class NoTracking:
    """Records nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def settings(self, values: Mapping[str, object]) -> None:
        return None

    def figures(self, values: Mapping[str, float], step: int) -> None:
        return None

    def file(self, path: Path) -> None:
        return None


class MlflowTracking:
    """A run of MLflow. `uri` None is `folder/mlflow.db` beside `folder/artifacts`; another one is a server's.

    `run` names it: a run that was killed goes on under its old entry. Raises Incompatible where mlflow is not
    installed.
    """

    def __init__(self, folder: Path, experiment: str, run: str, uri: str | None = None) -> None:
        self._folder, self._experiment, self._run = folder, experiment, run
        self._uri = uri or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client: Any = None
        self._run_id = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._client = load_mlflow().MlflowClient(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment_id = found.experiment_id if found else self._new_experiment()
        query = f"tags.mlflow.runName = '{self._run}' and attributes.status != 'FINISHED'"
        earlier = self._client.search_runs([experiment_id], query, max_results=1)
        run = earlier[0] if earlier else self._client.create_run(experiment_id, run_name=self._run)
        self._run_id = run.info.run_id
        self._client.update_run(self._run_id, status="RUNNING")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._client.set_terminated(self._run_id, "FINISHED" if kind is None else "FAILED")

    def settings(self, values: Mapping[str, object]) -> None:
        known = self._client.get_run(self._run_id).data.params
        for name, value in values.items():
            if name not in known:  # MLflow refuses to change one, and a resumed run says them again
                self._client.log_param(self._run_id, name, str(value)[:_LONGEST_VALUE])

    def figures(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run_id, name, value, step=step)

    def file(self, path: Path) -> None:
        self._client.log_artifact(self._run_id, str(path))

    def _new_experiment(self) -> str:
        place = (self._folder / "artifacts").resolve().as_uri()
        return str(self._client.create_experiment(self._experiment, artifact_location=place))


def load_mlflow() -> ModuleType:
    """MLflow without its usage reports; the only place that imports it. Raises Incompatible where it is missing."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")  # read while it is imported
    try:
        import mlflow
    except ImportError as error:
        raise Incompatible(
            "mlflow is not installed; install fovea[train], or run without tracking"
        ) from error
    return mlflow
