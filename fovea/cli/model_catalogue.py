"""Models for real cameras that others publish: where they lie, on what terms, and how to read them.

Nothing of them is part of this product; `fovea models fetch` takes them from where their authors publish them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from fovea.core.errors import Malformed, NotFound
from fovea.core.routing import Tier

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """One model file.

    urls        where it lies, the first that answers is taken; all name the same file
    licence     SPDX name of the terms that its publisher states for it
    sha256      of the file, where it is known; None: whatever comes is tried in a child process, but not known
    size_bytes  length of the file as published, a limit and for progress
    labels      `coco`, or `file`: the names that the file carries itself
    input_px    (height, width) to export or run it at
    """

    name: str
    tier: Tier
    urls: tuple[str, ...]
    licence: str
    sha256: str | None
    size_bytes: int
    labels: str = "coco"
    input_px: tuple[int, int] = (640, 640)

    def __post_init__(self) -> None:
        if not self.urls or len({PurePosixPath(urlsplit(url).path).name for url in self.urls}) != 1:
            raise Malformed(f"model {self.name}: expected addresses of one file, got {self.urls}")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise Malformed(f"model {self.name}: expected a sha256 of 64 hex digits, got {self.sha256!r:.80}")
        if self.labels not in ("coco", "file") or self.size_bytes <= 0:
            raise Malformed(f"model {self.name}: expected labels coco or file and a size, got {self}")

    @property
    def file_name(self) -> str:
        return PurePosixPath(urlsplit(self.urls[0]).path).name

    @property
    def is_weights(self) -> bool:
        """Ultralytics weights (.pt), which are exported here with torch; else ONNX, which runs as it is."""
        return self.file_name.endswith(".pt")


@dataclass(frozen=True, slots=True)
class Trio:
    """A model for each tier, from one family."""

    name: str
    licence: str
    about: str
    models: tuple[PublishedModel, ...]

    def __post_init__(self) -> None:
        if [model.tier for model in self.models] != [Tier.AGENT, Tier.EDGE, Tier.CLOUD]:
            raise Malformed(f"trio {self.name}: expected a model for agent, edge and cloud, in this order")

    @property
    def needs_torch(self) -> bool:
        return any(model.is_weights for model in self.models)


_YOLOX = "https://github.com/Megvii-BaseDetection/YOLOX/releases/download/0.1.1rc0/"
_YOLO11 = "https://github.com/ultralytics/assets/releases/download/v8.3.0/"

TRIOS: tuple[Trio, ...] = (
    Trio(
        "yolox",
        "Apache-2.0",
        "YOLOX of Megvii as ONNX, COCO classes: runs as it is, without torch and without AGPL",
        (
            PublishedModel(
                "yolox-nano", Tier.AGENT, (_YOLOX + "yolox_nano.onnx",), "Apache-2.0",
                "c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d", 3_659_407,
                input_px=(416, 416),
            ),
            PublishedModel(
                "yolox-s", Tier.EDGE, (_YOLOX + "yolox_s.onnx",), "Apache-2.0",
                "c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063", 35_858_002,
            ),
            PublishedModel(
                "yolox-l", Tier.CLOUD, (_YOLOX + "yolox_l.onnx",), "Apache-2.0",
                "7860ae79de6c89a3c1eb72ae9a2756c0ccfbe04b7791bb5880afabd97855a411", 216_746_733,
            ),
        ),
    ),
    Trio(
        "yolo11",
        "AGPL-3.0-or-later",
        "YOLO11 of Ultralytics as weights, COCO classes: exported here, which needs the training set (torch)",
        (
            PublishedModel(
                "yolo11n", Tier.AGENT, (_YOLO11 + "yolo11n.pt",), "AGPL-3.0-or-later",
                "0ebbc80d4a7680d14987a577cd21342b65ecfd94632bd9a8da63ae6417644ee1", 5_613_764,
                labels="file", input_px=(416, 416),
            ),
            PublishedModel(
                "yolo11s", Tier.EDGE, (_YOLO11 + "yolo11s.pt",), "AGPL-3.0-or-later",
                "85a76fe86dd8afe384648546b56a7a78580c7cb7b404fc595f97969322d502d5", 19_313_732, labels="file",
            ),
            PublishedModel(
                "yolo11m", Tier.CLOUD, (_YOLO11 + "yolo11m.pt",), "AGPL-3.0-or-later",
                "d5ffc1a674953a08e11a8d21e022781b1b23a19b730afc309290bd9fb5305b95", 40_684_120, labels="file",
            ),
        ),
    ),
)  # fmt: skip


def find_trio(name: str) -> Trio:
    """The trio of that name. Raises NotFound with those that there are."""
    for trio in TRIOS:
        if trio.name == name:
            return trio
    raise NotFound(f"models {name!r}: there are {', '.join(trio.name for trio in TRIOS)}")
