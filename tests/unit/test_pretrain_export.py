"""The cut graph says what the torch model says, for every head that Ultralytics trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud.export_cut import export_module
from cloud.train_plan import ARCHITECTURES
from fovea.runtime.ort import open_session
from fovea.serving.vendor_env import load_ultralytics

torch = pytest.importorskip("torch")


def detector(config: str, classes: int = 5) -> Any:
    load_ultralytics()
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    model = DetectionModel(config, ch=3, nc=classes, verbose=False)
    for (
        module
    ) in model.modules():  # a trained net has batch statistics of its own; fusing has to carry them over
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def student() -> Any:
    return detector(str(ARCHITECTURES / "street-student.yaml"))


def images(batch: int, hw: tuple[int, int]) -> Any:
    return np.random.default_rng(1).random((batch, 3, *hw), np.float32)


def run(path: Path, feed: Any) -> list[Any]:
    return open_session(path, "cpu").run({"images": feed}, ("boxes", "logits"))


def raw_outputs(model: Any, feed: Any) -> list[Any]:
    head = model.model[-1]
    with torch.no_grad():
        _, raw = model(torch.from_numpy(feed))
    raw = raw.get("one2many", raw)
    assert raw["boxes"].shape[1] == 4 * head.reg_max
    return [raw["boxes"].numpy(), raw["scores"].numpy()]


def assert_close(got: list[Any], wanted: list[Any], share: float) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= share * np.abs(b).max()


@pytest.mark.parametrize("name", ["street-student", "street-edge"])
def test_the_graph_answers_as_the_torch_model_does(name: str, tmp_path: Path) -> None:
    model, feed = detector(str(ARCHITECTURES / f"{name}.yaml")), images(2, (96, 160))
    export = export_module(model, tmp_path / "m.onnx", (96, 160))
    assert_close(run(export.path, feed), raw_outputs(model, feed), 1e-3)
    assert export.strides == (8, 16, 32)
    assert len(export.labels) == 5


@pytest.mark.parametrize("config", ["yolov8n.yaml", "yolo11n.yaml", "yolo26n.yaml"])
def test_stock_heads_export_their_one_to_many_branch(config: str, tmp_path: Path) -> None:
    model, feed = detector(config, classes=3), images(1, (64, 64))
    export = export_module(model, tmp_path / "m.onnx", (64, 64))
    assert_close(run(export.path, feed), raw_outputs(model, feed), 1e-3)
    assert export.reg_max == model.model[-1].reg_max


def test_any_batch_gives_the_answers_of_single_images(tmp_path: Path) -> None:
    export = export_module(student(), tmp_path / "m.onnx", (64, 96))
    feed = images(3, (64, 96))
    singles = [run(export.path, feed[k : k + 1]) for k in range(3)]
    together = run(export.path, feed)
    for output in range(2):
        np.testing.assert_allclose(
            together[output], np.concatenate([s[output] for s in singles]), rtol=1e-3, atol=1e-4
        )


def test_half_weights_halve_the_file_and_hardly_move_the_answer(tmp_path: Path) -> None:
    model, feed = student(), images(1, (64, 96))
    whole = export_module(model, tmp_path / "whole.onnx", (64, 96))
    half = export_module(model, tmp_path / "half.onnx", (64, 96), half=True)
    assert half.path.stat().st_size < 0.6 * whole.path.stat().st_size
    answers = run(half.path, feed)
    assert all(a.dtype == np.float32 for a in answers)
    assert_close(answers, run(whole.path, feed), 1e-2)


def test_exporting_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model, feed = student(), images(1, (64, 64))
    before = raw_outputs(model, feed)
    export_module(model, tmp_path / "m.onnx", (64, 64), half=True)
    assert_close(raw_outputs(model, feed), before, 0.0)


def test_a_size_that_the_strides_do_not_divide_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="multiples of strides"):
        export_module(student(), tmp_path / "m.onnx", (180, 320))
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_detection_head_is_refused(tmp_path: Path) -> None:
    load_ultralytics()
    from ultralytics.nn.tasks import ClassificationModel

    with pytest.raises(ValueError, match="Detect head"):
        export_module(ClassificationModel("yolov8n-cls.yaml", verbose=False), tmp_path / "m.onnx", (64, 64))
