"""Somebody's own labelled images: found, looked at once, dealt out, and made into frames that gates are fitted on."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from fovea.bench.cascade_recording import Trio
from fovea.bench.own_images import (
    LEAST_IMAGES,
    Parts,
    SeenImage,
    class_ids_of,
    labels_beside,
    recorded_images,
    see_images,
)
from fovea.core.errors import Malformed, NotFound
from fovea.core.routing import Tier
from fovea.runtime.bundle import Bundle
from tests.builders import scene, tiny_bundle

FRAMES_A_CLIP = 5


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "images").mkdir()
    (folder / "labels").mkdir()
    for number in range(LEAST_IMAGES):
        cv2.imwrite(str(folder / "images" / f"{number:04d}.png"), scene(seed=number))
        if number % 10:
            (folder / "labels" / f"{number:04d}.txt").write_text("0 0.5 0.5 0.2 0.4\n1 0.3 0.3 0.1 0.1\n")
    return folder / "images"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Trio:
    path = tiny_bundle().write(tmp_path_factory.mktemp("bundles"))
    return Trio(path, path, path)


@pytest.fixture(scope="module")
def seen(images: Path, trio: Trio, tmp_path_factory: pytest.TempPathFactory) -> list[SeenImage]:
    names = Bundle.open(trio.camera).manifest.label_set
    folder = tmp_path_factory.mktemp("kept")
    return see_images(images, labels_beside(images), names, trio, folder, FRAMES_A_CLIP)


def test_every_image_is_seen_by_three_models_with_its_truth(seen: list[SeenImage]) -> None:
    assert len(seen) == LEAST_IMAGES
    assert len(seen[0].truth) == 0 and len(seen[1].truth) == 2
    assert all(len(each.candidates) == 3 for each in seen)
    assert len({each.clip for each in seen}) == LEAST_IMAGES // FRAMES_A_CLIP
    assert len(class_ids_of(seen)) == 2


def test_a_second_run_looks_at_nothing_again(
    images: Path, trio: Trio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Bundle.open(trio.camera).manifest.label_set
    first = see_images(images, labels_beside(images), names, trio, tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = see_images(images, labels_beside(images), names, trio, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.candidates[0].boxes_xyxy, other.candidates[0].boxes_xyxy)


def test_no_clip_is_in_two_parts_and_half_of_them_fit(seen: list[SeenImage]) -> None:
    parts = Parts.of(seen)
    clips = [{image.clip for image in part} for part in (parts.fit, parts.search, parts.judge)]
    assert not (clips[0] & clips[1] or clips[0] & clips[2] or clips[1] & clips[2])
    assert len(parts.fit) == LEAST_IMAGES / 2
    assert len(parts.search) == len(parts.judge) == LEAST_IMAGES / 4


def test_images_become_frames_with_features_of_both_gates(seen: list[SeenImage], trio: Trio) -> None:
    bundles = [Bundle.open(path) for path in (trio.camera, trio.edge, trio.cloud)]
    frames = recorded_images(seen[:8], bundles)
    assert [frame.clip_index for frame in frames] == list(range(8))
    assert all(np.isfinite(frame.features.vector).all() for frame in frames)
    assert all(np.isfinite(frame.edge_features.vector).all() for frame in frames)
    assert all(frame.jpeg_bytes > 100 for frame in frames)
    assert frames[0].labels_of(Tier.EDGE) == bundles[1].manifest.label_set
    merged = frames[0].merged(Tier.AGENT, Tier.EDGE)
    assert merged.image_size == frames[0].camera.image_size


def test_labels_are_found_beside_the_images_or_missed_in_one_sentence(images: Path, tmp_path: Path) -> None:
    assert labels_beside(images) == images.parent / "labels"
    (tmp_path / "pictures").mkdir()
    with pytest.raises(NotFound, match="labels of"):
        labels_beside(tmp_path / "pictures")


def test_too_few_images_are_refused(tmp_path: Path, trio: Trio) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "one.png"), scene())
    names = Bundle.open(trio.camera).manifest.label_set
    with pytest.raises(Malformed, match="120 images or more"):
        see_images(tmp_path / "images", tmp_path / "labels", names, trio, tmp_path / "kept")
    with pytest.raises(NotFound, match="no folder"):
        see_images(tmp_path / "images", tmp_path / "nowhere", names, trio, tmp_path / "kept")
    with pytest.raises(NotFound, match="no JPEG or PNG"):
        see_images(tmp_path / "labels", tmp_path / "labels", names, trio, tmp_path / "kept")


def test_labels_of_classes_that_nobody_knows_are_refused(images: Path, trio: Trio, tmp_path: Path) -> None:
    names = Bundle.open(trio.camera).manifest.label_set
    for number in range(LEAST_IMAGES):
        (tmp_path / f"{number:04d}.txt").write_text("99 0.5 0.5 0.2 0.4\n")
    with pytest.raises(Malformed, match="expected classes"):
        see_images(images, tmp_path, names, trio, tmp_path / "kept")
