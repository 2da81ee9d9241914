"""Training and other tasks run as Ray tasks, on a cluster of two nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud.learn.distil import Mode
from cloud.learn.executor import JobState, Task
from cloud.learn.tasks import distil_task
from fovea.core.errors import NotFound
from fovea.runtime.bundle import Bundle
from tests.learning_tasks import tiny_distillation, until

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fovea[ray]'")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from cloud.learn.ray_executor import load_ray

    load_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture
def executor(cluster: Any) -> Iterator[Any]:
    from cloud.learn.ray_executor import RayExecutor

    made = RayExecutor(cluster.address)
    yield made
    made.close()


def ended(executor: Any, name: str) -> Any:
    until(lambda: executor.report(name).state is not JobState.RUNNING, f"{name} ends")
    return executor.report(name)


@pytest.mark.timeout(900)
def test_a_training_runs_on_a_cluster_of_two_nodes(cluster: Any, executor: Any, tmp_path: Path) -> None:
    import ray

    assert sum(node["Alive"] for node in ray.nodes()) == 2
    files: dict[str, Any] = tiny_distillation(tmp_path)
    task = distil_task("round-1", mode=Mode.PSEUDO, epochs=1.0, **files)
    executor.start(task)
    executor.start(task)
    report = ended(executor, "round-1")
    assert report.state is JobState.DONE, report.reason
    assert Bundle.open(Path(report.result["bundle"])).manifest.parent is not None


@pytest.mark.timeout(900)
def test_what_a_task_refuses_is_told_and_an_unknown_one_is_not_found(executor: Any) -> None:
    executor.start(Task("bad", "cloud.learn.tasks:run_distil", {}))
    report = ended(executor, "bad")
    assert report.state is JobState.FAILED and "distillation task" in report.reason
    with pytest.raises(NotFound):
        executor.report("never")
