"""The benchmarks themselves, small: street frames on disk, models in processes, figures, the command line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import fovea.bench
from calibration.evaluate import match
from calibration.quant_search import SearchSettings
from calibration.quantize import quantize_bundle
from fovea.bench import quantize, sim, zoo
from fovea.bench.model_runs import ModelJob, run_models
from fovea.bench.real import load_coco_val
from fovea.bench.street_frames import StoredFrames, Wanted, stored_frames
from fovea.bench.street_quantization import StreetSplits, fit_scores_on_street, search_table
from fovea.bench.yolo_folder import labelled_images
from fovea.cli.bench import app
from fovea.core.errors import BrokenError, Malformed, NotFound
from fovea.core.labels import LabelSet
from tests.builders import scene, tiny_bundle
from tests.unit.evaluation_frames import LABELS, random_frames
from tests.unit.small_nets import BODY_CONVS, silu_onnx

CONDITIONS = ("day", "night", "fog")
WANTED = Wanted("val", per_clip=1, clips=1, conditions=CONDITIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("frames")
    stored_frames(made, WANTED, workers=1, progress=lambda done, every: None)
    return made


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = tmp_path_factory.mktemp("bundles")
    fp32 = tiny_bundle(model=silu_onnx(), name="street-fp32", parameters=123)
    frames = [scene(64, 64, seed) for seed in range(4)]
    int8 = quantize_bundle(fp32, frames, lambda bundle: 0.5, SearchSettings(most_trials=3)).bundle
    return fp32.write(made), int8.write(made)


def test_stored_frames_hold_every_condition_and_are_not_drawn_twice(folder: Path) -> None:
    frames = StoredFrames.open(folder)
    assert list(frames.groups_by_condition()) == list(CONDITIONS)
    assert len(frames) == len(CONDITIONS)
    first = next(iter(frames))
    assert first.pixels.shape[2] == 3
    assert first.group == "street-v1/val/day/000"
    assert sum(len(frame.truth) for frame in frames) > 0
    drawn: list[int] = []
    again = stored_frames(folder, WANTED, workers=1, progress=lambda done, every: drawn.append(done))
    assert not drawn
    assert np.array_equal(again.pixels, frames.pixels)


def test_stored_frames_are_those_that_the_suite_gives_out_for_evaluation(folder: Path) -> None:
    from fovea.bench.street_frames import labelled
    from fovea.sim.suite import load_suite

    frame = labelled(next(load_suite("street-v1").evaluation_frames("val", "day", 1)))
    stored = next(iter(StoredFrames.open(folder)))
    assert np.array_equal(frame.pixels, stored.pixels)
    assert np.array_equal(frame.truth.boxes_xyxy, stored.truth.boxes_xyxy)


def test_models_run_in_processes_of_their_own_and_come_back_with_matches(
    folder: Path, bundles: tuple[Path, Path]
) -> None:
    seen: dict[str, int] = {}
    jobs = [ModelJob("a", bundles[0]), ModelJob("b", bundles[1])]
    runs = run_models(jobs, folder, workers=2, progress=lambda name, done: seen.update({name: done}))
    assert set(runs) == {"a", "b"}
    assert all(
        len(run.matches.groups) == len(CONDITIONS) and run.frame_ms > run.network_ms > 0
        for run in runs.values()
    )
    with pytest.raises(BrokenError, match="missing: no bundle at"):
        run_models([ModelJob("missing", folder / "none.fovea")], folder, 1, lambda name, done: None)


def test_the_quantize_bench_compares_a_bundle_with_its_parent(
    folder: Path, bundles: tuple[Path, Path]
) -> None:
    settings = quantize.QuantizeSettings(WANTED, workers=1, rounds=3, resamples=20)
    figures = quantize.run(settings, folder, fp32=bundles[0], int8=bundles[1]).figures
    assert figures["qlinear_conv"] == figures["qlinear_conv_expected"] >= BODY_CONVS - 1
    assert figures["speedup_1_thread"] > 0
    assert 0 < figures["size_ratio"] < 1
    assert figures["ap_drop_points"] == pytest.approx(
        100 * (figures["ap.fp32"] - figures["ap.int8"]), abs=1e-2
    )
    with pytest.raises(Malformed, match="is not an INT8 bundle made from"):
        quantize.run(settings, folder, fp32=bundles[1], int8=bundles[0])


def test_zoo_figures_are_named_by_model_and_condition() -> None:
    frames = random_frames(24, 1)
    rows = tuple({"group": f.group, "condition": "day" if i < 12 else "fog"} for i, f in enumerate(frames))
    stored = StoredFrames(np.zeros((24, 1, 1, 3), np.uint8), rows)
    tables = {"edge": match(frames, LABELS.ids), "student_int8": match(random_frames(24, 2), LABELS.ids)}
    figures = zoo.ap_figures(tables, stored, resamples=20)
    for name in tables:
        for condition in ("day", "fog", "all"):
            low, ap, high = (figures[f"{kind}.{name}.{condition}"] for kind in ("ap_low", "ap", "ap_high"))
            assert low <= ap <= high
            assert figures[f"ap50.{name}.{condition}"] >= ap
    gain = figures["gain.edge_over_student_int8.all"]
    assert gain == pytest.approx(figures["ap.edge.all"] - figures["ap.student_int8.all"], abs=2e-5)


def test_a_model_that_is_not_in_the_zoo_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="model 'teacher': there are cloud, edge"):
        zoo.run(zoo.ZooSettings(models=("teacher",)), tmp_path)


def test_the_renderer_is_timed_on_one_core_and_opencv_is_left_as_it_was() -> None:
    threads = cv2.getNumThreads()
    figures = sim.run(frames=1, clips=1, conditions=("fog", "day")).figures
    assert set(figures) == {"fps_1core", "fps_1core.fog", "fps_1core.day", "scene_s.fog", "scene_s.day"}
    assert all(value >= 0 for value in figures.values())
    assert cv2.getNumThreads() == threads


def test_the_search_is_told_as_a_table() -> None:
    fp32 = tiny_bundle(model=silu_onnx(), name="street-fp32")
    made = quantize_bundle(fp32, [scene(64, 64, 1)], lambda bundle: 0.5, SearchSettings(most_trials=2))
    table = search_table(made).splitlines()
    assert table[2].startswith("| FP32 | 0.5000")
    assert len(table) == 3 + len(made.search.trials)
    assert sum("**" in line for line in table) == 1
    assert {line.count("|") for line in table} == {7}


def test_scores_are_fitted_on_some_clips_and_judged_on_others(tmp_path: Path) -> None:
    splits = StreetSplits(validation=Wanted("val", per_clip=2, clips=2, conditions=("day",)))
    bundle = tiny_bundle(model=silu_onnx())
    fitted = fit_scores_on_street(bundle, tmp_path, splits, workers=1)
    assert "calibration.json" in fitted.bundle.parts
    assert fitted.bundle.manifest.report["d_ece.after"] == pytest.approx(fitted.error_after, abs=1e-5)
    # A random network is hardly ever right: the fit has to learn that from the even clip and say so on the odd one.
    assert fitted.error_before > 0.1
    assert fitted.error_after < 0.1


def test_yolo_labels_become_boxes_in_pixels(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for name in ("a", "b"):
        cv2.imwrite(str(tmp_path / "images" / f"{name}.png"), np.zeros((100, 200, 3), np.uint8))
    (tmp_path / "labels" / "a.txt").write_text("2 0.5 0.5 0.1 0.2\n")
    coco = LabelSet.coco()
    first, second = labelled_images(tmp_path / "images", tmp_path / "labels", coco)
    assert first.truth.boxes_xyxy.tolist() == [[90, 40, 110, 60]]
    assert first.truth.class_ids.tolist() == [coco.ids[2]]
    assert len(second.truth) == 0
    for wrong in ("99 0.5 0.5 0.1 0.2", "1 0.5 0.5", "one 0.5 0.5 0.1 0.2"):
        (tmp_path / "labels" / "a.txt").write_text(wrong)
        with pytest.raises(Malformed, match=r"a\.txt: expected"):
            list(labelled_images(tmp_path / "images", tmp_path / "labels", coco))
    with pytest.raises(NotFound, match="no JPEG or PNG"):
        load_coco_val(tmp_path)


def test_every_bench_has_a_command_and_says_what_a_split_is() -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(app, ["--help"]).output)
    for name in ("zoo", "sim", "quantize", "real", "frame-path", "cameras"):
        assert re.search(rf"^\W*{name}\s", shown, re.MULTILINE), name
    with pytest.raises(Malformed, match="expected val or test, got 'train'"):
        CliRunner().invoke(app, ["zoo", "--split", "train"], catch_exceptions=False)


def test_the_gpu_check_says_in_one_sentence_that_there_is_no_gpu(tmp_path: Path) -> None:
    script = Path(fovea.bench.__file__).with_name("gpu_check.sh")
    ran = subprocess.run(
        ["/bin/bash", str(script)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 3
    assert ran.stdout == ""
    assert ran.stderr == ("gpu_check: no NVIDIA GPU here (nvidia-smi is not installed); nothing was run\n")
    assert os.access(script, os.X_OK)
