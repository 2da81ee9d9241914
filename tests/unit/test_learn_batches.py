"""Batches mix the origins as asked, are the same for the same seed, and move boxes with the pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.learn.batches import Batches, Deck, PictureBook
from cloud.learn.dataset import LabelledImage, Origin, Snapshot
from cloud.learn.pictures import PLAIN, Augmentation, clip_to_input, place, recolour, shrink, to_tensor
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.runtime.manifest import InputSpec
from fovea.runtime.preprocess import Preprocessor
from tests.learning_images import STREET, image, snapshot

pytest.importorskip("torch")

SPEC = InputSpec(width=320, height=192)
SHARES = {Origin.GOLDEN: 0.25, Origin.REPLAY: 0.25, Origin.NEW: 0.5}


def deck(folder: Path, counts: dict[Origin, int], seed: int = 0) -> Deck:
    images = [image(n, origin) for origin, count in counts.items() for n in range(count)]
    kept = Snapshot.write(folder, images, STREET, val_share=0.0)
    return Deck({o: tuple(i for i in kept.images if i.origin is o) for o in Origin}, SHARES, seed)


def batches(folder: Path, images: list[LabelledImage], seed: int = 0) -> tuple[Batches, Snapshot]:
    kept = Snapshot.write(folder, images, STREET, val_share=0.0)
    return Batches(PictureBook(kept, SPEC), STREET, seed), kept


def test_every_stretch_of_batches_has_the_shares_that_were_asked_for(tmp_path: Path) -> None:
    cards = deck(tmp_path, {Origin.GOLDEN: 3, Origin.REPLAY: 5, Origin.NEW: 7})
    for first in (0, 160, 1000):
        counts = Counter(i.origin for i in cards.draw(first, 80))
        assert all(abs(counts[origin] - 80 * share) <= 2 for origin, share in SHARES.items())


def test_no_image_comes_back_before_all_of_its_origin_were_seen(tmp_path: Path) -> None:
    cards = deck(tmp_path, {Origin.NEW: 7})
    drawn = [i.id for i in cards.draw(0, 21)]
    assert [len(set(drawn[k : k + 7])) for k in (0, 7, 14)] == [7, 7, 7]
    assert drawn[:7] != drawn[7:14]


def test_a_batch_does_not_depend_on_the_ones_before_it_having_been_drawn(tmp_path: Path) -> None:
    cards = deck(tmp_path, {Origin.GOLDEN: 3, Origin.REPLAY: 5, Origin.NEW: 7})
    whole = [i.id for i in cards.draw(0, 48)]
    assert [i.id for k in range(3) for i in cards.draw(16 * k, 16)] == whole
    assert [i.id for i in cards.draw(32, 16)] == whole[32:]


def test_another_seed_draws_another_order(tmp_path: Path) -> None:
    counts = {Origin.NEW: 12}
    orders = [[i.id for i in deck(tmp_path, counts, seed).draw(0, 12)] for seed in (0, 1)]
    assert orders[0] != orders[1] and set(orders[0]) == set(orders[1])


def test_an_origin_without_images_leaves_its_share_to_the_others(tmp_path: Path) -> None:
    counts = Counter(i.origin for i in deck(tmp_path, {Origin.REPLAY: 4, Origin.NEW: 4}).draw(0, 90))
    assert counts[Origin.GOLDEN] == 0
    assert abs(counts[Origin.NEW] - 60) <= 2


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(Malformed, match="no image to learn from"):
        Deck({}, SHARES, 0)


def test_an_origin_whose_share_is_0_is_no_data(tmp_path: Path) -> None:
    cards = deck(tmp_path, {Origin.NEW: 2})
    with pytest.raises(Malformed, match="share above 0"):
        Deck(cards.images, {Origin.NEW: 0.0}, 0)


@given(
    st.integers(0, 2**32 - 1), st.integers(20, 400), st.integers(20, 400),
    st.sampled_from([PLAIN, Augmentation(), Augmentation(mirrored=1.0, zoom=0.0, shift=0.0)]),
)  # fmt: skip
def test_boxes_move_exactly_with_the_picture(seed: int, width: int, height: int, how: Augmentation) -> None:
    """A white rectangle is found, to a pixel of the input, where its box was moved to."""
    rng = np.random.default_rng(seed)
    frame = np.zeros((height, width, 3), np.uint8)
    x1, y1 = int(width * 0.3), int(height * 0.3)
    x2, y2 = x1 + max(width // 3, 6), y1 + max(height // 3, 6)
    frame[y1:y2, x1:x2] = 255
    resized, letterbox = shrink(frame, SPEC)
    moved, placing = place(resized, letterbox, SPEC, how, rng)
    box = placing.boxes(np.array([[x1, y1, x2, y2]], np.float32))[0]
    ys, xs = np.nonzero(moved[..., 0] > 135)  # brighter than the padding
    assert len(xs)
    found = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
    slack = 1.5 + max(letterbox.gains) * (1 + how.zoom)  # one pixel of the frame may be many of the input
    inside = np.clip(box, 0, [320, 192, 320, 192])
    assert np.abs(found - inside).max() <= slack


def test_an_unvaried_picture_is_what_the_runtime_feeds_the_model() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (270, 480, 3), np.uint8)
    wanted, _ = Preprocessor(SPEC).fill([pixels])
    resized, letterbox = shrink(pixels, SPEC)
    placed, placing = place(resized, letterbox, SPEC, PLAIN, np.random.default_rng(0))
    np.testing.assert_allclose(to_tensor(placed, SPEC), wanted[0], atol=1e-6)
    box = np.array([[10, 20, 100, 200]], np.float32)
    np.testing.assert_allclose(placing.boxes(box), letterbox.to_input(box), atol=1e-3)


def test_places_are_the_same_spots_of_frame_and_input() -> None:
    frame, rng = ImageSize(480, 270), np.random.default_rng(3)
    _, letterbox = shrink(np.zeros((270, 480, 3), np.uint8), SPEC)
    for _ in range(20):
        resized = np.zeros((letterbox.resized.height, letterbox.resized.width, 3), np.uint8)
        _, placing = place(resized, letterbox, SPEC, Augmentation(), rng)
        in_input, in_frame = placing.places(50, frame, SPEC, rng)
        assert np.abs(in_input).max() <= 1 and np.abs(in_frame).max() <= 1 + 1e-5
        points = (in_frame + 1) / 2 * (480, 270)
        moved = placing.boxes(np.concatenate([points, points], axis=1).astype(np.float32))[:, :2]
        np.testing.assert_allclose((in_input + 1) / 2 * (320, 192), moved, atol=1e-2)


def test_recolouring_moves_colours_and_nothing_without_an_amount() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    assert recolour(pixels, PLAIN, np.random.default_rng(0)) is pixels
    moved = recolour(pixels, Augmentation(), np.random.default_rng(0))
    assert moved.shape == pixels.shape and 0 < np.abs(moved.astype(int) - pixels).mean() < 60


def test_recoloured_hue_goes_round_the_circle() -> None:
    red = np.zeros((4, 4, 3), np.uint8)
    red[..., 2] = 255
    for seed in range(10):
        moved = recolour(red, replace(PLAIN, hue=0.02), np.random.default_rng(seed))
        hue = int(cv2.cvtColor(moved, cv2.COLOR_BGR2HSV)[0, 0, 0])
        assert min(hue, 180 - hue) <= 4


def test_what_is_mostly_cut_off_is_neither_object_nor_background() -> None:
    boxes = np.array(
        [[-90, 10, 10, 50], [100, 10, 150, 60], [100, 10, 101, 60], [400, 10, 450, 60]], np.float32
    )
    clipped, is_shown = clip_to_input(boxes, SPEC)
    assert is_shown.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(clipped[0], [0, 10, 10, 50])


def test_a_batch_carries_weights_and_ignored_places_and_fills_up_with_nothing(tmp_path: Path) -> None:
    doubtful = replace(image(1, boxes=1), ignore_xyxy=[[0, 0, 80, 45], [80, 45, 160, 90]])
    made, kept = batches(tmp_path, [doubtful, image(2, boxes=3), image(3, boxes=0)])
    batch = made.make(0, kept.images, PLAIN)
    assert batch.images.shape == (3, 3, 192, 320)
    assert batch.boxes.shape == (3, 3, 4) and batch.ignored.shape == (3, 2, 4)
    assert (batch.weights > 0).sum(1).tolist() == [1, 3, 0]
    assert batch.weights.max() == pytest.approx(0.8)
    assert batch.channels[1].tolist() == [2, 2, 2]
    np.testing.assert_allclose(batch.ignored[0, 0].numpy(), [0, 6, 160, 96])


def test_the_same_step_of_a_seed_is_the_same_batch_and_another_one_is_not(tmp_path: Path) -> None:
    made, kept = batches(tmp_path, [image(n) for n in range(4)])
    tensors = [made.make(step, kept.images, Augmentation()).images for step in (5, 5, 6)]
    assert (tensors[0] == tensors[1]).all() and not (tensors[0] == tensors[2]).all()
    other = Batches(made.book, STREET, seed=1)
    assert not (other.make(5, kept.images, Augmentation()).images == tensors[0]).all()


def test_a_picture_is_decoded_once(tmp_path: Path) -> None:
    kept = snapshot(tmp_path)
    book = PictureBook(kept, SPEC)
    first = book.find(kept.images[0])[0]
    (kept.folder / "images" / f"{kept.images[0].sha256}.jpg").unlink()
    assert book.find(kept.images[0])[0] is first
