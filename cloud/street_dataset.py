"""Renders frames of the street suite into YOLO training folders, resumable clip by clip."""

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import load_suite

LABELS = ("person", "bicycle", "car", "bus", "truck")
SUITE = "street-v1"
JPEG_QUALITY = 93
Pixels = NDArray[np.uint8]
Boxes = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class View:
    """How one model sees a frame: the frame shrunk to `frame_wh_px`, of which a crop may be cut for training.

    A crop is cut around objects more often than not; `zooms` are further shrinkings of the frame, drawn evenly,
    that show large objects whole. Validation always uses the whole frame at `frame_wh_px`.
    """

    name: str
    frame_wh_px: tuple[int, int]
    crop_wh_px: tuple[int, int] | None = None
    crops_per_frame: int = 1
    zooms: tuple[float, ...] = (1.0,)
    min_side_px: float = 2.5


VIEWS = {
    "student": View("student", (320, 180)),
    "edge": View("edge", (608, 342), (288, 224), 3, (1.0, 1.0, 1.0, 0.6)),
    "cloud": View("cloud", (960, 540), (416, 320), 3, (1.0, 1.0, 0.65, 0.45)),
}


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is rendered of one condition: `clips` clips, `frames_per_clip` frames of each."""

    clips: int
    frames_per_clip: int


@dataclass(frozen=True, slots=True)
class ClipJob:
    """One clip to render for some views: `frames` frames of it, into folders under `root`."""

    root: Path
    views: tuple[View, ...]
    split: str
    condition: str
    index: int
    frames: int


class Annotated(Protocol):
    """The part of a street object that training needs."""

    @property
    def label(self) -> str: ...
    @property
    def box_xyxy(self) -> Sequence[float]: ...
    @property
    def ignore(self) -> bool: ...


class Rendered(Protocol):
    """The part of a street frame that training needs: pixels u8[H,W,3] BGR and its objects."""

    @property
    def pixels(self) -> Pixels: ...
    @property
    def objects(self) -> Sequence[Annotated]: ...


@dataclass(frozen=True, slots=True)
class Example:
    """One training image u8[H,W,3] BGR; boxes f32[N,4] xyxy in its pixels and channel numbers i64[N]."""

    pixels: Pixels
    boxes_xyxy: Boxes
    classes: NDArray[np.int64]

    def label_lines(self) -> str:
        """The boxes as YOLO text: `class cx cy w h`, normalised to the image."""
        height, width = self.pixels.shape[:2]
        size = np.array([width, height, width, height], np.float32)
        x1, y1, x2, y2 = (self.boxes_xyxy / size).T
        rows = np.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], axis=1).clip(0.0, 1.0)
        return "".join(
            f"{k} {cx:.6f} {cy:.6f} {w:.6f} {h:.6f}\n"
            for k, (cx, cy, w, h) in zip(self.classes, rows, strict=True)
        )


def soften(pixels: Pixels, hidden_xyxy: Boxes, kept_xyxy: Boxes) -> Pixels:
    """Blur what must be neither learned as an object nor as background, except under the boxes that are kept.

    Objects flagged `ignore` have no label; left as they are they would teach the net to overlook real objects.
    Returns `pixels` itself where there is nothing to hide.
    """
    if not len(hidden_xyxy):
        return pixels
    height, width = pixels.shape[:2]
    mask = np.zeros((height, width), np.uint8)
    for value, boxes in ((1, hidden_xyxy), (0, kept_xyxy)):
        for x1, y1, x2, y2 in boxes:
            mask[max(int(y1), 0) : int(np.ceil(y2)), max(int(x1), 0) : int(np.ceil(x2))] = value
    small = cv2.resize(pixels, (max(width // 24, 1), max(height // 24, 1)), interpolation=cv2.INTER_AREA)
    smooth = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(mask[:, :, None] > 0, smooth, pixels)


def choose_window(
    rng: np.random.Generator, boxes_xyxy: Boxes, frame_wh: tuple[int, int], crop_wh: tuple[int, int]
) -> tuple[int, int]:
    """Top left corner of a crop: five times in six around an object, else anywhere; inside the frame."""
    room = np.maximum(np.array(frame_wh) - np.array(crop_wh), 0)
    if len(boxes_xyxy) and rng.random() < 5 / 6:
        x1, y1, x2, y2 = boxes_xyxy[rng.integers(len(boxes_xyxy))]
        centre = np.array([x1 + x2, y1 + y2]) / 2
        corner = centre - np.array(crop_wh) * rng.uniform(0.25, 0.75, 2)
    else:
        corner = rng.uniform(0.0, 1.0, 2) * room
    left, top = np.clip(corner, 0, room).astype(int)
    return int(left), int(top)


def shrink(pixels: Pixels, wh: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Resize as the runtime does, bilinear; one time in four by area, so that the net does not depend on it."""
    if (pixels.shape[1], pixels.shape[0]) == wh:
        return pixels
    how = cv2.INTER_LINEAR if rng.random() < 0.75 else cv2.INTER_AREA
    return np.asarray(cv2.resize(pixels, wh, interpolation=how), np.uint8)


def example_of(frame: Rendered, view: View, is_training: bool, rng: np.random.Generator) -> Example:
    """The frame as `view` sees it, with the labels that are left and the rest softened."""
    known = [o for o in frame.objects if o.label in LABELS]
    boxes = np.array([o.box_xyxy for o in known], np.float32).reshape(-1, 4)
    classes = np.array([LABELS.index(o.label) for o in known], np.int64)
    is_kept = np.array([not o.ignore for o in known], bool)

    height, width = frame.pixels.shape[:2]
    zoom = float(rng.choice(view.zooms)) if is_training else 1.0
    shrunk_wh = (round(view.frame_wh_px[0] * zoom), round(view.frame_wh_px[1] * zoom))
    pixels = shrink(frame.pixels, shrunk_wh, rng)
    boxes = boxes * np.array([shrunk_wh[0] / width, shrunk_wh[1] / height] * 2, np.float32)

    if view.crop_wh_px is not None and is_training:
        left, top = choose_window(rng, boxes[is_kept], shrunk_wh, view.crop_wh_px)
        pixels = pixels[top : top + view.crop_wh_px[1], left : left + view.crop_wh_px[0]]
        boxes = boxes - np.array([left, top, left, top], np.float32)
    return _labelled(pixels, boxes, classes, is_kept, view.min_side_px)


def _labelled(
    pixels: Pixels, boxes: Boxes, classes: NDArray[np.int64], is_kept: NDArray[np.bool_], min_side_px: float
) -> Example:
    """Clip boxes to the image; drop specks; soften what is hidden or mostly cut away."""
    size = np.array([pixels.shape[1], pixels.shape[0]] * 2, np.float32)
    clipped = np.clip(boxes, 0.0, size)
    sides = clipped[:, 2:] - clipped[:, :2]
    is_inside = (sides > 0).all(axis=1)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    share = np.prod(sides, axis=1) / np.maximum(area, 1e-6)
    is_label = is_kept & is_inside & (sides >= min_side_px).all(axis=1) & (share >= 0.3)
    is_hidden = is_inside & ~is_label & (sides >= min_side_px).all(axis=1)
    shown = soften(pixels, clipped[is_hidden], clipped[is_label])
    return Example(np.ascontiguousarray(shown), clipped[is_label], classes[is_label])


def frame_indices(rng: np.random.Generator, frame_count: int, wanted: int) -> list[int]:
    """`wanted` distinct frames of a clip, one from each of equally long stretches, so that they differ."""
    edges = np.linspace(0, frame_count, wanted + 1)
    return sorted({int(rng.uniform(low, high)) for low, high in pairwise(edges)})


def label_path(root: Path, view: View, split: str, stem: str) -> Path:
    """Where the labels of one image of a view lie."""
    return root / view.name / "labels" / split / f"{stem}.txt"


def write_example(folder: Path, split: str, stem: str, example: Example) -> None:
    """Write image, then labels; a label file therefore means that both are whole."""
    image = folder / "images" / split / f"{stem}.jpg"
    label = folder / "labels" / split / f"{stem}.txt"
    done, encoded = cv2.imencode(".jpg", example.pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise OSError(f"{image}: JPEG encoding failed")
    for path, data in ((image, encoded.tobytes()), (label, example.label_lines().encode())):
        partial = path.with_suffix(".part")
        partial.write_bytes(data)
        partial.replace(path)


def planned_clips(conditions: Sequence[str], clips: int) -> Iterator[tuple[str, int]]:
    """Condition and clip number, conditions interleaved, so that an interrupted run is still balanced."""
    for index in range(clips):
        for condition in conditions:
            yield condition, index


def render_clip(job: ClipJob) -> int:
    """Render one clip's share of the job's views; what is already there is skipped. Returns new images."""
    clip = load_suite(SUITE).clip(job.split, job.condition, job.index)
    seed = zlib.crc32(f"{job.split}/{job.condition}/{job.index}".encode())
    written = 0
    for frame_index in frame_indices(np.random.default_rng(seed), clip.frame_count, job.frames):
        wanted = [
            (view, f"{job.condition}-{job.index:05d}-{frame_index:03d}-{k}")
            for view in job.views
            for k in range(view.crops_per_frame if job.split == "train" else 1)
        ]
        missing = [(v, stem) for v, stem in wanted if not label_path(job.root, v, job.split, stem).exists()]
        if not missing:
            continue
        frame = clip.frame(frame_index)
        for view, stem in missing:
            own = np.random.default_rng(zlib.crc32(f"{view.name}/{job.split}/{stem}".encode()))
            example = example_of(frame, view, job.split == "train", own)
            write_example(job.root / view.name, job.split, stem, example)
            written += 1
    clip.release()
    return written


def render_split(
    root: Path,
    views: Sequence[View],
    split: str,
    conditions: Sequence[str],
    amount: Amount,
    processes: int = 1,
) -> int:
    """Render `amount` per condition into `root/<view>/`, clips side by side. Returns new images."""
    for view in views:
        for kind in ("images", "labels"):
            (root / view.name / kind / split).mkdir(parents=True, exist_ok=True)
    jobs = [
        ClipJob(root, tuple(views), split, condition, index, amount.frames_per_clip)
        for condition, index in planned_clips(conditions, amount.clips)
    ]
    if processes == 1:
        return sum(map(render_clip, jobs))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(render_clip, jobs))


def write_description(root: Path, view: View, conditions: Sequence[str], train: Amount, val: Amount) -> Path:
    """Write `data.yaml` for Ultralytics and `dataset.json` for people; returns the path of the former."""
    folder = (root / view.name).resolve()
    data = folder / "data.yaml"
    names = "".join(f"  {k}: {label}\n" for k, label in enumerate(LABELS))
    data.write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}", encoding="utf-8"
    )
    facts = {
        "suite": SUITE, "view": asdict(view), "conditions": list(conditions),
        "train": asdict(train), "val": asdict(val), "jpeg_quality": JPEG_QUALITY,
        "train_images": len(list((folder / "labels" / "train").glob("*.txt"))),
        "val_images": len(list((folder / "labels" / "val").glob("*.txt"))),
    }  # fmt: skip
    (folder / "dataset.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return data


def build_dataset(
    root: Path,
    views: Sequence[View],
    conditions: Sequence[str],
    train: Amount,
    val: Amount,
    processes: int = 1,
) -> dict[str, Path]:
    """Render train and val for the views; returns the `data.yaml` of each view by its name."""
    render_split(root, views, "val", conditions, val, processes)
    render_split(root, views, "train", conditions, train, processes)
    return {view.name: write_description(root, view, conditions, train, val) for view in views}


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: render ahead of training, for several views in one pass."""
    parser = argparse.ArgumentParser(prog="cloud.street_dataset", description=main.__doc__)
    parser.add_argument("--data", type=Path, default=Path("out/zoo/datasets/street"))
    parser.add_argument("--views", nargs="+", choices=sorted(VIEWS), default=sorted(VIEWS))
    parser.add_argument("--conditions", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--clips", type=int, default=100, help="train clips of each condition")
    parser.add_argument("--frames-per-clip", type=int, default=10)
    parser.add_argument("--val-clips", type=int, default=8, help="val clips of each condition")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args(argv)
    paths = build_dataset(
        args.data, [VIEWS[v] for v in args.views], args.conditions,
        Amount(args.clips, args.frames_per_clip), Amount(args.val_clips, 4), args.processes,
    )  # fmt: skip
    for path in paths.values():
        print(path)


if __name__ == "__main__":
    main()
