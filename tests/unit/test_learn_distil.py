"""A round of training leaves a bundle with its descent, goes on after a kill, and refuses what cannot work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud.learn.checkpoint import Checkpoints, Progress
from cloud.learn.dataset import Origin, Snapshot, Split
from cloud.learn.distil import CHECKPOINT, CURVES, FACTS, DistilRun, Mode, distil, next_version
from cloud.learn.settings import DistilSettings
from cloud.learn.tracking import NoTracking
from fovea.core.errors import Incompatible, Malformed, StoreCorrupt
from fovea.core.labels import LabelSet
from fovea.runtime.bundle import GATE, MODEL, Bundle
from fovea.runtime.manifest import Precision
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.ort import open_session
from tests.learning_images import STREET, image, snapshot, zoo

pytest.importorskip("torch")

STUDENT = "street-student-day-fp32"
SMALL = DistilSettings(batch=4, warmup_steps=1, average_over_steps=2, validations=2, places=8, val_images=4)


class Stopped(Exception):
    """The process is gone."""


def run_in(folder: Path, **changes: Any) -> DistilRun:
    wanted: dict[str, Any] = {
        "student": zoo(STUDENT), "snapshot": snapshot(folder / "data"), "out_dir": folder / "out",
        "mode": Mode.PSEUDO, "epochs": 1.0, "settings": SMALL, "device": "cpu",
    }  # fmt: skip
    return DistilRun(**{**wanted, **changes})


def done(run: DistilRun) -> Any:
    return distil(run, note=lambda _: None)


def answers(bundle: Bundle) -> list[Any]:
    spec = bundle.manifest.input
    feed = np.random.default_rng(0).random((1, 3, spec.height, spec.width), np.float32)
    return open_session(bundle.model, "cpu").run({"images": feed}, ("boxes", "logits"))


def dies_after(steps: int) -> Callable[[], float]:
    """A clock that ends the run as a kill would, at its `steps`-th step."""
    calls = [0]

    def clock_s() -> float:
        calls[0] += 1
        if calls[0] > steps + 1:  # it is read once before the first step
            raise Stopped
        return float(calls[0])

    return clock_s


def test_the_new_student_names_its_parent_and_its_data_and_runs(tmp_path: Path) -> None:
    run = run_in(
        tmp_path, mode=Mode.PSEUDO_KD, teacher=zoo("street-cloud"), settings=replace(SMALL, most_looks=2)
    )
    outcome = done(run)
    manifest, parent = outcome.bundle.manifest, zoo(STUDENT).manifest
    assert manifest.parent is not None and manifest.parent.ref() == zoo(STUDENT).ref
    assert run.snapshot.digest in manifest.dataset
    assert (manifest.name, manifest.version, manifest.precision) == (parent.name, "1.1.1", Precision.FP32)
    assert (manifest.labels, manifest.input, manifest.output) == (parent.labels, parent.input, parent.output)
    assert manifest.report["distil.mode"] == "pseudo_kd" and manifest.report["distil.teacher"]
    assert set(outcome.bundle.parts) == {MODEL}  # a gate or calibration of the parent would be stale
    assert GATE not in outcome.bundle.parts
    detector = OnnxDetector.open(Bundle.open(run.out_dir / manifest.file_name), "cpu")
    assert len(detector.detect([np.zeros((90, 160, 3), np.uint8)])) == 1
    assert outcome.curves.read_bytes().startswith(b"\x89PNG")
    assert (run.out_dir / FACTS).is_file() and (run.out_dir / CURVES) == outcome.curves
    assert sorted(p.suffix for p in (run.out_dir / "looks").glob("*/*")) == [".npz", ".npz"]


def test_training_fits_the_images_better_than_before(tmp_path: Path) -> None:
    images = [image(n) for n in range(8)]
    data = Snapshot.write(tmp_path / "data", images, STREET, val_share=0.0)
    settings = replace(SMALL, rate=2e-3, validations=6)
    lines: list[dict[str, float]] = []

    class Recording(NoTracking):
        def figures(self, values: Any, step: int) -> None:
            lines.append(dict(values))

    distil(run_in(tmp_path, snapshot=data, epochs=12.0, settings=settings), lambda _: None, Recording())
    first, last = (row["box"] + row["classes"] + row["bins"] for row in (lines[0], lines[-1]))
    assert last < 0.8 * first


def test_a_killed_run_ends_up_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    often = replace(SMALL, checkpoint_every_s=0.5)
    whole = done(run_in(tmp_path, out_dir=tmp_path / "whole", epochs=2.0, settings=often))
    killed = run_in(tmp_path, out_dir=tmp_path / "killed", epochs=2.0, settings=often)
    for steps in (2, 3):
        with pytest.raises(Stopped):
            distil(killed, lambda _: None, clock_s=dies_after(steps))
    said: list[str] = []
    resumed = distil(killed, said.append)
    assert "goes on after" in said[0] and "goes on after 0 images" not in said[0]
    assert resumed.facts["distil.steps"] == whole.facts["distil.steps"]
    for got, wanted in zip(answers(resumed.bundle), answers(whole.bundle), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = done(run_in(tmp_path))
    again = distil(run_in(tmp_path), lambda _: None, clock_s=dies_after(0))
    assert again.bundle.model == first.bundle.model


def test_another_seed_trains_another_student(tmp_path: Path) -> None:
    models = [done(run_in(tmp_path, out_dir=tmp_path / str(seed), seed=seed)).bundle.model for seed in (0, 1)]
    assert models[0] != models[1]


def test_without_the_teacher_only_what_people_labelled_is_learned(tmp_path: Path) -> None:
    run = run_in(tmp_path, mode=Mode.NONE)
    assert {i.origin for i in run.snapshot.of(Split.TRAIN) if i.teacher is None} == {Origin.GOLDEN}
    outcome = done(run)
    assert outcome.facts["distil.mode"] == "none" and "distil.teacher" not in outcome.facts
    only = [image(n) for n in range(3)]
    with pytest.raises(Malformed, match="no image to learn from"):
        data = Snapshot.write(tmp_path / "other", only, STREET, val_share=0.0)
        done(run_in(tmp_path, out_dir=tmp_path / "b", mode=Mode.NONE, snapshot=data))


def test_a_teacher_with_the_same_head_teaches_by_its_raw_outputs(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []

    class Recording(NoTracking):
        def figures(self, values: Any, step: int) -> None:
            rows.append(dict(values))

    run = run_in(tmp_path, mode=Mode.PSEUDO_KD, teacher=zoo("street-student-fp32"))
    distil(run, lambda _: None, Recording())
    assert rows and all(row["raw"] > 0 and "candidates" not in row for row in rows)


def test_minutes_end_a_run(tmp_path: Path) -> None:
    ticks = iter(range(0, 10_000, 15))
    outcome = distil(
        run_in(tmp_path, epochs=None, minutes=1.0), lambda _: None, clock_s=lambda: float(next(ticks))
    )
    assert outcome.facts["distil.steps"] == 4


def test_a_run_needs_an_end_and_for_distillation_a_teacher(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="minutes or epochs"):
        run_in(tmp_path, epochs=None)
    with pytest.raises(Malformed, match="needs the teacher"):
        run_in(tmp_path, mode=Mode.PSEUDO_KD)


def test_a_folder_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    done(run_in(tmp_path))
    with pytest.raises(Malformed, match="holds another run"):
        done(run_in(tmp_path, seed=7))


def test_a_damaged_checkpoint_is_said_to_be_one(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.out_dir.mkdir()
    (run.out_dir / CHECKPOINT).write_bytes(b"PK nonsense")
    with pytest.raises(StoreCorrupt, match="not a checkpoint"):
        done(run)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c.pt", "run")
    assert kept.find() is None
    kept.save(Progress(3, 12, 4.5, [{"box": 1.0}]), {"model": {}})
    found = kept.find()
    assert found is not None
    assert (found[0].steps, found[0].images_seen, found[0].elapsed_s, found[0].curve) == (
        3,
        12,
        4.5,
        [{"box": 1.0}],
    )


def test_a_data_set_of_other_classes_is_refused(tmp_path: Path) -> None:
    labels = LabelSet.from_names((*STREET.names, "dog"))
    data = Snapshot.write(tmp_path / "data", [image(1)], labels)
    with pytest.raises(Incompatible, match="has the classes"):
        done(run_in(tmp_path, snapshot=data))


def test_an_eight_bit_student_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="8-bit"):
        done(run_in(tmp_path, student=zoo("street-student-int8")))


@pytest.mark.parametrize(
    ("version", "wanted"), [("1.1.0", "1.1.1"), ("2", "3"), ("1.9", "1.10"), ("1.0-beta", "1.0-beta.1")]
)
def test_the_last_number_of_a_version_is_raised(version: str, wanted: str) -> None:
    assert next_version(version) == wanted


@pytest.mark.parametrize("change", [{"batch": 0}, {"rate": 0.0}, {"calm_share": 2.0}, {"shares": {}}])
def test_impossible_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="distillation"):
        DistilSettings(**change)
