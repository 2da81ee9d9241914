"""Near duplicates: what shows the same is counted, what is more than that is kept, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.cases.agreement import agreement, is_covered, measured_gain
from cloud.cases.near import NearRule
from cloud.cases.picture_facts import as_signed, distance_bits, from_signed, measured, perceptual_hash
from cloud.cases.store import CaseStore, KeepRules, StoreAddress
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg, encode_png
from tests.builders import model_ref, scene
from tests.unit.hard_cases import CAPTURED_AT, LABELS, SIZE, hard_case, tier_answer

BOXES = [[4.0, 5.0, 20.25, 30.5], [30.0, 1.1, 60.0, 40.0]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"), KeepRules(near=NearRule()))
    yield opened
    opened.close()


def noisy(seed: int, shift: int = 0) -> bytes:
    """The picture of a camera that has not moved: the same scene with the noise of its sensor."""
    pixels = scene(SIZE.height, SIZE.width, 0).astype(np.int16)
    pixels += np.random.default_rng(seed).integers(-4, 5, pixels.shape, np.int16) + np.int16(shift)
    return encode_jpeg(np.clip(pixels, 0, 255).astype(np.uint8))


def frame(seed: int, **changes: object) -> HardCase:
    """The frame of `seed`, a second after the one before it, of the same scene."""
    return hard_case(seed, **({"jpeg": noisy(seed)} | changes))  # type: ignore[arg-type]


def pictures(tmp_path: Path) -> int:
    return len(list((tmp_path / "kept" / "images").rglob("*.jpg")))


def test_a_frame_that_shows_the_same_is_counted_and_not_kept(store: CaseStore, tmp_path: Path) -> None:
    first, second, third = frame(1), frame(2), frame(3)
    assert store.add(first).is_new
    receipt = store.add(second)
    assert (receipt.id, receipt.is_new, receipt.case_id) == (second.id, False, first.id)
    store.add(third)
    assert (store.count(), pictures(tmp_path)) == (1, 1)
    found = store.find(third.id)
    assert found is not None and (found.id, found.near_frames) == (first.id, 2)
    assert store.load_image(found) == first.jpeg


def test_a_frame_is_counted_once_however_often_and_as_whatever_bytes_it_comes(store: CaseStore) -> None:
    store.add(frame(1))
    again = frame(2, jpeg=encode_png(scene(SIZE.height, SIZE.width, 0)))
    for case in (frame(2), frame(2), again, again):
        assert not store.add(case).is_new
    assert store.get(frame(1).id).near_frames == 1
    found = store.find(again.id)
    assert found is not None and found.id == frame(1).id


@pytest.mark.parametrize(
    "changes",
    [
        {"camera": "other"},
        {"jpeg": encode_jpeg(scene(SIZE.height, SIZE.width, 5))},
        {"jpeg": noisy(2, shift=30)},
        {"jpeg": encode_jpeg(scene(2 * SIZE.height, 2 * SIZE.width, 0))},
        {"captured_at": CAPTURED_AT + timedelta(hours=2)},
        {"answers": (tier_answer(Tier.AGENT, [BOXES[0]]),)},
        {"answers": (tier_answer(Tier.AGENT, [*BOXES, [1, 1, 9, 9]], scores=[0.9, 0.5, 0.4]),)},
        {"answers": (tier_answer(Tier.AGENT, [[14, 5, 30, 30], BOXES[1]]),)},
        {"answers": (tier_answer(Tier.AGENT, BOXES, channels=[0, 1]),)},
        {"tiers": (Tier.AGENT, Tier.CLOUD)},
        {"tiers": ()},
        {"reasons": ("weak_boxes", "audit")},
    ],
    ids=[
        "another camera",
        "another scene",
        "another light",
        "another size",
        "two hours later",
        "one thing gone",
        "one thing more",
        "something has moved",
        "another class",
        "another tier has looked",
        "nobody has looked",
        "an audit",
    ],
)
def test_what_shows_or_tells_more_is_a_case_of_its_own(store: CaseStore, changes: dict[str, object]) -> None:
    store.add(frame(1))
    assert store.add(frame(2, **changes)).is_new
    assert store.count() == 2
    assert sum(case.near_frames for case in store.walk()) == 0


def test_another_model_that_says_the_same_is_a_case_of_its_own(store: CaseStore) -> None:
    store.add(frame(1))
    answer = tier_answer(Tier.AGENT)
    other = TierAnswer(
        Tier.AGENT, replace(answer.detections, model=model_ref("m0", digit="b")), answer.labels
    )
    assert store.add(frame(2, answers=(other,))).is_new


def test_a_box_that_flickers_around_the_threshold_is_no_news(store: CaseStore) -> None:
    store.add(frame(1, answers=(tier_answer(Tier.AGENT, BOXES, scores=[0.9, 0.27]),)))
    assert not store.add(frame(2, answers=(tier_answer(Tier.AGENT, BOXES, scores=[0.9, 0.23]),))).is_new


def test_fewer_answers_than_the_case_has_are_covered(store: CaseStore) -> None:
    store.add(frame(1, tiers=(Tier.AGENT, Tier.CLOUD)))
    assert not store.add(frame(2, tiers=(Tier.AGENT,))).is_new


def test_a_counted_frame_that_turns_out_to_be_more_becomes_a_case(store: CaseStore, tmp_path: Path) -> None:
    store.add(frame(1))
    store.add(frame(2))
    store.add(frame(3))
    more = frame(2, reasons=("audit",))
    assert store.add(more).is_new
    assert not store.add(more).is_new
    assert not store.add(frame(2)).is_new, "the frame has its own case now"
    assert (store.count(), pictures(tmp_path)) == (2, 2)
    assert store.get(frame(1).id).near_frames == 1
    assert store.get(more.id).is_audit


def test_audits_are_all_kept_and_others_may_be_counted_there(store: CaseStore) -> None:
    for seed in range(4):
        assert store.add(frame(seed, reasons=("audit",))).is_new
    assert not store.add(frame(9)).is_new
    assert (store.count(), sum(case.near_frames for case in store.walk())) == (4, 1)


def test_without_a_rule_every_frame_is_kept_and_what_is_chosen_is_always(tmp_path: Path) -> None:
    plain = CaseStore.open(StoreAddress.in_folder(tmp_path / "plain"))
    assert [plain.add(frame(seed)).is_new for seed in (1, 2)] == [True, True]
    plain.close()
    ruled = CaseStore.open(StoreAddress.in_folder(tmp_path / "ruled"), KeepRules(near=NearRule()))
    assert [ruled.add_always(frame(seed)).is_new for seed in (1, 2)] == [True, True]
    ruled.close()


def test_many_that_deliver_the_same_frames_at_once_agree_on_the_count(tmp_path: Path) -> None:
    address = StoreAddress.in_folder(tmp_path / "kept")
    stores = [CaseStore.open(address, KeepRules(near=NearRule())) for _ in range(2)]
    stores[0].add(frame(0))
    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(stores[turn % 2].add, frame(seed)) for turn in range(3) for seed in range(1, 9)]
        assert not any(future.result(120).is_new for future in adding)
    assert (stores[0].count(), stores[1].get(frame(0).id).near_frames) == (1, 8)
    assert pictures(tmp_path) == 1
    for store in stores:
        store.close()


@settings(max_examples=25, deadline=None)
@given(deliveries=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=9))
def test_in_any_order_every_frame_is_a_case_or_counted_at_one(
    deliveries: list[tuple[int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = CaseStore.open(
        StoreAddress.in_folder(tmp_path_factory.mktemp("store")), KeepRules(near=NearRule())
    )
    audits = {seed for seed, is_audit in deliveries if is_audit}
    for seed, is_audit in deliveries:
        store.add(frame(seed, reasons=("audit",) if is_audit else ("weak_boxes",)))
    cases = list(store.walk())
    assert store.count() + sum(case.near_frames for case in cases) == len({seed for seed, _ in deliveries})
    assert {case.frame_id.sequence for case in cases if case.is_audit} == audits
    assert all(store.load_image(case) for case in cases)
    store.close()


# The hash.


def street(seed: int, height: int = 480, width: int = 640) -> ImageArray:
    return cv2.GaussianBlur(scene(height, width, seed), (0, 0), 2)


@pytest.mark.parametrize("seed", range(6))
def test_the_hash_stays_under_noise_compression_size_and_light_and_moves_with_the_scene(seed: int) -> None:
    pixels = street(seed)
    own = measured(encode_jpeg(pixels)).hash
    noise = np.random.default_rng(seed).normal(0, 6, pixels.shape)
    alike = [
        encode_jpeg(pixels, 40),
        encode_png(pixels),
        encode_jpeg(cv2.resize(pixels, (320, 240), interpolation=cv2.INTER_AREA)),
        encode_jpeg(np.clip(pixels + noise, 0, 255).astype(np.uint8)),
        encode_jpeg((pixels * 0.8).astype(np.uint8)),
    ]
    assert max(distance_bits(own, measured(image).hash) for image in alike) <= 6
    others = [measured(encode_jpeg(street(other))).hash for other in range(6) if other != seed]
    assert min(distance_bits(own, other) for other in others) > 6


def test_brightness_and_contrast_are_those_of_the_grey_picture() -> None:
    halves = np.zeros((80, 100, 3), np.uint8)
    halves[:, 50:] = 200
    facts = measured(encode_png(halves))
    assert (facts.luminance, facts.contrast) == (100, 100)


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (3, 2), (4000, 1)])
def test_a_picture_of_one_colour_or_of_any_odd_size_has_a_hash(size: tuple[int, int]) -> None:
    assert measured(encode_png(np.full((*size, 3), 90, np.uint8))).hash == 0


def test_a_picture_that_cannot_be_decoded_is_refused() -> None:
    whole = encode_png(scene(60, 60))
    with pytest.raises(Malformed, match="PNG"):
        measured(whole[:60])


@given(st.integers(0, 2**64 - 1))
def test_a_hash_comes_back_out_of_the_database_as_it_went_in(bits: int) -> None:
    signed = as_signed(bits)
    assert -(2**63) <= signed < 2**63
    assert from_signed(signed) == bits


def test_the_hash_has_about_half_of_its_bits_set() -> None:
    grey = cv2.cvtColor(street(3), cv2.COLOR_BGR2GRAY)
    assert 16 <= perceptual_hash(grey).bit_count() <= 32


# Agreement.


@pytest.mark.parametrize(
    ("strong", "expected"),
    [
        (tier_answer(Tier.CLOUD, BOXES), 1.0),
        (tier_answer(Tier.CLOUD, []), 0.0),
        (tier_answer(Tier.CLOUD, [BOXES[0]]), 2 / 3),
        (tier_answer(Tier.CLOUD, BOXES, channels=[0, 1]), 0.5),
        (tier_answer(Tier.CLOUD, BOXES, scores=[0.9, 0.1]), 2 / 3),
        (tier_answer(Tier.CLOUD, [BOXES[0], BOXES[0], BOXES[1]], channels=[0, 0, 2], scores=[0.9] * 3), 0.8),
    ],
    ids=["the same", "nothing", "one less", "another class", "one too weak to tell", "one twice"],
)
def test_agreement_is_f1_of_boxes_and_classes(strong: TierAnswer, expected: float) -> None:
    weak = tier_answer(Tier.AGENT, BOXES)
    assert agreement(weak, strong) == pytest.approx(expected)
    assert measured_gain((strong, weak)) == pytest.approx(1 - expected)


def test_nothing_and_nothing_agree_and_one_look_measures_no_gain() -> None:
    assert measured_gain((tier_answer(Tier.AGENT, []), tier_answer(Tier.EDGE, []))) == 0
    assert measured_gain((tier_answer(Tier.AGENT),)) is None


def test_looks_in_other_sizes_are_compared_in_one() -> None:
    doubled = [[2 * edge for edge in box] for box in BOXES]
    large = tier_answer(Tier.CLOUD, doubled, size=ImageSize(2 * SIZE.width, 2 * SIZE.height))
    assert agreement(tier_answer(Tier.AGENT, BOXES), large) == 1.0


def test_a_class_that_the_lower_tier_cannot_see_is_no_disagreement() -> None:
    wide = LabelSet.from_names([*LABELS.names, "dog"])
    strong = tier_answer(
        Tier.CLOUD, [*BOXES, [1, 1, 9, 9]], channels=[0, 2, 3], scores=[0.9] * 3, labels=wide
    )
    assert agreement(tier_answer(Tier.AGENT, BOXES), strong) == 1.0


def test_the_gain_is_measured_when_the_second_look_comes(store: CaseStore) -> None:
    store.add(frame(1, tiers=(Tier.AGENT,)))
    assert store.get(frame(1).id).measured_gain is None
    store.add(frame(1, answers=(tier_answer(Tier.CLOUD, [BOXES[0]]),)))
    assert store.get(frame(1).id).measured_gain == pytest.approx(1 / 3)


def test_nothing_covers_without_an_answer() -> None:
    assert not is_covered((), (tier_answer(Tier.AGENT),))
    assert is_covered((tier_answer(Tier.AGENT),), (tier_answer(Tier.AGENT), tier_answer(Tier.EDGE)))


@pytest.mark.parametrize(
    "wrong", [{"max_bits": -1}, {"max_bits": 17}, {"within_s": 0.0}, {"max_luminance": -1.0}]
)
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="near rule"):
        NearRule(**wrong)  # type: ignore[arg-type]
