"""Plots of gates and of scores, as PNG files; one look for all."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.gate_rules import ORACLE, OURS
from calibration.reliability import Reliability
from fovea.bench.gate_figures import GateCurves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _ORACLE, _STRONG = "#0b6e4f", "#222222", "#b5523b"
_OTHERS = ("#9aa5b1", "#7b8794", "#c9a227", "#8e6c8a", "#5b8db8", "#b07aa1", "#76b7b2", "#c0b8a8")
_SIZE_INCHES, _DPI = (6.4, 4.2), 120


def curves_png(curves: GateCurves) -> dict[str, bytes]:
    """Three plots against the percentage of frames asked: `ap`, `found` (objects) and `bytes`."""
    return {
        "ap": _plot(curves, curves.ap, "AP50-95", strong=curves.strong_ap),
        "found": _plot(curves, curves.found, "objects found (IoU 0.5, score 0.25)"),
        "bytes": _plot(curves, curves.kilobytes, "kB sent for each frame seen"),
    }


def reliability_png(before: Reliability, after: Reliability) -> bytes:
    """How often boxes are right against their score, before and after calibration."""
    figure, axes = _figure()
    axes.plot([0, 1], [0, 1], color="#cccccc", linewidth=1)
    for name, each, colour in (("before", before, _STRONG), ("after", after, _OURS)):
        axes.plot(
            each.mean_score, each.precision, marker="o", markersize=4, color=colour, linewidth=1.8,
            label=f"{name}: D-ECE {each.d_ece:.3f}",
        )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("score")
    axes.set_ylabel("share of boxes that are right (IoU 0.5)")
    axes.legend(frameon=False)
    return _png(figure)


def front_png(
    points: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float]],
    named: Mapping[str, tuple[float, float]],
    cost: str,
) -> bytes:
    """(cost, AP) of all points, of those worth having, and of the named ones among these. The line is the best AP
    that can be had for that cost or less."""
    figure, axes = _figure()
    axes.scatter(*_columns(points), s=8, color="#b8c2ce", linewidths=0, label="measured")
    axes.scatter(*_columns(front), s=12, color=_OURS, alpha=0.55, linewidths=0, label="worth having")
    best = sorted(points)
    reached = np.maximum.accumulate([ap for _, ap in best])
    axes.step([cost for cost, _ in best], reached, where="post", color=_OURS, linewidth=1.4)
    widest = max((cost for cost, _ in points), default=1.0)
    for name, at in named.items():
        is_far_right = at[0] > 0.8 * widest
        axes.scatter([at[0]], [at[1]], s=48, color=_STRONG, zorder=3)
        axes.annotate(
            name,
            at,
            xytext=(-2 if is_far_right else 6, -16),
            textcoords="offset points",
            ha="right" if is_far_right else "left",
            fontsize=9,
            color=_STRONG,
            weight="bold",
        )
    axes.set_xlim(left=0)
    axes.set_xlabel(cost)
    axes.set_ylabel("AP50-95")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return _png(figure)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [cost for cost, _ in points], [ap for _, ap in points]


def _plot(curves: GateCurves, lines: Mapping[str, Any], title: str, strong: float | None = None) -> bytes:
    figure, axes = _figure()
    others = (name for name in lines if name not in (OURS, ORACLE))
    for name, colour in zip(others, _OTHERS, strict=False):
        axes.plot(curves.pcts, lines[name], color=colour, linewidth=1.1, label=name)
    axes.plot(curves.pcts, lines[ORACLE], color=_ORACLE, linewidth=1.2, linestyle="--", label=ORACLE)
    axes.plot(curves.pcts, lines[OURS], color=_OURS, linewidth=2.4, label=OURS)
    if strong is not None:
        axes.axhline(strong, color=_STRONG, linewidth=1, linestyle=":", label="strong model alone")
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of frames asked")
    axes.set_ylabel(title)
    axes.set_title(curves.name, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return _png(figure)


def _figure() -> tuple[Any, Axes]:
    """Without pyplot, which would keep a global state and look for a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _png(figure: Any) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", metadata={"Software": ""})
    return target.getvalue()
