"""Starts after an end that nobody asked for are counted, until the machine boots again."""

from __future__ import annotations

from pathlib import Path

from fovea.update.starts import Starts


def test_an_end_that_was_asked_for_is_no_restart(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "starts.json"
    first = Starts(file, "boot-1")
    assert first.restarts == 0
    first.end()
    assert Starts(file, "boot-1").restarts == 0


def test_each_start_after_a_kill_is_counted_until_the_machine_boots(tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    for restarts in range(3):
        assert Starts(file, "boot-1").restarts == restarts
    assert Starts(file, "boot-2").restarts == 0


def test_deaths_count_against_the_candidate_that_looked(tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    starts = Starts(file, "boot-1")
    starts.shadowing("aa")
    assert starts.deaths_beside("aa") == 0
    for deaths in (1, 2):
        starts = Starts(file, "boot-1")
        assert (starts.deaths_beside("aa"), starts.deaths_beside("bb")) == (deaths, 0)
        starts.shadowing("aa")
    starts.shadowing("bb")
    assert (starts.deaths_beside("aa"), starts.deaths_beside("bb")) == (0, 0)


def test_deaths_with_no_candidate_count_against_none(tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    starts = Starts(file, "boot-1")
    starts.shadowing("aa")
    starts.shadowing(None)
    starts = Starts(file, "boot-1")
    starts.shadowing("aa")
    assert (starts.restarts, starts.deaths_beside("aa")) == (1, 0)


def test_a_damaged_file_and_a_folder_that_cannot_be_written_stop_nothing(tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    file.write_bytes(b"{no")
    assert Starts(file, "boot-1").restarts == 0
    (tmp_path / "in_the_way").write_bytes(b"")
    nowhere = Starts(tmp_path / "in_the_way" / "starts.json", "boot-1")
    nowhere.shadowing("aa")
    nowhere.end()
    assert nowhere.restarts == 0
