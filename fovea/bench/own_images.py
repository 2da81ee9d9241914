"""Somebody's own labelled images as the three tiers see them: what `fovea calibrate all --data` works on.

Each model looks at each image once, and what it saw is kept raw, so that score calibrations can be fitted on it and
applied to it afterwards. Images that stand beside each other may be of one clip; nothing is known of motion or of
tracks.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.truth import GroundTruth
from edge_server.second_gate import second_features
from fovea.bench.cascade_recording import FLOOR, JPEG_QUALITY, RecordedPhotograph, Trio
from fovea.bench.yolo_folder import image_files, labelled_images
from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.detections import TOLD_FROM, Candidates
from fovea.core.errors import Malformed, NotFound
from fovea.core.features import SceneFacts, contrast_of, frame_features
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image, encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector

LEAST_IMAGES = 120
"""Half of them fit, a quarter searches, a quarter judges; a gate wants 60 to be fitted on."""
_RECORDING = 1


@dataclass(frozen=True, slots=True, eq=False)
class SeenImage:
    """One image: what is in it, and what the three models saw, raw."""

    clip: str
    path: Path
    truth: GroundTruth
    candidates: tuple[Candidates, Candidates, Candidates]

    @property
    def pixels(self) -> ImageArray:
        """Read again from the disk."""
        return decode_image(self.path.read_bytes())


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Images by what they are for; no clip is in two of them."""

    fit: list[SeenImage]
    search: list[SeenImage]
    judge: list[SeenImage]

    @classmethod
    def of(cls, images: Sequence[SeenImage]) -> Parts:
        """Of each four clips, in order, two fit, one searches and one judges."""
        clips = list(dict.fromkeys(image.clip for image in images))
        turn = {clip: number % 4 for number, clip in enumerate(clips)}
        by_turn = [[image for image in images if turn[image.clip] == number] for number in range(4)]
        return cls([*by_turn[0], *by_turn[1]], by_turn[2], by_turn[3])


def labels_beside(images: Path) -> Path:
    """Where the labels of an image folder usually are: the same path with `labels` for its last `images`.

    Raises NotFound where there is no such folder."""
    parts = list(images.absolute().parts)
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] == "images":
            found = Path(*parts[:place], "labels", *parts[place + 1 :])
            if found.is_dir():
                return found
            break
    raise NotFound(
        f"labels of {images}: expected a folder `labels` beside `images`, or to be told where they are"
    )


def see_images(
    images: Path,
    labels: Path,
    names: LabelSet,
    trio: Trio,
    folder: Path,
    frames_a_clip: int = 1,
    progress: Callable[[int, int], None] = lambda done, every: None,
) -> list[SeenImage]:
    """Lets the three models look at every image; what lies in `folder` from a run before is taken from there.
    `names` are the classes that the label files count.

    Raises NotFound without images or labels, Malformed for labels that are wrong or fewer than LEAST_IMAGES images.
    """
    if not labels.is_dir():
        raise NotFound(f"labels: there is no folder {labels}")
    files = image_files(images)
    if len(files) < LEAST_IMAGES:
        raise Malformed(
            f"{images}: expected {LEAST_IMAGES} images or more to fit, search and judge, got {len(files)}"
        )
    bundles = [Bundle.open(path) for path in (trio.camera, trio.edge, trio.cloud)]
    digest = hashlib.sha256(b"".join(bundle.model for bundle in bundles)).hexdigest()[:10]
    folder.mkdir(parents=True, exist_ok=True)
    detectors = [OnnxDetector.open(bundle, "cpu", 1) for bundle in bundles]
    seen = []
    try:
        for number, (path, frame) in enumerate(
            zip(files, labelled_images(images, labels, names), strict=True)
        ):
            kept = folder / f"{path.stem}-{_digest(path)}-{digest}-{_RECORDING}.pickle"
            if not kept.exists():
                looks = [detector.detect([frame.pixels])[0].candidates for detector in detectors]
                partial = kept.with_suffix(".part")
                partial.write_bytes(pickle.dumps(looks))
                partial.replace(kept)
            camera, edge, cloud = pickle.loads(kept.read_bytes())
            clip = f"{number // frames_a_clip:06d}"
            seen.append(SeenImage(clip, path, frame.truth, (camera, edge, cloud)))
            progress(number + 1, len(files))
    finally:
        for detector in detectors:
            detector.close()
    return seen


def class_ids_of(images: Sequence[SeenImage]) -> list[int]:
    """The classes that stand in the truth."""
    return sorted({int(each) for image in images for each in image.truth.class_ids[~image.truth.ignore]})


def recorded_images(images: Sequence[SeenImage], bundles: Sequence[Bundle]) -> list[RecordedPhotograph]:
    """The images with what each bundle (camera, edge, cloud) answers, calibrated as the bundle has it now; each a
    second after the one before."""
    known: Mapping[Tier, LabelSet] = {
        tier: bundle.manifest.label_set for tier, bundle in zip(Tier, bundles, strict=True)
    }
    return [_recorded(number, image, bundles, known) for number, image in enumerate(images)]


def _recorded(
    number: int, image: SeenImage, bundles: Sequence[Bundle], known: Mapping[Tier, LabelSet]
) -> RecordedPhotograph:
    pixels = image.pixels
    camera, edge, cloud = (
        answer(seen, bundle.calibration(), FLOOR, bundle.ref)
        for seen, bundle in zip(image.candidates, bundles, strict=True)
    )
    told = camera.detections.above(TOLD_FROM)
    below = TierAnswer(Tier.AGENT, camera.detections, known[Tier.AGENT])
    return RecordedPhotograph(
        clip=image.clip,
        condition="own",
        clip_index=number,
        at_s=0.0,
        truth=image.truth,
        features=frame_features(camera.candidates, told, SceneFacts(contrast=contrast_of(pixels))),
        edge_features=second_features(edge, known[Tier.EDGE], [below], pixels),
        camera=camera.detections,
        edge=edge.detections,
        cloud=cloud.detections,
        jpeg_bytes=len(encode_jpeg(np.ascontiguousarray(pixels), JPEG_QUALITY)),
        known=known,
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:10]
