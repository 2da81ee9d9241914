"""The report of a demo: whole in itself, honest where hybrid is worse, and readable without ground truth."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.cli.demo_findings import LiveFindings, Mode, verdicts
from fovea.cli.demo_report import report_html, write_report
from fovea.cli.demo_svg import Dot, cumulative, stacked, trade_off
from tests.unit.demo_sample import sample

finite = st.floats(min_value=0, max_value=1e9, allow_nan=False)


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.refers_to: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.refers_to += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(html: str) -> Page:
    parsed = Page()
    parsed.feed(html)
    return parsed


def test_the_report_needs_nothing_but_itself() -> None:
    parsed = page(report_html(sample()))
    assert parsed.refers_to
    assert all(reference.startswith("data:image/jpeg;base64,") for reference in parsed.refers_to)


def test_the_report_shows_the_table_the_constants_the_machine_and_how_to_go_on() -> None:
    text = " ".join(" ".join(page(report_html(sample())).text).split())
    for words in (
        "hybrid", "21.0 (19.0–23.5)", "-9.0 (-11.0 to -7.0)", "board_j_per_cpu_s", "a <small> CPU", "±50 %",
        "make demo SOURCE=", "replaced_by_newer", "street-cloud", "night, frame 60",
        "Scored on the boxes as they were answered.",
    ):  # fmt: skip
        assert words in text, words


def test_without_truth_the_report_speaks_of_agreement_and_never_of_ap() -> None:
    text = " ".join(page(report_html(sample(has_truth=False))).text)
    assert "agreement with cloud" in text
    assert "63 %" in text
    assert "AP50-95" not in text


def test_a_live_part_without_answers_and_a_run_without_measurement_still_make_a_report() -> None:
    nothing = LiveFindings(0, [], [], {}, [])
    html = report_html(replace(sample(), live=nothing, modes=[], pictures=[]))
    assert "Live: 0 cameras" in " ".join(page(html).text)


def test_the_report_is_written_whole_into_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "out" / "report.html"
    write_report(sample(), path)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_it_is_said_plainly_where_hybrid_is_worse_and_where_nothing_is_clear() -> None:
    said = verdicts(sample())
    assert said[0].startswith("Hybrid against agent only: better by 4.5 points of AP (3.0 to 6.0)")
    assert "31.0 kB a frame against none" in said[0]
    assert "no clear difference" in said[1]
    assert "33 % of its bytes" in said[1]
    assert "worse by 9.0 points of AP (7.0 to 11.0)" in said[2]


def test_without_truth_hybrid_is_compared_by_what_it_shares_with_the_cloud() -> None:
    said = verdicts(sample(has_truth=False))
    assert "better, 63 % of boxes in common with the cloud against 50 %" in said[0]
    assert "shares 63 % of its boxes" in said[2]


def test_unanswered_questions_are_told() -> None:
    findings = sample()
    modes = [replace(mode, unanswered=7) if mode.mode is Mode.HYBRID else mode for mode in findings.modes]
    assert verdicts(replace(findings, modes=modes))[-1].startswith("7 of the questions of hybrid failed")
    assert verdicts(replace(findings, modes=[])) == []


@given(st.lists(st.tuples(finite, finite), max_size=6))
def test_a_trade_off_is_well_formed_and_keeps_its_dots_within_the_plot(
    points: list[tuple[float, float]],
) -> None:
    dots = [Dot(f"<{x}>", "edge", x, y, y * 0.9, y * 1.1) for x, y in points]
    drawn = ElementTree.fromstring(trade_off(dots, "x & y", "z"))
    circles = list(drawn.iter("circle"))
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= 560
        assert 0 <= float(circle.attrib["cy"]) <= 330


@given(st.dictionaries(st.sampled_from(["agent", "edge", "cloud"]), st.lists(finite, max_size=30)))
def test_a_cumulative_plot_is_well_formed_whatever_the_values(series: dict[str, list[float]]) -> None:
    drawn = ElementTree.fromstring(
        cumulative({name: (name, values) for name, values in series.items()}, "ms")
    )
    assert len(list(drawn.iter("polyline"))) == sum(1 for values in series.values() if values)


def test_stacked_areas_lie_on_top_of_each_other() -> None:
    drawn = ElementTree.fromstring(
        stacked([0, 1, 2], {"a": ("agent", [1, 2, 3]), "b": ("edge", [1, 1, 1])}, "s", "answers")
    )
    low, high = (polygon.attrib["points"].split() for polygon in drawn.iter("polygon"))
    assert high[3:] == [*reversed(low[:3])]  # the lower edge of the second is the upper edge of the first


@pytest.mark.parametrize("at", [[], [0.0]])
def test_a_plot_over_no_time_at_all_is_still_a_plot(at: list[float]) -> None:
    assert ElementTree.fromstring(stacked(at, {"a": ("agent", [0.0] * len(at))}, "s", "answers")) is not None
