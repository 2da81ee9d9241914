"""Any name makes a safe topic, and no two names share one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge_agent.publish.publishing import Feature
from edge_agent.publish.topics import CommandTopic, Topics
from fovea.core.errors import Malformed
from fovea.mqtt.names import client_id_of, topic_part

NAMES = st.one_of(st.text(min_size=1, max_size=400), st.text("a~%7E/+#$ é", min_size=1, max_size=120))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gate", "gate"),
        ("Front door", "Front%20door"),
        ("a/b+c#d$e", "a%2Fb%2Bc%23d%24e"),
        ("Küche", "K%C3%BCche"),
        ("50%", "50%25"),
        ("~x", "%7Ex"),
        ("..", ".."),
        ("a\x00b\n", "a%00b%0A"),
    ],
)
def test_names_are_escaped_as_documented(name: str, part: str) -> None:
    assert topic_part(name) == part


@given(NAMES)
@example("x" * 300)
@example("\ud800")
def test_a_part_is_one_plain_level_of_a_topic(name: str) -> None:
    part = topic_part(name)
    assert part.isascii() and part.isprintable()
    assert 1 <= len(part) <= 80
    assert not set(part) & set("/+#$ \x00")


@given(NAMES, NAMES)
@example("a b", "a%20b")
@example("x" * 300, "x" * 299)
@example("A", "a")
def test_different_names_have_different_parts(one: str, other: str) -> None:
    assert (topic_part(one) == topic_part(other)) == (one == other)


def test_no_name_takes_the_part_of_a_long_one() -> None:
    assert topic_part(topic_part("x" * 300)) != topic_part("x" * 300)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(Malformed, match="at least one character"):
        Topics("")


def test_a_camera_named_like_a_label_a_feature_or_a_topic_stays_apart() -> None:
    topics = Topics("box")
    names = ["person", "counts", "zones", "detect", "status", "set", "cameras", "available"]
    made = [
        topic
        for name in names
        for topic in (
            topics.status(name),
            topics.detections(name),
            topics.events(name),
            *(topics.count(name, label) for label in names),
            *(topics.zone_count(name, zone, label) for zone in names for label in names),
            *(topics.state(name, feature) for feature in Feature),
            *(topics.command(name, feature) for feature in Feature),
        )
    ]
    made += [topics.available, topics.health]
    assert len(set(made)) == len(made)


@given(NAMES, NAMES, st.sampled_from(Feature))
def test_a_command_topic_says_camera_and_feature(device: str, camera: str, feature: Feature) -> None:
    topics = Topics(device)
    assert topics.find_command(topics.command(camera, feature)) == CommandTopic(topic_part(camera), feature)
    assert topics.find_command(topics.state(camera, feature)) is None


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "set",
        "fovea/box/cameras/gate/detect",
        "fovea/box/cameras/gate/zoom/set",
        "fovea/box/cameras/a/b/detect/set",
    ],
)
def test_what_is_no_command_is_found_to_be_none(topic: str) -> None:
    assert Topics("box").find_command(topic) is None


def test_which_camera_a_topic_is_about() -> None:
    topics = Topics("box")
    assert topics.find_camera_part(topics.zone_count("a b", "z", "car")) == "a%20b"
    assert topics.find_camera_part(topics.health) is None
    assert topics.find_camera_part("fovea/other/cameras/gate/status") is None


@given(NAMES)
def test_client_ids_are_what_every_broker_has_to_take(device: str) -> None:
    client_id = client_id_of(device)
    assert len(client_id) <= 23 and client_id.isalnum() and client_id.isascii()
    assert client_id == client_id_of(device)
