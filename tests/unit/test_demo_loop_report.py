"""What the second act's report says, whichever way the act went."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from calibration.evaluate import Interval
from fovea.cli.demo_loop_findings import Mark, Moment, RolloutFindings, sentences
from fovea.cli.demo_loop_report import cards_of, clock, report_html, write_report
from fovea.cli.demo_loop_screen import Scene, percent, scene_line, scene_view, show_findings
from fovea.cli.demo_loop_watch import DeviceNow
from fovea.cli.demo_svg import timeline
from tests.unit.demo_loop_sample import good, refused


def test_a_good_end_is_told_with_every_figure_that_it_rests_on() -> None:
    told = " ".join(sentences(good()))
    for words in (
        "rose from 40% to 63%",
        "fell to 25%",
        "from 2.0 to 9.0: +7.0 points (+5.0 to +9.0, paired by clip)",
        "+0.2 points (-1.0 to +1.5, paired by clip; that may be chance)",
        "96 frames that people",
        "held-out night frames the old student's gate would ask about 63%, the new one's about 30%",
        "from shadow to all 3 devices",
        "1.7 MB",
    ):
        assert words in told, told


def test_a_refusal_is_told_with_its_reasons_and_nothing_is_claimed() -> None:
    told = " ".join(sentences(refused()))
    assert "ended with 'refuse'; nothing was rolled out" in told
    assert "-6.0 AP points (-9.0 to -3.0)" in told
    assert "AP went from" not in told
    assert "With the new student" not in told


def test_an_asked_rate_that_fell_at_night_is_not_dressed_up() -> None:
    told = " ".join(sentences(refused()))
    assert "fell from 40% to 30%" in told
    assert "its gate did not notice" in told


def test_an_asked_rate_that_did_not_fall_afterwards_is_said_to_be_so() -> None:
    found = good()
    worse = replace(found, asked=replace(found.asked, after=0.7))
    assert any("did not fall: it went to 70%" in line for line in sentences(worse))


def test_a_rollout_that_stopped_says_where_and_why() -> None:
    stopped = replace(
        good(), rollout=RolloutFindings("back", "back", [Mark(1, "shadow"), Mark(2, "back", "it is slower")])
    )
    assert "The rollout is back in stage back: it is slower." in sentences(stopped)
    assert not stopped.is_out


def test_the_fleets_quality_is_the_mean_over_what_its_devices_run() -> None:
    found = good()
    assert found.ap_at("night", Moment(0, 0.5, 0.0, 0)) == pytest.approx(0.02)
    assert found.ap_at("night", Moment(0, 0.5, 1 / 3, 0)) == pytest.approx((2 * 0.02 + 0.09) / 3)
    assert found.ap_at("night", Moment(0, 0.5, 1.0, 0)) == pytest.approx(0.09)
    assert math.isnan(found.ap_at("fog", Moment(0, 0.5, 1.0, 0)))
    assert refused().ap_at("night", Moment(0, 0.5, 1.0, 0)) == pytest.approx(0.02)


def test_the_report_is_one_page_with_both_curves_marks_and_pictures() -> None:
    html = report_html(good())
    assert html.count("<svg") == 2
    assert html.count('class="mark"') == 2 * len(good().marks)
    assert html.count("data:image/jpeg") == 3
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "&lt;b&gt;" in html  # what a mark says is text
    assert "Stages are short here" in html
    assert "<b>day</b> <time>0:00</time>" in html


def test_the_report_of_a_refusal_shows_its_reasons_and_no_rollout() -> None:
    html = report_html(refused())
    assert "The round: refuse" in html
    assert "The rollout" not in html
    assert "before and after</h2>" not in html


def test_the_figures_lie_beside_the_report_as_json_without_nan(tmp_path: Path) -> None:
    write_report(good(), tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "figures.json").read_text(), parse_constant=pytest.fail)
    assert figures["asked"] == {"day": 0.4, "night": 0.63, "after": 0.25}
    assert figures["moments"][0]["asked_share"] is None
    assert figures["pictures"] == []
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_the_cards_say_what_is_known_and_no_more() -> None:
    assert [card["value"] for card in cards_of(good())] == [
        "40 → 63 → 25 %",
        "17.0 → 17.2",
        "2.0 → 9.0",
        "promote",
    ]
    assert [card["value"] for card in cards_of(refused())] == ["40 → 30 %", "17.0", "2.0", "refuse"]


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0, 9.9, 61, 3599)] == ["0:00", "0:09", "1:01", "59:59"]


def test_a_timeline_has_a_gap_where_nothing_is_known_and_escapes_its_words() -> None:
    svg = timeline(
        [0, 1, 2, 3, 4],
        {"a<b": ("edge", [1.0, 2.0, math.nan, 3.0, 1.0])},
        [(2.0, "<3>")],
        "minutes",
        "points",
    )
    assert len(re.findall(r"<polyline", svg)) == 2
    assert "a&lt;b" in svg
    assert "&lt;3&gt;" in svg
    assert "nan" not in svg


def test_a_timeline_of_nothing_is_an_empty_plot() -> None:
    assert "<svg" in timeline([], {"x": ("edge", [])}, [], "minutes", "points")


def scene() -> Scene:
    devices = [
        DeviceNow("north", 12, 0.5, "ab", "1.1.1", "idle", True),
        DeviceNow("east", 0, math.nan, "", "", "", False),
    ]
    return Scene(
        "the rollout", 75.0, "shadow: [12 of 25 s]", devices, math.nan, 40, 2.5e6, {"night, old": 0.02}
    )


def shown(thing: object) -> str:
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


def test_the_screen_says_the_act_the_devices_and_what_is_known_so_far() -> None:
    text = shown(scene_view(scene()))
    for words in (
        "the rollout",
        "1:15  shadow: [12 of 25 s]",
        "candidate beside it",
        "2.5 MB up",
        "night, old 2.0",
    ):
        assert words in text, text


def test_without_a_terminal_the_same_is_one_line() -> None:
    line = scene_line(scene())
    assert "\n" not in line
    assert "1:15  the rollout: asked -, 40 cases, 2.5 MB up; north 1.1.1, east -" in line


def test_the_table_at_the_end_has_a_row_for_each_condition() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    show_findings(console, good())
    text = console.export_text()
    assert "+7.0 (+5.0 +9.0)" in text
    show_findings(console, refused())
    assert "17.0 (15.0-20.0)" in console.export_text()


def test_a_share_that_is_not_known_is_a_dash() -> None:
    assert (percent(math.nan), percent(0.125)) == ("-", "12%")


def test_an_interval_of_the_report_keeps_its_sign() -> None:
    html = report_html(good())
    assert "+7.0 (+5.0 to +9.0)" in html
    assert f"{100 * Interval(0.09, 0.07, 0.11).value:.1f} (7.0–11.0)" in html
