"""`fovea loop`: what people are told of rounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cloud.cases.store import CaseStore, StoreAddress
from cloud.learn.promotion import Verdict
from cloud.learn.round_plan import RoundPlan, Step, StepResult
from cloud.learn.rounds import RoundStore
from fovea.cli.loop import app
from fovea.core.errors import Malformed, NotFound

WIDE = {"COLUMNS": "250"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text("store: {folder: kept}\nsites: {yard: ['yard-*']}\n")
    CaseStore.open(StoreAddress.in_folder(tmp_path / "kept")).close()
    return path


@pytest.fixture
def round_id(config: Path) -> str:
    """A round that was refused."""
    rounds = RoundStore.open(StoreAddress.in_folder(config.parent / "kept").database)
    begun = rounds.begin(RoundPlan(site="yard", condition="night", why="drift: the asked rate rose"))
    rounds.begin_step(begun.id, Step.SELECT)
    rounds.end_step(begun.id, Step.SELECT, StepResult("12 cases to [learn] from", {"new": 12}), 61.0)
    rounds.end(begun.id, Verdict.REFUSE, ("day: -3.0 AP points (-4.0 to -2.0)",), "c" * 64)
    rounds.close()
    folder = config.parent / "rounds" / begun.id
    folder.mkdir(parents=True)
    finding = {
        "name": "condition day",
        "passed": False,
        "said": "day: -3.0 AP points (-4.0 to -2.0)",
        "points": None,
    }
    (folder / "verdict.json").write_text(json.dumps({"findings": [finding]}))
    return begun.id


def said(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env=WIDE, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_rounds_are_listed_with_their_outcome_and_reason(config: Path, round_id: str) -> None:
    told = said("list", "--config", config)
    for word in (
        round_id,
        "yard",
        "night",
        "refuse",
        "day: -3.0 AP points",
        "drift: the asked rate rose",
        "1.0",
    ):
        assert word in told


def test_rounds_are_listed_as_json(config: Path, round_id: str) -> None:
    [line] = said("list", "--config", config, "--json").splitlines()
    told = json.loads(line)
    assert told["id"] == round_id
    assert told["verdict"] == "refuse"
    assert told["steps"]["select"]["facts"] == {"new": 12}


def test_without_rounds_that_is_said(config: Path) -> None:
    assert "no rounds" in said("list", "--config", config)


def test_a_round_is_shown_step_by_step_with_every_question_of_its_verdict(
    config: Path, round_id: str
) -> None:
    told = said("show", "--config", config, round_id)
    assert "12 cases to [learn] from" in told  # no markup of the terminal
    assert "failed  day: -3.0 AP points" in told
    assert "refuse after 1.0 minutes" in told


def test_the_state_of_the_loop_says_what_a_site_lacks(config: Path, round_id: str) -> None:
    told = said("status", "--config", config)
    assert "no round is at work" in told
    assert round_id in told
    assert "site yard: shadow only, it has no golden frames yet" in told


def test_no_such_round_is_an_error(config: Path) -> None:
    with pytest.raises(NotFound, match="no such round"):
        said("show", "--config", config, "20200101-000000")


def test_no_such_site_or_mode_is_an_error_before_anything_begins(config: Path) -> None:
    with pytest.raises(NotFound, match="site"):
        said("run", "--config", config, "--site", "garden")
    with pytest.raises(NotFound, match="mode"):
        said("run", "--config", config, "--mode", "hard")


def test_a_round_without_cases_fails_and_says_so(config: Path) -> None:
    with pytest.raises(Exception, match="expected at least one case that shows fog") as caught:
        said("run", "--config", config, "--condition", "fog", "--minutes", "0.1")
    assert not isinstance(caught.value, Malformed)
    assert "failed" in said("list", "--config", config)
