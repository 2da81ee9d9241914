"""Adding a camera to a configuration file: one block more, every other line as it was, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.capture.config_edit import add_camera, with_camera
from edge_agent.config import load_config
from fovea.core.errors import Malformed, NotFound

ENTRY = {"name": "yard", "url": "rtsp://cam/main", "fps": 5.0}
CONFIG = """\
# who we are
device: box  # of the garage
bundle: zoo:street-student-int8
cameras:
  # the door
  - name: door
    url: rtsp://door/main   # the big stream
    masks:
      - [[0, 0], [0.5, 0], [0.5, 1]]
  # - name: spare

# what questions may cost
budget:
  asks_per_s: 1.0
"""


def lines_added(before: str, after: str) -> list[str]:
    """The lines that `after` has and `before` has not; all others have to be there, in order."""
    left = before.splitlines()
    added = []
    for line in after.splitlines():
        if left and line == left[0]:
            left.pop(0)
        else:
            added.append(line)
    assert left == [], f"lost or moved: {left}"
    return added


def test_a_camera_goes_below_the_last_one_and_all_else_stays() -> None:
    after = with_camera(CONFIG, ENTRY)
    assert lines_added(CONFIG, after) == ["  - name: yard", "    url: rtsp://cam/main", "    fps: 5.0"]
    value = yaml.safe_load(after)
    assert [camera["name"] for camera in value["cameras"]] == ["door", "yard"]
    assert value["budget"] == {"asks_per_s": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "cameras:\n- name: a\n  url: '0'\ndevice: x\n",
        "device: x\ncameras:\n- name: a\n  url: '0'",
        "cameras:\n      - {name: a, url: '0'}\n\n\n# end\n",
        "cameras:\n  - name: a\n    url: >-\n      rtsp://a/b\n",
        "cameras:\n  - name: a\n    url: '0'\n    zones: []\n---\n",
        "cameras: []  # none yet\ndevice: x\n",
        "cameras:  # none yet\ndevice: x\n",
        "cameras: [\n]\ndevice: x\n",
        "cameras: null\n",
        "device: x\n",
        "device: x",
        "# nothing yet\n",
        "",
    ],
)
def test_every_way_to_write_the_list_takes_one_more(text: str) -> None:
    if "---" in text:
        with pytest.raises(Malformed):
            with_camera(text + "b: 1\n", ENTRY)
        return
    before = yaml.safe_load(text) or {}
    after = yaml.safe_load(with_camera(text, ENTRY))
    assert after == {**before, "cameras": [*(before.get("cameras") or []), ENTRY]}
    for comment in ("# none yet", "# end", "# nothing yet"):
        assert (comment in text) == (comment in with_camera(text, ENTRY))


@given(
    st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
    st.floats(0.01, 240),
    st.booleans(),
)
def test_any_name_arrives_as_it_is(name: str, fps: float, is_first: bool) -> None:
    text = "device: x\n" if is_first else CONFIG
    entry = {"name": name, "url": "0", "fps": fps}
    assert yaml.safe_load(with_camera(text, entry))["cameras"][-1] == entry


@pytest.mark.parametrize(
    "text",
    [
        "cameras: [{name: a, url: '0'}]\n",
        "cameras: many\n",
        "cameras:\n  a: b\n",
        "{device: x}\n",
        "- a\n",
        "a: [\n",
    ],
)
def test_what_cannot_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        with_camera(text, ENTRY)


def test_the_file_is_changed_only_into_a_sound_configuration(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(CONFIG)
    add_camera(path, ENTRY)
    assert [camera.name for camera in load_config(path).cameras] == ["door", "yard"]
    sound = path.read_text()
    for wrong in (ENTRY, {**ENTRY, "name": "x", "fps": 0.0}, {**ENTRY, "name": "y", "colour": "red"}):
        with pytest.raises(Malformed):
            add_camera(path, wrong)
        assert path.read_text() == sound
    with pytest.raises(NotFound):
        add_camera(tmp_path / "gone.yaml", ENTRY)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["agent.yaml"]
