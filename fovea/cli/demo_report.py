"""The report of a demo: one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fovea.cli.demo_findings import DemoFindings, Mode, ModeFindings, PictureRow, verdicts
from fovea.cli.demo_svg import Dot, cumulative, stacked, trade_off
from fovea.core.energy import BAND
from fovea.core.routing import Tier
from fovea.runtime.atomic_file import write_atomically

TEMPLATES = Path(__file__).with_name("templates")

KIND = {Mode.AGENT: "agent", Mode.EDGE: "edge", Mode.CLOUD: "cloud", Mode.HYBRID: "hybrid"}
"""The CSS class, and so the colour, of each mode."""


def write_report(findings: DemoFindings, path: Path) -> None:
    """Writes the report. Raises BrokenError when that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, report_html(findings).encode("utf-8"))


def report_html(findings: DemoFindings) -> str:
    """The page as text: pictures and plots are within it."""
    conditions = list(dict.fromkeys(name for mode in findings.modes for name in mode.ap_by_condition))
    return rendered(
        "report.html.j2",
        f=findings,
        verdicts=verdicts(findings),
        kind=KIND,
        tiers=list(Tier),
        band=round(100 * BAND),
        by_condition=conditions,
        plots=_plots(findings),
        pictures=[embedded(row) for row in findings.pictures],
    )


def rendered(template: str, **values: Any) -> str:
    """One of the templates as a page. Its style is part of it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values)


def _plots(findings: DemoFindings) -> dict[str, Any]:
    from markupsafe import Markup

    moments = findings.live.moments
    drawn = {
        "bytes": trade_off(
            _dots(findings, [mode.bytes_per_frame / 1000 for mode in findings.modes]),
            "kB that left the camera, a frame",
            _quality_title(findings),
            most=100.0,
        ),
        "latency": trade_off(
            _dots(findings, [mode.latency.mean_ms for mode in findings.modes]),
            "mean ms to the best answer",
            _quality_title(findings),
            most=100.0,
        ),
        "tiers": stacked(
            [moment.at_s for moment in moments],
            {
                tier.name.lower(): (
                    tier.name.lower(),
                    [float(moment.answers.get(tier, 0)) for moment in moments],
                )
                for tier in Tier
            },
            "seconds",
            "answers a second",
        ),
        "live_latency": cumulative(
            {
                tier.name.lower(): (tier.name.lower(), findings.live.latencies_ms.get(tier, ()))
                for tier in Tier
            },
            "ms from capture",
        ),
    }
    # What the plots are made of is escaped where it enters them (`demo_svg`).
    return {name: Markup(svg) for name, svg in drawn.items()}


def _quality_title(findings: DemoFindings) -> str:
    return "AP50-95, points" if findings.has_truth else "agreement with the cloud, %"


def _dots(findings: DemoFindings, costs: Sequence[float]) -> list[Dot]:
    dots = []
    for mode, cost in zip(findings.modes, costs, strict=True):
        value, low, high = _quality(mode)
        dots.append(Dot(mode.mode.value, KIND[mode.mode], cost, 100 * value, 100 * low, 100 * high))
    return dots


def _quality(mode: ModeFindings) -> tuple[float, float, float]:
    if mode.ap is not None:
        return mode.ap.value, mode.ap.low, mode.ap.high
    shared = mode.agreement or 0.0
    return shared, shared, shared


def embedded(row: PictureRow) -> dict[str, Any]:
    """A row of pictures as a template takes it: they are within the page."""
    return {
        "title": row.title,
        "cells": [
            {
                "caption": cell.caption,
                "src": "data:image/jpeg;base64," + base64.b64encode(cell.jpeg).decode("ascii"),
            }
            for cell in row.cells
        ],
    }
