"""The curves of a training run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_PANELS = (
    ("detection loss", ("box", "classes", "bins")),
    ("distillation loss", ("raw", "candidates", "relations")),
    ("validation loss", ("val",)),
    ("learning rate", ("rate",)),
)


def draw_curves(rows: Sequence[dict[str, float]], path: Path) -> None:
    """Writes a PNG with one panel for each kind of figure that `rows` have; x is the number of images seen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [(title, [n for n in names if any(n in row for row in rows)]) for title, names in _PANELS]
    panels = [(title, names) for title, names in panels if names] or [("no figures yet", [])]
    figure = Figure(figsize=(4 * len(panels), 3), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, names) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_title(title)
        axes.set_xlabel("images seen")
        for name in names:
            points = [(row["images_seen"], row[name]) for row in rows if name in row]
            axes.plot([x for x, _ in points], [y for _, y in points], marker=".", label=name)
        if len(names) > 1:
            axes.legend()
    partial = path.with_suffix(".part")
    figure.savefig(partial, format="png", dpi=100)
    partial.replace(path)
