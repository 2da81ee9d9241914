"""What a person sees while the demo runs: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fovea.cli.demo_findings import CameraFindings, DemoFindings, Latency, ModeFindings, verdicts
from fovea.core.routing import Tier

STYLES = {Tier.AGENT: "green", Tier.EDGE: "yellow", Tier.CLOUD: "blue"}
_BAR_CELLS = 14
_LEFT = ("camera", "who answers")


def live_view(
    cameras: Sequence[CameraFindings], seconds: float, every: float, cpu_shares: Mapping[str, float]
) -> RenderableType:
    """One screenful: a row for each camera, who answers as a bar, and what the processes take."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in (*_LEFT, "fps", "agent", "edge", "cloud", "asked", "p50", "p95", "kB up", "drops"):
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for camera in cameras:
        table.add_row(
            camera.name,
            _bar(camera.answers),
            f"{camera.fps:.1f}",
            *(Text(str(camera.answers.get(tier, 0)), STYLES[tier]) for tier in Tier),
            f"{100 * camera.asked_share:.0f} %",
            *_times(camera.latency),
            f"{camera.bytes_sent / 1000:.0f}",
            str(sum(camera.lost.values())),
        )
    busy = "  ".join(f"{name} {100 * share:.0f} %" for name, share in cpu_shares.items())
    head = Text(f"live for {seconds:.0f} of {every:.0f} s", "bold")
    foot = Text(f"CPU: {busy}    times: ms from capture to the MQTT message", "dim")
    return Group(head, table, foot)


def live_line(cameras: Sequence[CameraFindings], seconds: float) -> str:
    """The same in one line."""
    parts = []
    for camera in cameras:
        answers = "/".join(str(camera.answers.get(tier, 0)) for tier in Tier)
        p50, p95 = _times(camera.latency)
        parts.append(
            f"{camera.name} {camera.fps:.1f} fps, answers {answers}, asked {100 * camera.asked_share:.0f} %, "
            f"p50 {p50} p95 {p95} ms, {camera.bytes_sent / 1000:.0f} kB up, {sum(camera.lost.values())} drops"
        )
    return f"live {seconds:3.0f} s  " + "; ".join(parts)


def show_results(console: Console, findings: DemoFindings) -> None:
    """The table of the measurement and what it says."""
    if not findings.modes:
        return
    title = f"{findings.modes[0].frames} frames, four ways to answer them"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, 0, 0, 1))
    quality = ("AP50-95 (95 %)", "AP50") if findings.has_truth else ("agreement",)
    for heading in ("by", *quality, "mean ms", "p95", "kB", "asked", "cloud", "J ±50%"):
        table.add_column(heading, justify="left" if heading == "by" else "right", no_wrap=True)
    for mode in findings.modes:
        table.add_row(
            mode.mode.value,
            *_quality(mode, findings.has_truth),
            f"{mode.latency.mean_ms:.0f}",
            f"{mode.latency.p95_ms:.0f}",
            f"{mode.bytes_per_frame / 1000:.1f}",
            f"{100 * mode.asked_share:.0f} %",
            f"{100 * mode.cloud_share:.0f} %",
            f"{mode.energy.total_j:.2g}",
        )
    console.print(table)
    for sentence in verdicts(findings):
        console.print(f"- {sentence}", highlight=False)


def _quality(mode: ModeFindings, has_truth: bool) -> tuple[str, ...]:
    if not has_truth:
        return ("-" if mode.agreement is None else f"{100 * mode.agreement:.0f} %",)
    if mode.ap is None or mode.ap50 is None:
        return ("-", "-")
    spread = f"{100 * mode.ap.value:.1f} ({100 * mode.ap.low:.1f}-{100 * mode.ap.high:.1f})"
    return spread, f"{100 * mode.ap50:.1f}"


def _times(latency: Latency | None) -> tuple[str, str]:
    return ("-", "-") if latency is None else (f"{latency.p50_ms:.0f}", f"{latency.p95_ms:.0f}")


def _bar(answers: Mapping[Tier, int]) -> Text:
    """Cells in the colours of the tiers, each tier with as many as its share of the answers."""
    total = sum(answers.values())
    text, used = Text(), 0
    for tier in Tier:
        cells = round(_BAR_CELLS * answers.get(tier, 0) / total) if total else 0
        cells = min(cells, _BAR_CELLS - used)
        text.append("█" * cells, STYLES[tier])
        used += cells
    return text
