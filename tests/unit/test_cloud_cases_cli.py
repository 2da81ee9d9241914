"""`fovea cases`: what a person reads, and what a script does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cloud.cases.store import CaseStore, StoreAddress
from fovea.cli.cases import app, parsed_since
from fovea.core.errors import FoveaError, Malformed, NotFound, StoreCorrupt
from fovea.core.hard_case import HardCase
from fovea.core.routing import Tier
from fovea.runtime.images import decode_image
from tests.unit.hard_cases import hard_case

CASES = [
    hard_case(1, camera="gate", tiers=(Tier.AGENT, Tier.CLOUD), reasons=("audit",), send_probability=0.02),
    hard_case(2, camera="[bold]yard", tiers=(Tier.EDGE,), reasons=("weak_boxes",)),
    hard_case(3, camera="gate", tiers=(), reasons=("vanished_track",)),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"))
    for case in CASES:
        store.add(case)
    store.close()
    return tmp_path / "kept"


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


def said(*words: object) -> str:
    result = ran(*words)
    assert result.exit_code == 0, result
    return result.output


def refusal(*words: object) -> FoveaError:
    result = ran(*words)
    assert isinstance(result.exception, FoveaError), result
    return result.exception


def test_the_list_shows_the_newest_first_and_what_is_kept_of_each_camera(folder: Path) -> None:
    text = said("list", "--store", folder)
    places = [text.index(case.id[:12]) for case in CASES]
    assert places == sorted(places, reverse=True)
    for word in ("vanished_track", "weak_boxes", "0.02", "[bold]yard", "2025-03-01 12:00:01"):
        assert word in text
    assert "3 of 3 cases" in text
    assert "gate: 2 cases, 1 of them audits" in text


def test_a_name_from_the_network_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    store = CaseStore.open(StoreAddress.in_folder(tmp_path))
    case = hard_case(9, camera="gate\x1b[2J", tiers=(), reasons=("why\x1b]0;owned\x07",))
    store.add(case)
    store.close()
    for text in (said("list", "--store", tmp_path), said("show", case.id, "--store", tmp_path)):
        assert "gate\ufffd[2J" in text and "\x1b]" not in text and "\x07" not in text


def test_reasons_stay_readable_in_80_cells(folder: Path) -> None:
    result = CliRunner().invoke(app, ["list", "--store", str(folder)], env={"COLUMNS": "80"})
    for word in ("vanished_track", "weak_boxes", "2025-03-01", "12:00:01", "-/-/-", "[bold]yard"):
        assert word in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--camera", "gate"), [3, 1]),
        (("--reason", "audit"), [1]),
        (("--tier", "edge"), [2]),
        (("--audit",), [1]),
        (("--no-audit",), [3, 2]),
        (("--since", "2025-03-01T12:00:02"), [3, 2]),
        (("--since", "1m"), []),
        (("--limit", "2"), [3, 2]),
    ],
)
def test_filters_are_understood(folder: Path, words: tuple[str, ...], expected: list[int]) -> None:
    lines = said("list", "--store", folder, "--json", *words).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == expected


def test_a_case_is_shown_with_what_each_tier_saw(folder: Path, tmp_path: Path) -> None:
    case = CASES[0]
    text = said("show", case.id[:14], "--store", folder, "--save", tmp_path / "case.png")
    for word in (case.id, "gate", "audit", "0.02", "agent: m0@1", "cloud: m2@1", "scooter", "20.2"):
        assert word in text
    drawn, plain = decode_image((tmp_path / "case.png").read_bytes()), decode_image(case.jpeg)
    assert drawn.shape == plain.shape
    assert (drawn != plain).any(), "boxes are drawn"
    told = json.loads(said("show", case.id, "-s", folder, "--json"))
    assert [answer["tier"] for answer in told["answers"]] == ["agent", "cloud"]
    assert told["answers"][0]["boxes"][0]["class"] == "person"


@pytest.mark.parametrize(("form", "index"), [("coco", "annotations.json"), ("yolo", "data.yaml")])
def test_an_export_says_what_it_wrote_and_what_it_left_out(
    folder: Path, tmp_path: Path, form: str, index: str
) -> None:
    out = tmp_path / "out"
    text = said("export", "--store", folder, "--to", out, "--format", form)
    assert f"2 pictures with 4 boxes in {out}, 1 left out without such an answer" in text.replace("\n", "")
    assert (out / index).is_file()
    assert len(list((out / "images").iterdir())) == 2


def test_an_export_takes_the_answers_and_cases_that_are_asked_for(folder: Path, tmp_path: Path) -> None:
    words = ("--answers", "agent", "--camera", "gate", "--min-score", "0.5")
    assert said("export", "-s", folder, "--to", tmp_path / "out", *words).startswith(
        "1 pictures with 1 boxes"
    )


def test_a_damaged_picture_is_told_by_show_and_at_the_end_of_an_export(folder: Path, tmp_path: Path) -> None:
    def picture_of(case: HardCase) -> Path:
        return folder / "images" / case.id[:2] / f"{case.id}.jpg"

    picture_of(CASES[0]).write_bytes(b"nothing like it")
    error = refusal("show", CASES[0].id, "-s", folder)
    assert isinstance(error, StoreCorrupt) and CASES[0].id[:12] in str(error)
    error = refusal("export", "-s", folder, "--to", tmp_path / "out")
    assert isinstance(error, StoreCorrupt) and "1 pictures left out" in str(error)
    assert (tmp_path / "out" / "annotations.json").is_file(), "the others are written"


def test_looking_at_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    error = refusal("list", "--store", tmp_path / "none")
    assert isinstance(error, NotFound)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--store", "a", "--config", "b")])
def test_which_cases_are_meant_has_to_be_said_once(words: tuple[str, ...]) -> None:
    error = refusal("list", *words)
    assert isinstance(error, Malformed)
    assert "expected --store FOLDER or --config FILE" in str(error)


def test_the_configuration_of_the_cloud_says_where_they_are(folder: Path) -> None:
    (folder.parent / "cloud.yaml").write_text("store: {folder: kept}\n")
    assert "3 of 3 cases" in said("list", "--config", folder.parent / "cloud.yaml")


def test_migrate_says_from_where_to_where(tmp_path: Path) -> None:
    tmp_path.joinpath("kept").mkdir()
    assert "was empty, is now at revision 0006" in said("migrate", "-s", tmp_path / "kept")
    assert "is at revision 0006" in said("migrate", "-s", tmp_path / "kept")


def test_a_picture_is_saved_as_what_its_name_says_or_not_at_all(folder: Path, tmp_path: Path) -> None:
    error = refusal("show", CASES[1].id, "-s", folder, "--save", tmp_path / "x.gif")
    assert isinstance(error, Malformed) and "ends in .jpg or .png" in str(error)


NOW = datetime(2025, 1, 10, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", datetime(2025, 1, 3, 12, 0, tzinfo=UTC)),
        ("2w", datetime(2024, 12, 27, 12, 0, tzinfo=UTC)),
        ("2025-01-02", datetime(2025, 1, 2, tzinfo=UTC)),
        ("2025-01-02T03:04", datetime(2025, 1, 2, 3, 4, tzinfo=UTC)),
        ("2025-01-02T03:04+01:00", datetime(2025, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_since_is_an_instant_or_how_long_ago(text: str, expected: datetime) -> None:
    assert parsed_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "7", "7y", "-3d", "2025-13-01", "999999w", ""])
def test_what_is_no_instant_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(Malformed, match="--since: expected"):
        parsed_since(text, NOW)


def test_counts_are_told_by_camera_and_condition_to_people_and_scripts(folder: Path) -> None:
    store = CaseStore.open(StoreAddress.in_folder(folder))
    store.tag([CASES[0].id], ["[red]wet"])
    store.close()
    text = said("count", "--store", folder)
    for word in ("[bold]yard", "gate", "[red]wet: 1", "3 cases, and 0 frames more"):
        assert word in text
    told = json.loads(said("count", "--store", folder, "--json"))
    assert sum(count["cases"] for count in told["counts"]) == 3
    assert {count["camera"] for count in told["counts"]} == {"gate", "[bold]yard"}
    assert told["tags"] == {"[red]wet": 1}


def test_the_list_can_be_limited_to_a_condition_or_a_tag(folder: Path) -> None:
    store = CaseStore.open(StoreAddress.in_folder(folder))
    store.tag([CASES[1].id], ["wet"])
    conditions = {case.condition for case in store.walk()}
    store.close()
    assert [
        json.loads(line)["id"] for line in said("list", "-s", folder, "--json", "--tag", "wet").splitlines()
    ] == [CASES[1].id]
    listed = [
        line
        for condition in conditions
        for line in said("list", "-s", folder, "--json", "--condition", condition).splitlines()
    ]
    assert len(listed) == 3


def test_prune_says_what_would_go_and_then_does_it_and_needs_a_limit(folder: Path) -> None:
    assert "expected --max-bytes" in str(refusal("prune", "--store", folder))
    assert "2 cases" in said("prune", "-s", folder, "--max-bytes", 0, "--dry-run")
    assert "3 cases" in said("prune", "-s", folder, "--max-bytes", 0, "--keep-audits-days", 0, "--dry-run")
    text = said("prune", "-s", folder, "--max-bytes", 0)
    assert "2 cases" in text and "more than allowed" in text
    assert "1 of 1 cases" in said("list", "-s", folder)


def test_prune_follows_the_configuration_of_the_cloud(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "cloud.yaml"
    config.write_text(f"store: {{folder: '{folder}', retention: {{max_bytes: 0, keep_audits_days: 0}}}}")
    assert "0 cases" in said("prune", "-c", config, "--max-bytes", 10**9, "--max-age-days", 1)
    assert "3 cases" in said("prune", "-c", config)


@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_what_was_exported_is_imported_into_a_store_that_is_made_for_it(
    folder: Path, tmp_path: Path, form: str
) -> None:
    said("export", "-s", folder, "--to", tmp_path / "set", "--format", form)
    words = ("import", "--from", tmp_path / "set", "-s", tmp_path / "new", "--format", form, "--tag", "wet")
    assert "2 pictures with 4 boxes, 2 of them new" in said(*words)
    assert "0 of them new" in said(*words)
    assert "wet: 2" in said("count", "-s", tmp_path / "new")


def test_an_import_names_the_pictures_that_it_refused_and_keeps_the_others(
    folder: Path, tmp_path: Path
) -> None:
    said("export", "-s", folder, "--to", tmp_path / "set")
    spoiled = tmp_path / "set" / "images" / f"{CASES[0].id[:24]}.jpg"
    spoiled.write_bytes(spoiled.read_bytes()[:200])
    error = refusal("import", "--from", tmp_path / "set", "-s", tmp_path / "new")
    assert isinstance(error, Malformed) and spoiled.name in str(error)
    assert "1 of 1 cases" in said("list", "-s", tmp_path / "new")
