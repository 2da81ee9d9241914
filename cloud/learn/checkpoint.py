"""The state of a training run in one file, written whole or not at all."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fovea.core.errors import Malformed, StoreCorrupt
from fovea.runtime.atomic_file import write_atomically


@dataclass(slots=True, eq=False)
class Progress:
    """How far a run has come. `curve` has a row for each look at the validation images: names and figures."""

    steps: int = 0
    images_seen: int = 0
    elapsed_s: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoint of one run: `run` is the digest of everything that decides it."""

    path: Path
    run: str

    def save(self, progress: Progress, parts: dict[str, Any]) -> None:
        """`parts` are state dictionaries by name. Raises BrokenError when the disk does not take it."""
        import torch

        target = io.BytesIO()
        kept = {name: getattr(progress, name) for name in Progress.__dataclass_fields__}
        torch.save({"run": self.run, "progress": kept, "parts": parts}, target)
        write_atomically(self.path, target.getvalue())

    def find(self) -> tuple[Progress, dict[str, Any]] | None:
        """What was saved, or None. Raises Malformed when it belongs to another run, StoreCorrupt when unreadable."""
        import torch

        if not self.path.is_file():
            return None
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise StoreCorrupt(
                f"{self.path}: not a checkpoint ({type(error).__name__}); remove it"
            ) from error
        if saved["run"] != self.run:
            raise Malformed(
                f"{self.path.parent}: holds another run (student, teacher, data or settings differ); "
                "give an empty folder"
            )
        return Progress(**saved["progress"]), saved["parts"]
