"""Small plots as SVG text for the report: one look, colours by CSS class, no library.

Colours come from the page (`.agent`, `.edge`, `.cloud`, `.hybrid` and the variables they use), so that the plots
follow a dark page, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 330
WIDE, LOW = 1120, 270
"""Of a timeline."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 28, 26, 50
_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Dot:
    """One point of a trade-off: `kind` is its CSS class, `low` and `high` the ends of its interval in y."""

    label: str
    kind: str
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to px, linear or logarithmic."""

    low: float
    high: float
    from_px: float
    to_px: float
    is_log: bool = False

    def px(self, value: float) -> float:
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.from_px + min(max(share, 0.0), 1.0) * (self.to_px - self.from_px)


def trade_off(dots: Sequence[Dot], x_title: str, y_title: str, most: float = math.inf) -> str:
    """What is paid (x, from 0) against what is got (y, up to `most` at most), with intervals; each dot carries its
    name."""
    x = _Scale(0, _nice_above(max((dot.x for dot in dots), default=1.0) * 1.12), _LEFT, WIDTH - _RIGHT)
    highest = max((dot.high for dot in dots), default=1.0)
    y = _Scale(0, min(_nice_above(highest * 1.1), most), HEIGHT - _BOTTOM, _TOP)
    parts = [_axes(x, y, _ticks(0, x.high), _ticks(0, y.high), x_title, y_title)]
    named: list[tuple[float, float]] = []
    for dot in sorted(dots, key=lambda each: each.x):
        at, top, middle, bottom = x.px(dot.x), y.px(dot.high), y.px(dot.y), y.px(dot.low)
        anchor, dx = ("end", -11) if at > WIDTH - 130 else ("start", 11)
        # A name beside another one is hard to read: it goes below its dot then.
        is_crowded = any(abs(at - x_px) < 100 and abs(middle - y_px) < 24 for x_px, y_px in named)
        named.append((at, middle))
        name_y = middle + 20 if is_crowded else middle - 7
        parts.append(
            f'<g class="{dot.kind}"><line class="whisker" x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" '
            f'y2="{bottom:.1f}"/><circle class="dot" cx="{at:.1f}" cy="{middle:.1f}" r="6"/>'
            f'<text class="name" x="{at + dx:.1f}" y="{name_y:.1f}" text-anchor="{anchor}">'
            f"{escape(dot.label)}</text></g>"
        )
    return _svg(parts, f"{y_title} against {x_title}")


def cumulative(series: Mapping[str, tuple[str, Sequence[float]]], x_title: str) -> str:
    """For each series (label -> CSS class and values) the share of values up to x; x is logarithmic, and begins at
    0.1 or above."""
    values = [max(value, _LEAST) for _, each in series.values() for value in each]
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high * 1.0001))
    x = _Scale(low, max(high, low * 10), _LEFT, WIDTH - _RIGHT, is_log=True)
    y = _Scale(0, 1, HEIGHT - _BOTTOM, _TOP)
    decades = [10.0**power for power in range(round(math.log10(x.low)), round(math.log10(x.high)) + 1)]
    parts = [_axes(x, y, decades, [0, 0.25, 0.5, 0.75, 1.0], x_title, "share of answers", is_share=True)]
    legend = []
    for label, (kind, each) in series.items():
        ordered = sorted(each)
        if not ordered:
            continue
        points = [(x.px(ordered[0]), y.px(0))]
        for number, value in enumerate(ordered, start=1):
            points += [(x.px(value), points[-1][1]), (x.px(value), y.px(number / len(ordered)))]
        points.append((WIDTH - _RIGHT, y.px(1)))
        parts.append(f'<polyline class="line {kind}" points="{_points(points)}"/>')
        legend.append((f"{label} ({len(ordered)})", kind))
    parts.append(_legend(legend))
    return _svg(parts, f"share of answers by {x_title}")


def stacked(
    at: Sequence[float], series: Mapping[str, tuple[str, Sequence[float]]], x_title: str, y_title: str
) -> str:
    """Areas on top of each other over `at`: label -> CSS class, one value for each x."""
    sums = [sum(values[index] for _, values in series.values()) for index in range(len(at))]
    x = _Scale(min(at, default=0), max([*at, min(at, default=0) + 1]), _LEFT, WIDTH - _RIGHT)
    y = _Scale(0, _nice_above(max(sums, default=1) * 1.12 or 1), HEIGHT - _BOTTOM, _TOP)
    parts = [_axes(x, y, _ticks(x.low, x.high), _ticks(0, y.high), x_title, y_title)]
    below = [0.0] * len(at)
    for kind, values in series.values():
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper = [(x.px(when), y.px(value)) for when, value in zip(at, above, strict=True)]
        lower = [(x.px(when), y.px(value)) for when, value in zip(at, below, strict=True)]
        parts.append(f'<polygon class="area {kind}" points="{_points([*upper, *reversed(lower)])}"/>')
        below = above
    parts.append(_legend([(label, kind) for label, (kind, _) in series.items()]))
    return _svg(parts, f"{y_title} over {x_title}")


def timeline(
    at: Sequence[float],
    series: Mapping[str, tuple[str, Sequence[float]]],
    marks: Sequence[tuple[float, str]],
    x_title: str,
    y_title: str,
) -> str:
    """Lines over a time that begins at 0: label -> CSS class, one value for each x; where a value is NaN the line has
    a gap. `marks`: a time and a short name, such as a number, each a line from top to bottom."""
    shown = [value for _, values in series.values() for value in values if math.isfinite(value)]
    x = _Scale(0, max([*at, 1e-3]), _LEFT, WIDE - _RIGHT)
    y = _Scale(0, _nice_above(max(shown, default=1) * 1.15), LOW - _BOTTOM, _TOP + 16)
    parts = [_axes(x, y, _ticks(x.low, x.high), _ticks(0, y.high), x_title, y_title)]
    for when, name in marks:
        left = x.px(when)
        parts.append(
            f'<line class="mark" x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP + 12}" y2="{LOW - _BOTTOM}"/>'
            f'<text class="name" x="{left:.1f}" y="{_TOP + 8}" text-anchor="middle">{escape(name)}</text>'
        )
    for kind, values in series.values():
        for piece in _pieces(at, values):
            points = _points([(x.px(when), y.px(value)) for when, value in piece])
            parts.append(f'<polyline class="line {kind}" points="{points}"/>')
    parts.append(_legend([(label, kind) for label, (kind, _) in series.items()]))
    return _svg(parts, f"{y_title} over {x_title}", WIDE, LOW)


def _pieces(at: Sequence[float], values: Sequence[float]) -> list[list[tuple[float, float]]]:
    """Runs of points without a gap."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for when, value in zip(at, values, strict=True):
        if math.isfinite(value):
            pieces[-1].append((when, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _axes(
    x: _Scale,
    y: _Scale,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_title: str,
    y_title: str,
    is_share: bool = False,
) -> str:
    left, right, bottom = x.from_px, x.to_px, y.from_px
    parts = []
    for tick in y_ticks:
        text = f"{100 * tick:.0f} %" if is_share else _number(tick)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{right}" y1="{y.px(tick):.1f}" y2="{y.px(tick):.1f}"/>'
            f'<text class="tick" x="{left - 8}" y="{y.px(tick) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for tick in x_ticks:
        parts.append(
            f'<line class="grid" x1="{x.px(tick):.1f}" x2="{x.px(tick):.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
            f'<text class="tick" x="{x.px(tick):.1f}" y="{bottom + 19}" text-anchor="middle">{_number(tick)}</text>'
        )
    middle = (y.to_px + bottom) / 2
    parts.append(
        f'<text class="title" x="{(left + right) / 2}" y="{bottom + _BOTTOM - 8}" text-anchor="middle">'
        f"{escape(x_title)}</text>"
        f'<text class="title" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>"
    )
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    """A row above the plot."""
    parts, left = [], float(_LEFT)
    for label, kind in entries:
        parts.append(
            f'<g class="{kind}"><rect class="swatch" x="{left:.0f}" y="2" width="11" height="11" rx="2"/>'
            f'<text class="name" x="{left + 16:.0f}" y="12">{escape(label)}</text></g>'
        )
        left += 34 + 8 * len(label)
    return "".join(parts)


def _svg(parts: Sequence[str], label: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _ticks(low: float, high: float) -> list[float]:
    """About five round values between the ends."""
    step = _nice_above((high - low) / 5)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _nice_above(value: float) -> float:
    """The smallest of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10 times a power of ten that is not below `value`; 1 for 0."""
    if not value > 1e-9:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power
        for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
        if factor * power >= value * (1 - 1e-9)
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
