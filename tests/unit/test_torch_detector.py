"""Torch detectors: wrong weights are refused when they are loaded, and vendor forms are read as they are meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fovea.core.errors import FoveaError, Incompatible, Malformed, NotFound
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from fovea.core.yolo import RawBoxes
from fovea.serving.torch_detector import TorchDetector, _TorchvisionNetwork, _UltralyticsNetwork

torch = pytest.importorskip("torch", reason="torch is not installed here")
SSD = "ssdlite320_mobilenet_v3_large"


def test_an_unknown_architecture_is_not_found_and_the_known_ones_are_named() -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed here")
    with pytest.raises(NotFound, match="fasterrcnn_resnet50_fpn_v2"):
        TorchDetector.torchvision("yolo", device="cpu")


@pytest.mark.parametrize(
    ("content", "kind", "word"),
    [
        (None, NotFound, "no weights file"),
        (b"", Malformed, "empty"),
        (b"<html>404</html>", Malformed, "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", Malformed, "git-LFS"),
        (b"PK\x03\x04 cut short", Malformed, "no state dict"),
        (
            b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",
            Malformed,
            "no state dict",
        ),
    ],
)
def test_a_file_that_is_no_weights_is_refused(
    content: bytes | None, kind: type[FoveaError], word: str, tmp_path: Path
) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed here")
    path = tmp_path / "weights.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind, match=word):
        TorchDetector.torchvision(SSD, path, device="cpu")


def test_weights_of_another_network_are_refused_with_the_number_of_categories(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed here")
    path = tmp_path / "other.pth"
    torch.save({"layer.weight": torch.zeros(3)}, path)
    with pytest.raises(Malformed, match=f"not those of {SSD} with 3 categories"):
        TorchDetector.torchvision(SSD, path, ("__background__", "person", "car"), "cpu")


@pytest.mark.parametrize("content", [b"<html>404</html>", b"PK\x03\x04 cut short", b"\x80\x02]q\x00."])
def test_a_file_that_is_no_ultralytics_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ultralytics", reason="ultralytics is not installed here")
    path = tmp_path / "best.pt"
    path.write_bytes(content)
    with pytest.raises(Malformed, match=r"best.pt"):
        TorchDetector.ultralytics(path, "cpu", config_folder=tmp_path / "settings")


def test_a_size_that_the_strides_do_not_divide_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(Malformed, match="multiples of 32 px, got 100x64"):
        TorchDetector.ultralytics(path, "cpu", ImageSize(100, 64))


def test_a_cuda_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="cuda:99"):
        TorchDetector.ultralytics(tmp_path / "best.pt", "cuda:99")


def test_categories_with_gaps_become_labels_without_them() -> None:
    names = ("__background__", "person", "N/A", "car")
    network = _TorchvisionNetwork(torch.nn.Identity(), "cpu", names, ImageSize(64, 64))
    assert network.labels == LabelSet.from_names(["person", "car"])
    output = {
        "boxes": np.array([[0, 0, 8, 8], [1, 1, 9, 9], [2, 2, 9, 9], [3, 3, 9, 9]], np.float32),
        "scores": np.array([0.9, 0.8, 0.7, 0.0001], np.float32),
        "labels": np.array([3, 1, 2, 1]),
    }
    raw: RawBoxes = network.decode(output, 0.001)
    np.testing.assert_allclose(raw.class_scores, [[0, 0.9], [0.8, 0]])
    np.testing.assert_array_equal(raw.boxes_xyxy, output["boxes"][:2])


class RTDETRDecoder(torch.nn.Identity):  # type: ignore[misc, name-defined]
    """Named as the vendor's head, which is how it is recognised."""


def test_the_queries_of_rtdetr_are_read_in_shares_of_a_stretched_input() -> None:
    model = torch.nn.Module()
    model.model = [RTDETRDecoder()]
    network = _UltralyticsNetwork(model, "cpu", LabelSet.from_names(["person", "car"]), ImageSize(200, 100))
    assert network.placement.value == "stretch"
    raw = network.decode(np.array([[0.5, 0.5, 0.2, 0.4, 0.9, 1.0]], np.float32), 0.001)
    np.testing.assert_allclose(raw.boxes_xyxy, [[80, 30, 120, 70]], atol=1e-4)
    np.testing.assert_allclose(raw.class_scores, [[0, 0.9]])
