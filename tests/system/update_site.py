"""A site for tests of live updates: a signed repository behind a real web server, and models that break on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fovea.core.release import DesiredState, ModelPin, Probation, Stage
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import encode_png
from tests.builders import tiny_bundle, tiny_onnx
from tests.file_server import FileServer
from tests.unit.release_site import FAMILY, GROUP, Site, state

SIZE_PX = 96


class FolderFiles(dict[str, bytes]):
    """What lies in a folder now, as a web server has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, path: str, default: Any = None) -> Any:
        file = self._folder / path
        return file.read_bytes() if file.is_file() else default


class Releases:
    """One group and one family; every order is published with the next serial."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        repository = self.site.repository()
        repository.init()
        assert repository.add_family(FAMILY).is_published
        self.server = FileServer(FolderFiles(self.site.public))
        self._serial = 0

    def add(self, bundle: Bundle) -> ModelPin:
        return self.site.repository().add_bundle(FAMILY, bundle).pin

    def order(self, champion: ModelPin, **changes: Any) -> DesiredState:
        self._serial += 1
        usual = {"policy": None, "probation": Probation(8, 1.0)}
        desired = state(champion, self._serial, **(usual | changes))
        self.site.repository().publish(desired)
        return desired

    def order_all(self, champion: ModelPin, candidate: ModelPin, **changes: Any) -> DesiredState:
        return self.order(champion, candidate=candidate, stage=Stage.ALL, run_share=1.0, **changes)

    def updates_config(self, folder: Path) -> dict[str, Any]:
        """The part `updates` of a device that keeps its state in `folder`."""
        return {
            "url": self.server.url,
            "root": str(self.site.public / "metadata" / "1.root.json"),
            "folder": str(folder),
            "group": GROUP,
            "family": FAMILY,
            "poll_every_s": 1.0,
            "hint_spread_s": 0.0,
        }


@contextmanager
def releases(folder: Path) -> Iterator[Releases]:
    made = Releases(folder)
    try:
        yield made
    finally:
        made.server.close()


def small_model(version: str, **changes: Any) -> Bundle:
    """A tiny model that runs."""
    return tiny_bundle(version=version, **changes)


def breaks_on_white(version: str) -> Bundle:
    """Runs on noise and on nothing, as a trial shows them, and fails on a picture that is white all over."""
    model = onnx.load_from_string(tiny_onnx())
    graph = model.graph
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name == "logits":
                node.output[index] = "sound_logits"
    constants = {
        "bright_from": np.array(0.9, np.float32),
        "too_far": np.array(5, np.int64),
        "one_zero": np.zeros(1, np.float32),
    }
    graph.initializer.extend([numpy_helper.from_array(value, name) for name, value in constants.items()])
    graph.node.extend(
        [
            helper.make_node("ReduceMean", ["images"], ["brightness"], keepdims=0),
            helper.make_node("Greater", ["brightness", "bright_from"], ["is_bright"]),
            helper.make_node("Cast", ["is_bright"], ["bright"], to=TensorProto.INT64),
            helper.make_node("Mul", ["bright", "too_far"], ["index"]),
            helper.make_node("Gather", ["one_zero", "index"], ["nothing"]),
            helper.make_node("Add", ["sound_logits", "nothing"], ["logits"]),
        ]
    )
    onnx.checker.check_model(model)
    return tiny_bundle(model=model.SerializeToString(), version=version)


def write_white_pictures(folder: Path, count: int = 6) -> Path:
    """A folder that stands for a camera: white but for a grain that is different every time."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(250, 256, (SIZE_PX, SIZE_PX, 3), np.uint8)
        (folder / f"{number:02}.png").write_bytes(encode_png(pixels))
    return folder


def write_bundle(file: Path, bundle: Bundle) -> Path:
    file.write_bytes(bundle.to_bytes())
    return file


def reported_in(stats_file: Path) -> dict[str, Any]:
    """What an agent without a broker reports: in its stats file; empty before the first time."""
    try:
        found: dict[str, Any] = json.loads(stats_file.read_text()).get("updates") or {}
    except FileNotFoundError:
        return {}
    return found
