"""A run ends when its time is up, remembers what it spent, and starts gently from weights it was given."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloud.pretrain import export_all, parse_arguments, run_facts
from cloud.street_dataset import LABELS, Example, write_example
from cloud.street_trainer import PROGRESS_FILE, WARM_START_RATE, Pace, TrainRun, train, train_arguments
from cloud.train_plan import plan_for


def run_in(folder: Path, **changes: Any) -> TrainRun:
    return TrainRun(plan_for("student"), folder / "data.yaml", folder / "run", **changes)


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def trainer(batches: int = 10, epochs: int = 10) -> SimpleNamespace:
    groups = [{"initial_lr": 1.0, "lr": 0.0}]
    return SimpleNamespace(
        train_loader=range(batches), epochs=epochs, optimizer=SimpleNamespace(param_groups=groups), stop=False
    )


def test_a_warm_start_trains_at_a_lower_rate_than_a_cold_one(tmp_path: Path) -> None:
    cold = train_arguments(run_in(tmp_path), "cpu")
    warm = train_arguments(run_in(tmp_path, warm_start=tmp_path / "w.pt"), "cpu")
    assert warm["lr0"] == pytest.approx(cold["lr0"] * WARM_START_RATE)
    assert cold["pretrained"] is False


def test_mixed_precision_is_for_gpus_only(tmp_path: Path) -> None:
    assert train_arguments(run_in(tmp_path), "cpu")["amp"] is False
    assert train_arguments(run_in(tmp_path), "0")["amp"] == "bf16"


def test_the_run_stops_when_its_budget_is_spent(tmp_path: Path) -> None:
    clock, fake = FakeClock(), trainer()
    pace = Pace(run_in(tmp_path, budget_s=60.0), clock)
    clock.now_s += 59
    pace.on_train_batch_end(fake)
    assert not fake.stop
    clock.now_s += 2
    pace.on_train_batch_end(fake)
    assert fake.stop


def test_the_rate_falls_as_the_clock_runs_not_as_batches_pass(tmp_path: Path) -> None:
    clock, fake = FakeClock(), trainer(batches=1000)
    pace = Pace(run_in(tmp_path, budget_s=100.0), clock)
    pace.batches = 500
    rates = []
    for _ in range(3):
        pace.on_train_batch_start(fake)
        rates.append(fake.optimizer.param_groups[0]["lr"])
        clock.now_s += 40
        pace.on_train_batch_end(fake)
    assert rates[0] > rates[1] > rates[2] > 0


def test_a_resumed_run_counts_the_time_spent_before_the_kill(tmp_path: Path) -> None:
    clock, fake = FakeClock(), trainer()
    run = run_in(tmp_path, budget_s=60.0)
    run.out_dir.mkdir()
    first = Pace(run, clock)
    clock.now_s += 50
    first.on_train_batch_end(fake)
    first.on_model_save(fake)
    clock.now_s += 9999
    second = Pace(replace(run, resumes=True), clock)
    assert second.progress.elapsed_s == 50
    assert second.progress.images_seen == run.plan.batch
    clock.now_s += 11
    second.on_train_batch_end(fake)
    assert fake.stop


def test_resuming_what_never_ran_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        train(run_in(tmp_path, resumes=True))


def test_the_command_line_refuses_an_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--model", "teacher"])
    assert "student-day" in capsys.readouterr().err


def write_tiny_dataset(root: Path) -> Path:
    """Eight noise images of 64 x 64 with one box each."""
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for k in range(4):
            pixels = np.random.default_rng(k).integers(0, 256, (64, 64, 3)).astype(np.uint8)
            box = np.array([[10, 10, 40, 50]], np.float32)
            write_example(root, split, f"{k}", Example(pixels, box, np.array([k % 5])))
    data = root / "data.yaml"
    names = "".join(f"  {k}: {label}\n" for k, label in enumerate(LABELS))
    data.write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames:\n{names}")
    return data


def test_one_small_run_leaves_weights_curves_exports_and_facts(tmp_path: Path) -> None:
    plan = replace(
        plan_for("student"), train_width_px=64, val_width_px=64, export_hw_px=(64, 64), epochs=2, batch=4
    )
    run = TrainRun(plan, write_tiny_dataset(tmp_path / "data"), tmp_path / "run", device="cpu")
    outcome = train(run)
    facts = json.loads(json.dumps(run_facts(run, outcome, export_all(plan, outcome.weights, run.out_dir))))
    assert outcome.epochs == 2
    assert facts["images_seen"] == 8
    assert facts["train_images"] == 4
    assert facts["parameters"] > 300_000
    assert facts["exports"]["street-student.onnx"]["labels"] == list(LABELS)
    assert max(facts["exports"]["street-student.onnx"]["difference_from_torch"].values()) < 1e-3
    for name in ("results.csv", "results.png", "weights/last.pt", PROGRESS_FILE):
        assert (run.out_dir / name).is_file()
