"""What a grid search found, for people: plots, a section of the report, the rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping

from calibration.grid_search import Found
from fovea.bench.calibration_report import ReportPart, ReportTable
from fovea.bench.gate_grid import ASKING, GridResult
from fovea.bench.gate_plots import front_png
from fovea.core.energy import BAND
from fovea.core.policy import Policy, Span

FRONT_HEADINGS = (
    "",
    "ask from",
    "asked at most",
    "forwarded at most",
    "weight of latency",
    "AP",
    "ms",
    "kB",
    "J",
)
POLICY_HEADINGS = (
    "policy",
    "asked",
    "AP",
    "F1 of what is told",
    "ms",
    "kB a frame",
    "J a frame",
    "told from",
)
_AXES = {
    "latency_ms": "mean latency of the final answer, ms",
    "bytes_per_frame": "kB sent for each frame",
    "joules_per_frame": "modelled energy, J for each frame",
}
_SCALES = {"bytes_per_frame": 1e-3}
_MOST_ROWS = 25


def grid_part(result: GridResult, on: str) -> ReportPart:
    """The section of the report."""
    merge = result.merge
    text = (
        f"{len(result.points):,} ways of asking and {len(result.merge_points)} of merging were measured on recorded "
        f"answers; {len(result.front)} are worth having: no other is at least as good in AP, latency, bytes and "
        "energy at once.",
        f"Merging: the edge is trusted {merge.edge:g} and the cloud {merge.cloud:g} times as much as the camera; a "
        f"tier that saw nothing pulls the score down to {merge.absent_share:.0%}.",
        f"Policies as measured on {on}, which had no part in choosing them, with 95 % intervals over clips. Latency "
        f"is that of the final answer; energy is modelled, {BAND:.0%} either way; times are of this machine.",
    )
    return ReportPart(
        "Policies: what asking costs and gives",
        text,
        policy_figures(result),
        plots(result),
        (
            ReportTable(POLICY_HEADINGS, [*alone_rows(result), *map(policy_row, result.policies)]),
            ReportTable(FRONT_HEADINGS, front_rows(result)),
        ),
    )


def plots(result: GridResult) -> dict[str, bytes]:
    """AP against latency, bytes and energy: every point, the front, the policies by name."""
    return {
        f"AP against {name}": front_png(
            [(_cost(each, name), each.figures["ap"]) for each in result.points],
            [(_cost(each, name), each.figures["ap"]) for each in result.front],
            {title: (_cost(each, name), each.figures["ap"]) for title, each in result.chosen.items()},
            label,
        )
        for name, label in _AXES.items()
    }


def front_rows(result: GridResult) -> list[tuple[str, ...]]:
    """The front from its cheap end to the best AP, thinned to a page; policies are named."""
    names = {each.point: name for name, each in result.chosen.items()}
    front = sorted(result.front, key=lambda each: each.figures["joules_per_frame"])
    step = max(1, -(-len(front) // _MOST_ROWS))
    kept = [each for number, each in enumerate(front) if number % step == 0 or each.point in names]
    return [_front_row(names.get(each.point, ""), each) for each in kept]


def policy_row(policy: Policy) -> tuple[str, ...]:
    """What a policy was measured to give, with intervals; dashes where it never was."""
    found = policy.measured
    if found is None:
        return (policy.name, "-", "-", "-", "-", "-", "-", f"{policy.tell_from:g}")
    return (
        policy.name,
        f"{found.asked_share:.0%}",
        _span(found.ap, ".3f"),
        _span(found.f1, ".3f"),
        _span(found.latency_ms, ".0f"),
        _span(found.bytes_per_frame, ".0f", 1e-3),
        _span(found.joules_per_frame, ".2f"),
        f"{policy.tell_from:g}",
    )


def alone_rows(result: GridResult) -> list[tuple[str, ...]]:
    """Each tier alone, in the columns of the policies."""
    return [
        (
            name,
            f"{each['asked_share']:.0%}",
            f"{each['ap']:.3f}",
            f"{each['f1']:.3f}",
            f"{each['latency_ms']:.0f}",
            f"{each['bytes_per_frame'] / 1000:.0f}",
            f"{each['joules_per_frame']:.2f}",
            "",
        )
        for name, each in result.alone.items()
    ]


def policy_figures(result: GridResult) -> dict[str, float]:
    """What was measured, by dotted names."""
    figures: dict[str, float] = {}
    for name, each in result.alone.items():
        figures |= {f"{name.replace(' ', '_')}.{key}": value for key, value in each.items()}
    for policy in result.policies:
        if policy.measured is not None:
            figures |= _measured_figures(policy.name, policy)
    return figures


def _measured_figures(name: str, policy: Policy) -> dict[str, float]:
    found = policy.measured
    if found is None:
        return {}
    spans: Mapping[str, Span] = {
        "ap": found.ap, "f1": found.f1, "latency_ms": found.latency_ms,
        "bytes_per_frame": found.bytes_per_frame, "joules_per_frame": found.joules_per_frame,
    }  # fmt: skip
    figures = {f"{name}.asked_share": found.asked_share}
    for key, span in spans.items():
        figures |= {
            f"{name}.{key}": span.value,
            f"{name}.{key}_low": span.low,
            f"{name}.{key}_high": span.high,
        }
    return figures


def _front_row(name: str, found: Found) -> tuple[str, ...]:
    own = dict(zip((axis.name for axis in ASKING), found.point, strict=True))
    figures = found.figures
    return (
        name,
        f"{own['ask_from']:.1f}",
        f"{100 * figures['asked_share']:.0f}/{own['asked_share']:.0%}",
        f"{figures['forwarded_share']:.0%}",
        f"{own['qoe_latency']:.1f}",
        f"{figures['ap']:.3f}",
        f"{figures['latency_ms']:.0f}",
        f"{figures['bytes_per_frame'] / 1000:.0f}",
        f"{figures['joules_per_frame']:.2f}",
    )


def _cost(found: Found, name: str) -> float:
    return found.figures[name] * _SCALES.get(name, 1.0)


def _span(span: Span, form: str, scale: float = 1.0) -> str:
    low, value, high = (format(each * scale, form) for each in (span.low, span.value, span.high))
    return f"{value} ({low} to {high})"
