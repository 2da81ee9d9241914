"""A cloud that begins a round of learning by itself: a process beside it, whose end leaves the serving alone."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.builders import tiny_bundle
from tests.system.service_process import FOVEA, free_port, health_at, metrics_at, running, until


def test_a_round_begins_when_it_is_due_and_its_failure_harms_nothing(tmp_path: Path) -> None:
    model = tiny_bundle().write(tmp_path)
    config = tmp_path / "cloud.yaml"
    told = {
        "listen": f"127.0.0.1:{free_port()}",
        "metrics": f"127.0.0.1:{free_port()}",
        "bundle": str(model),
        "store": {"folder": "cases"},
        "learning": {
            "folder": "rounds",
            # No such model: the round breaks before it has begun.
            "student": str(tmp_path / "no.fovea"),
            "champion": str(tmp_path / "no.fovea"),
            "triggers": {
                "every_days": 1e-6,
                "least_cases": 0,
                "least_pause_hours": 0.0,
                "look_every_s": 0.2,
            },
        },
        "log": {"format": "json"},
    }
    config.write_text(yaml.safe_dump(told))
    with running((FOVEA, "cloud", "--config", config)) as cloud:
        metrics = cloud.event("serving")["metrics"]
        until(lambda: health_at(metrics)["learning"]["failed"] == 1, "the round has failed")
        facts = health_at(metrics)
        assert facts["healthy"] and facts["learning"] == {
            "running": None, "begun": 1, "well": 0, "failed": 1, "elsewhere": 0
        }  # fmt: skip
        assert metrics_at(metrics)['fovea_learning_processes_total{what="failed"}'] == 1
        assert "no.fovea" in (tmp_path / "rounds" / "last_round.log").read_text()
        said = [line for line in cloud.said if "the round of learning failed" in line]
        assert len(said) == 1 and "no.fovea" in said[0]
        assert cloud.stop() < 10
