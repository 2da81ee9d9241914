"""`fovea review` and `fovea golden`: what a person reads, and what a script does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cloud.bootstrap import Look
from cloud.labels.teacher import Teacher
from fovea.cli import golden as golden_cli
from fovea.cli import label_room
from fovea.cli import review as review_cli
from fovea.core.errors import FoveaError, Malformed, NotFound, StoreCorrupt
from fovea.core.routing import Tier
from fovea.runtime.images import decode_image
from tests.fakes import FakeDetector
from tests.unit.hard_cases import LABELS, hard_case, tier_answer
from tests.unit.labelled_cases import stores_in

BOX = (4.0, 5.0, 20.25, 30.5)
APPS = {"review": review_cli.app, "golden": golden_cli.app}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three cases that the teacher is unsure of, one of a camera that tries to speak to the terminal."""
    with stores_in(tmp_path / "kept") as stores:
        stores.add(
            hard_case(1, answers=()),
            hard_case(2, camera="[bold]yard\x1b[31m", answers=()),
            hard_case(3, answers=(tier_answer(Tier.AGENT, [[40, 10, 60, 40]], scores=[0.6], channels=[1]),)),
        )
        detector = FakeDetector(lambda _pixels: [(BOX, 0.55, 0), ((40.0, 8, 60, 40), 0.3, 2)], LABELS)
        Teacher(detector, stores.cases, stores.labels).label_all(stores.cases.walk())
    return tmp_path / "kept"


def ran(*words: object) -> Result:
    group, *rest = (str(word) for word in words)
    return CliRunner().invoke(APPS[group], rest, env={"COLUMNS": "200"})


def said(*words: object) -> str:
    result = ran(*words)
    assert result.exit_code == 0, result
    return result.output


def refusal(*words: object) -> FoveaError:
    result = ran(*words)
    assert isinstance(result.exception, FoveaError), result
    return result.exception


def listed(folder: Path, *words: str) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in said("review", "list", "--json", *words, "--store", folder).splitlines()
    ]


def test_the_list_says_what_waits_for_a_person_and_why(folder: Path) -> None:
    text = said("review", "list", "--store", folder)
    assert "little_agreement" in text
    assert "3 wait for a person; labelled: 0 by people, 0 accepted of the teacher, 0 dropped" in text
    assert "[bold]yard" in text and "\x1b" not in text
    assert "and 2 more" in said("review", "list", "--limit", 1, "--store", folder)
    facts = listed(folder)
    assert {fact["verdict"] for fact in facts} == {"ask"}
    assert facts[0]["counts"] == "nothing"


def test_a_case_is_shown_with_what_was_said_and_saved_with_its_boxes(folder: Path, tmp_path: Path) -> None:
    first = str(listed(folder)[0]["id"])
    text = said("review", "show", first[:10], "--store", folder, "--save", tmp_path / "x.png")
    assert "0.550" in text and "street" not in text and "fake@1" in text
    pixels = decode_image((tmp_path / "x.png").read_bytes())
    assert pixels.shape == (48, 64, 3)
    facts = json.loads(said("review", "show", first, "--store", folder, "--json"))
    assert [box["class"] for box in facts["boxes"]] == ["person", "scooter"]
    assert "ends in .jpg or .png" in str(
        refusal("review", "show", first, "--store", folder, "--save", "x.gif")
    )
    assert isinstance(refusal("review", "show", "ffffff", "--store", folder), NotFound)


@pytest.mark.parametrize(("form", "index"), [("coco", "annotations.json"), ("label-studio", "tasks.json")])
def test_a_review_leaves_and_comes_back(folder: Path, tmp_path: Path, form: str, index: str) -> None:
    out = tmp_path / "out"
    text = said("review", "export", "--to", out, "--format", form, "--store", folder)
    assert "3 pictures with 3 boxes" in text
    assert len(list((out / "images").iterdir())) == 3
    file = out / index
    if form == "coco":
        assert "3 still as the teacher filled them in" in said("review", "import", out, "--store", folder)
        assert "3 wait" in said("review", "list", "--store", folder)
        assert "3 pictures labelled" in said(
            "review", "import", file, "--accept-untouched", "--store", folder
        )
    else:
        assert "0 pictures labelled" in said("review", "import", file, "--store", folder)
        tasks = json.loads(file.read_text())
        for task in tasks:
            task["annotations"] = [{"result": task.pop("predictions")[0]["result"]}]
        file.write_text(json.dumps(tasks))
        assert "3 pictures labelled" in said("review", "import", file, "--by", "ada", "--store", folder)
        assert "3 said before" in said("review", "import", file, "--by", "bo", "--store", folder)
    text = said("review", "list", "--done", "--store", folder)
    assert "0 wait for a person; labelled: 3 by people" in text
    assert {fact["counts"] for fact in listed(folder, "--done")} == {"a person"}


def test_a_golden_set_is_started_exported_and_labelled(folder: Path, tmp_path: Path) -> None:
    assert "it has no golden frames yet" in said("golden", "status", "--store", folder)
    text = said("golden", "start", "--frames", 2, "--no-teacher", "--store", folder)
    assert "2 frames picked" in text and "shadow only, 0 of 150" in text
    out = tmp_path / "out"
    assert "2 pictures" in said("golden", "export", "--to", out, "--store", folder)
    text = said("golden", "import", out, "--accept-untouched", "--by", "ada", "--store", folder)
    assert "2 pictures labelled" in text and "shadow only, 2 of 150" in text
    (state,) = json.loads(said("golden", "status", "--json", "--store", folder))
    assert state == {
        "site": "default",
        "wanted": 0,
        "done": 2,
        "unusable": 0,
        "enough": 150,
        "shadow_only": True,
    }
    assert "0 pictures" in said("golden", "export", "--wanted", "--to", tmp_path / "none", "--store", folder)


def test_what_is_not_golden_is_not_taken_as_golden(folder: Path, tmp_path: Path) -> None:
    said("review", "export", "--to", tmp_path / "all", "--store", folder)
    said("golden", "start", "--frames", 1, "--no-teacher", "--store", folder)
    text = said("golden", "import", tmp_path / "all", "--accept-untouched", "--store", folder)
    assert "1 pictures labelled, 2 not known here" in text


def test_the_configuration_says_which_cameras_are_of_which_site(folder: Path) -> None:
    config = folder.parent / "cloud.yaml"
    config.write_text("store: {folder: kept}\nsites: {front: [gate]}\ngolden: {frames: 9, enough: 1}\n")
    text = said("golden", "start", "--site", "front", "--no-teacher", "--config", config)
    assert "2 frames picked" in text
    assert "site front: shadow only, 0 of 1" in text
    assert "1 frames picked" in said("golden", "start", "--no-teacher", "--config", config)
    assert "there are front, default" in str(refusal("golden", "start", "--site", "back", "--config", config))


def test_the_teacher_of_the_configuration_fills_in(folder: Path) -> None:
    detector = FakeDetector(lambda _pixels: [(BOX, 0.95, 0)], LABELS)
    with stores_in(folder) as stores:
        stores.add(hard_case(7, answers=()))
    with label_room.opened_room(None, folder) as room:
        ids = [case.id for case in room.cases.walk()]
        report = label_room.teach(room, ids, lambda _config: Look(detector, "cpu", True))
    assert label_room.told_teaching(report) == (
        "teacher: 1 looked at, 0 answered before, 3 known: 1 accept, 3 ask"
    )
    assert detector.is_closed


def test_a_damaged_picture_is_told_at_the_end_of_an_export(folder: Path, tmp_path: Path) -> None:
    next((folder / "images").rglob("*.jpg")).write_bytes(b"x")
    error = refusal("review", "export", "--to", tmp_path / "out", "--store", folder)
    assert isinstance(error, StoreCorrupt) and "1 pictures left out" in str(error)
    assert len(list((tmp_path / "out" / "images").iterdir())) == 2


@pytest.mark.parametrize("words", [("review", "list"), ("golden", "status")])
def test_which_cases_are_meant_has_to_be_said_once(folder: Path, words: tuple[str, str]) -> None:
    assert isinstance(refusal(*words), Malformed)
    assert isinstance(refusal(*words, "--store", folder, "--config", folder / "x"), Malformed)
    assert isinstance(refusal(*words, "--store", folder / "nowhere"), NotFound)
    assert not (folder / "nowhere").exists()


def test_who_labels_is_who_is_logged_in() -> None:
    assert label_room.login_name(lambda: "ada") == "ada"

    def nobody() -> str:
        raise KeyError("no such user")

    with pytest.raises(Malformed, match="--by"):
        label_room.login_name(nobody)
