"""The training of one student: a step, a look at the validation images, and its whole state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from cloud.learn.batches import Batch, Batches, Deck, PictureBook
from cloud.learn.checkpoint import Progress
from cloud.learn.dataset import Origin, Snapshot, Split, StoredImage
from cloud.learn.losses import DetectionCriterion, StudentOutputs
from cloud.learn.pictures import PLAIN
from cloud.learn.rebuild import rebuild, restore_statistics
from cloud.learn.settings import DistilSettings
from cloud.learn.teaching import Teaching, teaching_for
from cloud.learning_rate import Horizon, rate_factor
from fovea.core.errors import Incompatible
from fovea.runtime.bundle import Bundle

_STATISTICS_BATCHES = 4
_ENDLESS = 10**12


class Training:
    """Holds the student in training, its average over time, and the optimizer. Not for two callers at once.

    Batches depend on the seed and the number of the step alone, so a run that was resumed sees what it would have
    seen. With `uses_teacher_labels` False only images count whose labels no model made.
    """

    def __init__(
        self,
        student: Bundle,
        snapshot: Snapshot,
        settings: DistilSettings,
        seed: int,
        device: str,
        uses_teacher_labels: bool,
        teacher: Bundle | None,
        looks_dir: Path,
        minutes: float | None,
        epochs: float | None,
    ) -> None:
        import torch

        if snapshot.labels.ids != student.manifest.label_set.ids:
            raise Incompatible(
                f"snapshot: has the classes {', '.join(snapshot.labels.names)}, "
                f"the student {', '.join(student.manifest.labels)}"
            )
        self.settings, self.progress = settings, Progress()
        self._device = torch.device(torch_device(device))
        self._is_mixed = self._device.type == "cuda" or has_bfloat16()
        self._model = rebuild(student).model.to(self._device, memory_format=torch.channels_last)
        self.averaged = self._model  # until `warm_up` or `resume`
        self._criterion = DetectionCriterion(self._model)
        book = PictureBook(snapshot, student.manifest.input)
        self._batches = Batches(book, student.manifest.label_set, seed)
        usable = [i for i in snapshot.of(Split.TRAIN) if uses_teacher_labels or i.teacher is None]
        by_origin = {origin: tuple(i for i in usable if i.origin is origin) for origin in Origin}
        self._deck = Deck(by_origin, settings.shares, seed)
        self._val = _sample(snapshot.of(Split.VAL), settings.val_images)
        self._horizon = Horizon(
            batches=round(epochs * len(snapshot.of(Split.TRAIN)) / settings.batch)
            if epochs is not None
            else _ENDLESS,
            budget_s=minutes * 60 if minutes is not None else None,
        )
        self._teaching: Teaching | None = None
        if teacher is not None:
            chosen = (*by_origin[Origin.NEW], *by_origin[Origin.REPLAY])[: settings.most_looks]
            self._teaching = teaching_for(
                teacher, student.manifest, snapshot, book, chosen, settings, looks_dir, device
            )
        self._optimizer = self._new_optimizer()

    @property
    def share(self) -> float:
        """Share of the run that is over, 0 to 1."""
        return self._horizon.progress(self.progress.steps, self.progress.elapsed_s)

    def warm_up(self) -> None:
        """Give the rebuilt student batch statistics of the images that it will learn from; start the average."""
        images = [self._batch(step).images.to(self._device) for step in range(_STATISTICS_BATCHES)]
        restore_statistics(self._model, images)
        self._start_average()

    def resume(self, progress: Progress, parts: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.progress = progress
        self._model.load_state_dict(parts["model"])
        self._start_average()
        self.averaged.load_state_dict(parts["average"])
        self._optimizer.load_state_dict(parts["optimizer"])

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs, beside the progress."""
        return {
            "model": self._model.state_dict(), "average": self.averaged.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }  # fmt: skip

    def step(self) -> dict[str, float]:
        """Learn from the next batch; returns the terms of the loss and the learning rate."""
        import torch

        settings, number = self.settings, self.progress.steps
        rate = settings.rate * rate_factor(self.share, number, settings.warmup_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = self._batch(number).to(self._device)
        self._model.train()
        with self._mixed_precision():
            raw = self._model(batch.images.contiguous(memory_format=torch.channels_last))
        outputs = StudentOutputs.of(raw, self._model.stride)
        loss = self._criterion(outputs, batch)
        terms = {"box": loss.box, "classes": loss.classes, "bins": loss.bins}
        if self._teaching is not None:
            terms |= self._teaching.losses(outputs, batch, number)
        self._optimizer.zero_grad(set_to_none=True)
        sum(terms.values()).backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.largest_gradient)
        self._optimizer.step()
        self._update_average()
        self.progress.steps += 1
        self.progress.images_seen += len(batch.rows)
        return {name: float(term.detach()) for name, term in terms.items()} | {"rate": rate}

    def validate(self) -> dict[str, float]:
        """The detection loss of the average on the validation images; nothing where there are none."""
        import torch

        losses = []
        size = self.settings.batch
        with torch.no_grad():
            for first in range(0, len(self._val), size):
                batch = self._batches.make(0, self._val[first : first + size], PLAIN).to(self._device)
                with self._mixed_precision():
                    _, raw = self.averaged(batch.images)
                outputs = StudentOutputs.of(raw, self._model.stride)
                losses.append(float(self._criterion(outputs, batch).total) * len(batch.rows))
        return {"val": sum(losses) / len(self._val)} if losses else {}

    def _batch(self, step: int) -> Batch:
        size = self.settings.batch
        how = PLAIN if self.share > 1 - self.settings.calm_share else self.settings.augmentation
        return self._batches.make(step, self._deck.draw(step * size, size), how)

    @contextmanager
    def _mixed_precision(self) -> Iterator[None]:
        import torch

        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._is_mixed):
            yield

    def _new_optimizer(self) -> Any:
        """AdamW; norms and biases do not decay."""
        import torch

        decayed = [p for p in self._model.parameters() if p.ndim > 1]
        others = [p for p in self._model.parameters() if p.ndim <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.settings.rate, betas=(0.9, 0.999), fused=True)

    def _start_average(self) -> None:
        self.averaged = deepcopy(self._model).eval()
        for parameter in self.averaged.parameters():
            parameter.requires_grad_(False)

    def _update_average(self) -> None:
        """Move the average towards the student; early steps count for more, so that it is not stuck at the start."""
        import torch

        step = 1.0 / min(self.progress.steps + 2.0, float(self.settings.average_over_steps))
        pairs = zip(self.averaged.state_dict().values(), self._model.state_dict().values(), strict=True)
        with torch.no_grad():
            floats = [(a, b) for a, b in pairs if a.dtype.is_floating_point]
            torch._foreach_lerp_([a for a, _ in floats], [b for _, b in floats], step)


def torch_device(wanted: str) -> str:
    """`auto` is the first GPU, or the CPU where there is none."""
    if wanted != "auto":
        return wanted
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in 16 bits itself; where it does not, they cost 2.8 times the time of 32 bits."""
    import torch

    known = torch.cpu.get_capabilities()
    return bool(known.get("amx_bf16") or known.get("avx512_bf16"))


def _sample(images: tuple[StoredImage, ...], most: int) -> list[StoredImage]:
    """At most `most` images, the same ones for the same data."""
    return sorted(images, key=lambda image: hashlib.sha256(image.id.encode()).digest())[:most]
