"""What was calibrated, as one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fovea.runtime.atomic_file import write_atomically

_STYLE = """
body { margin: 0; background: #f6f7f9; color: #1c2330; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 32px 24px; }
section { background: #fff; border: 1px solid #e1e5ec; border-radius: 12px; padding: 20px 24px; margin-bottom: 20px; }
h1 { margin: 0 0 16px; } h2 { margin: 0 0 10px; font-size: 20px; } p { margin: 0 0 10px; max-width: 92ch; }
.pictures { display: flex; flex-wrap: wrap; gap: 8px 16px; } img { max-width: 100%; width: 500px; }
table.plain { margin: 4px 0 16px; } table.plain td + td, table.plain th + th { text-align: right; }
th { color: #5b6577; font-weight: 600; } summary { cursor: pointer; color: #5b6577; margin-top: 8px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 3px 14px 3px 0; text-align: left; border-top: 1px solid #eef1f5; font-size: 14px; }
"""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A small table; the first column is text, the others are shown as numbers are."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One section: what was done in a few sentences, tables, figures by name, and PNG pictures by caption."""

    title: str
    text: Sequence[str] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    tables: Sequence[ReportTable] = ()


def report_html(title: str, parts: Sequence[ReportPart]) -> str:
    """The page as text, pictures within it."""
    body = "".join(_section(part) for part in parts)
    shown = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>{shown}</h1>{body}</main></body></html>\n"
    )


def write_report(path: Path, title: str, parts: Sequence[ReportPart]) -> None:
    """Writes the page. Raises BrokenError when that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, report_html(title, parts).encode("utf-8"))


def _section(part: ReportPart) -> str:
    text = "".join(f"<p>{html.escape(line)}</p>" for line in part.text)
    pictures = "".join(
        f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        for caption, png in part.pictures.items()
    )
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value:.4g}</td></tr>" for name, value in part.figures.items()
    )
    figures = f"<details><summary>all figures</summary><table>{rows}</table></details>" if rows else ""
    tables = "".join(_table(table) for table in part.tables)
    return (
        f"<section><h2>{html.escape(part.title)}</h2>{text}{tables}"
        f'<div class="pictures">{pictures}</div>{figures}</section>'
    )


def _table(table: ReportTable) -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in table.headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
