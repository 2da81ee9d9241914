"""Label ids are the same in every process, and a label set has no doubles."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.labels import COCO_NAMES, Label, LabelSet, label_named

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


def test_coco_names_keep_their_place_in_the_list_of_80() -> None:
    assert LabelSet.coco().ids == tuple(range(80))
    assert LabelSet.coco().names == COCO_NAMES


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("motorbike", "motorcycle"),
        ("aeroplane", "airplane"),
        ("  Traffic   Light ", "traffic light"),
        ("TV", "tv"),
    ],
)
def test_old_and_loose_spellings_are_the_same_label(spelling: str, name: str) -> None:
    assert label_named(spelling) == Label(COCO_NAMES.index(name), name)


def test_a_name_of_its_own_gets_the_published_hash() -> None:
    assert label_named("forklift") == Label(1000 + zlib.crc32(b"forklift") % 2**30, "forklift")


@given(NAMES)
def test_any_id_fits_32_bits_and_the_name_of_a_label_names_the_same_label(name: str) -> None:
    label = label_named(name)
    assert 0 <= label.id < 2**31
    assert label_named(label.name) == label


@pytest.mark.parametrize("name", ["", "   ", "a\x00b", "x" * 101, "\ud800"])
def test_a_name_that_is_no_name_is_malformed(name: str) -> None:
    with pytest.raises(Malformed, match=r"^label name: expected 1 to 100 printable characters, got '"):
        label_named(name)


@pytest.mark.parametrize("parts", [(-1, "car"), (2**31, "car"), (2, "")])
def test_a_label_without_a_name_or_with_an_id_that_does_not_fit_is_malformed(parts: tuple[int, str]) -> None:
    with pytest.raises(Malformed, match=r"^label: expected a name and an id of 31 bits, got "):
        Label(*parts)


def test_a_set_without_labels_is_malformed() -> None:
    with pytest.raises(Malformed, match="labels: expected at least one, got none"):
        LabelSet(())


@pytest.mark.parametrize("names", [("car", "car"), ("sofa", "couch"), ("Car", "car")])
def test_a_label_that_stands_twice_is_malformed_and_both_spellings_are_told(names: tuple[str, str]) -> None:
    with pytest.raises(Malformed, match="share the id"):
        LabelSet.from_names(names)


def test_two_ids_for_one_name_are_malformed() -> None:
    with pytest.raises(Malformed, match="expected each name once"):
        LabelSet((Label(1, "a"), Label(2, "a")))


def test_a_set_knows_its_names_in_channel_order() -> None:
    labels = LabelSet.from_names(["car", "person"])
    assert (labels.ids, labels.names, len(labels)) == ((2, 0), ("car", "person"), 2)
    assert [label.name for label in labels] == ["car", "person"]
    assert (labels.find_name(0), labels.find_name(79)) == ("person", None)
