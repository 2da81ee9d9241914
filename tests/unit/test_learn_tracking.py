"""Runs are recorded in a local file without a word to anybody, and a run that goes on keeps its entry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloud.learn.tracking import MlflowTracking, NoTracking, load_mlflow

pytest.importorskip("mlflow")


def runs(folder: Path, uri: str | None = None) -> list[object]:
    client = load_mlflow().MlflowClient(uri or f"sqlite:///{folder / 'mlflow.db'}")
    found = client.get_experiment_by_name("distil")
    return list(client.search_runs([found.experiment_id]))


def test_a_run_is_recorded_with_what_was_decided_measured_and_made(tmp_path: Path) -> None:
    made = tmp_path / "curves.png"
    made.write_bytes(b"png")
    with MlflowTracking(tmp_path / "records", "distil", "round-1") as record:
        record.settings({"rate": 0.001, "student": "street"})
        record.figures({"box": 2.0}, step=1)
        record.figures({"box": 1.5}, step=2)
        record.file(made)
    [run] = runs(tmp_path / "records")
    assert run.info.status == "FINISHED"  # type: ignore[attr-defined]
    assert run.data.params == {"rate": "0.001", "student": "street"}  # type: ignore[attr-defined]
    assert run.data.metrics == {"box": 1.5}  # type: ignore[attr-defined]
    assert [p.read_bytes() for p in (tmp_path / "records" / "artifacts").rglob("curves.png")] == [b"png"]


def test_a_run_that_broke_off_is_failed_and_goes_on_under_its_entry(tmp_path: Path) -> None:
    for attempt in (1, 2):
        try:
            with MlflowTracking(tmp_path, "distil", "round-1") as record:
                record.settings({"rate": 0.001})
                record.figures({"box": float(attempt)}, step=attempt)
                if attempt == 1:
                    raise OSError("disk full")
        except OSError:
            assert runs(tmp_path)[0].info.status == "FAILED"  # type: ignore[attr-defined]
    [run] = runs(tmp_path)
    assert run.info.status == "FINISHED"  # type: ignore[attr-defined]
    assert run.data.metrics == {"box": 2.0}  # type: ignore[attr-defined]


def test_two_rounds_are_two_entries(tmp_path: Path) -> None:
    for name in ("round-1", "round-2"):
        with MlflowTracking(tmp_path, "distil", name):
            pass
    assert len(runs(tmp_path)) == 2


def test_mlflow_is_told_not_to_report_before_it_is_imported() -> None:
    code = (
        "import os; from cloud.learn.tracking import load_mlflow; load_mlflow(); "
        "print(os.environ['MLFLOW_DISABLE_TELEMETRY'], os.environ['DO_NOT_TRACK'])"
    )
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["true", "true"]


def test_without_tracking_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with NoTracking() as record:
        record.settings({"a": 1})
        record.figures({"b": 2.0}, 1)
        record.file(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []
