"""The report of the second act: one HTML file that needs nothing but itself."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calibration.evaluate import Interval
from fovea.cli.demo_loop_findings import LoopFindings, sentences
from fovea.cli.demo_loop_watch import ASKED_OVER_S
from fovea.cli.demo_report import embedded, rendered
from fovea.cli.demo_svg import timeline
from fovea.runtime.atomic_file import write_atomically

_KIND = {"day": "edge", "night": "cloud"}
"""The CSS class, and so the colour, of each condition."""


def write_report(findings: LoopFindings, folder: Path) -> None:
    """Writes report.html, and figures.json with all but the pictures. Raises BrokenError when that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "report.html", report_html(findings).encode("utf-8"))
    figures = json.dumps(_without_nan(asdict(replace(findings, pictures=()))), indent=1, default=str)
    write_atomically(folder / "figures.json", figures.encode("utf-8"))


def report_html(findings: LoopFindings) -> str:
    """The page as text: pictures and plots are within it."""
    return rendered(
        "demo_loop.html.j2",
        f=findings,
        sentences=sentences(findings),
        cards=cards_of(findings),
        plots=_plots(findings),
        pictures=[embedded(row) for row in findings.pictures],
        asked_over=round(ASKED_OVER_S),
        clock=clock,
        points=_points,
        share=_share,
        signed=_signed,
    )


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def cards_of(findings: LoopFindings) -> list[dict[str, str]]:
    """The few figures that come first."""
    asked = findings.asked
    shares = [asked.day, asked.night] + ([asked.after] if findings.is_out else [])
    cards = [
        {
            "kind": "hybrid",
            "title": "asked rate",
            "value": " → ".join("–" if math.isnan(share) else f"{100 * share:.0f}" for share in shares)
            + " %",
            "said": "day, night" + (", night with the new student" if findings.is_out else ""),
        }
    ]
    for found in findings.qualities:
        after = "" if found.new is None else f" → {100 * found.new.value:.1f}"
        cards.append(
            {
                "kind": _KIND.get(found.condition, "agent"),
                "title": f"{found.condition}, held out",
                "value": f"{100 * found.old.value:.1f}{after}",
                "said": "AP50-95, points",
            }
        )
    if findings.round is not None:
        told = findings.rollout.status if findings.rollout else "not rolled out"
        verdict = findings.round.verdict.replace("_", " ")
        cards.append(
            {"kind": "agent", "title": "the new student", "value": verdict, "said": f"rollout: {told}"}
        )
    return cards


def _plots(findings: LoopFindings) -> dict[str, Any]:
    from markupsafe import Markup

    at_min = [moment.at_s / 60 for moment in findings.moments]
    marks = [(mark.at_s / 60, str(number)) for number, mark in enumerate(findings.marks, start=1)]
    asked = {"asked": ("hybrid", [100 * moment.asked_share for moment in findings.moments])}
    ap = {
        f"{each.condition} ({each.frames} frames)": (
            _KIND.get(each.condition, "agent"),
            [100 * findings.ap_at(each.condition, moment) for moment in findings.moments],
        )
        for each in findings.qualities
    }
    # What the plots are made of is escaped where it enters them (`demo_svg`).
    return {
        "asked": Markup(timeline(at_min, asked, marks, "minutes", "% of frames")),
        "ap": Markup(timeline(at_min, ap, marks, "minutes", "AP50-95, points")),
    }


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.0f} %"


def _points(found: Interval) -> str:
    return f"{100 * found.value:.1f} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def _signed(found: Interval) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _without_nan(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value
