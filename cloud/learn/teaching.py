"""What a teacher adds to a batch: by its raw outputs where the heads match, by candidates and features elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cloud.learn.batches import Batch, PictureBook
from cloud.learn.dataset import Snapshot, StoredImage
from cloud.learn.kd_losses import candidate_loss, raw_output_loss, relation_loss
from cloud.learn.losses import StudentOutputs
from cloud.learn.settings import DistilSettings
from cloud.learn.teacher_looks import FEATURE_STRIDE_PX, Look, TeacherLooks, has_same_head
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.manifest import BundleManifest
from fovea.runtime.ort import OrtSession, open_session


class Teaching(Protocol):
    """Gives the distillation losses of a batch, by name."""

    def losses(self, outputs: StudentOutputs, batch: Batch, step: int) -> dict[str, Any]: ...


def teaching_for(
    teacher: Bundle,
    student: BundleManifest,
    snapshot: Snapshot,
    book: PictureBook,
    chosen: Sequence[StoredImage],
    settings: DistilSettings,
    looks_dir: Path,
    device: str,
) -> Teaching:
    """The closest teaching that the two allow; `chosen` are the images that a teacher of another kind looks at."""
    if has_same_head(teacher.manifest, student):
        return RawTeaching(open_session(teacher.model, device), teacher.manifest, settings.raw_gain)
    looks = TeacherLooks(teacher, student.label_set, looks_dir, device)
    return LookTeaching(looks, snapshot, book, frozenset(image.sha256 for image in chosen), settings)


@dataclass(frozen=True, slots=True, eq=False)
class RawTeaching:
    """Runs the teacher on the very batch that the student sees."""

    session: OrtSession
    manifest: BundleManifest
    gain: float

    def losses(self, outputs: StudentOutputs, batch: Batch, step: int) -> dict[str, Any]:
        """`raw`: the divergence of classes and bins, anchor by anchor."""
        import torch

        images = {self.manifest.input.tensor: batch.images.cpu().numpy()}
        answers = self.session.run(images, self.manifest.output.tensors)
        boxes, logits = (torch.from_numpy(np.asarray(a)).to(batch.images.device) for a in answers)
        return {"raw": raw_output_loss(outputs, boxes, logits) * self.gain}


@dataclass(frozen=True, slots=True, eq=False)
class LookTeaching:
    """Lets the teacher look once at each image that was chosen, as large as it likes, and teaches from the look."""

    looks: TeacherLooks
    snapshot: Snapshot
    book: PictureBook
    chosen: frozenset[str]
    settings: DistilSettings

    def losses(self, outputs: StudentOutputs, batch: Batch, step: int) -> dict[str, Any]:
        """`candidates` and, where the teacher has features to show, `relations`; 0 for a batch without a look."""
        found = [self._look(image) for image in batch.rows]
        rows = [row for row, look in enumerate(found) if look is not None]
        nothing = outputs.logits.sum() * 0.0
        terms = {"candidates": nothing, "relations": nothing}
        if not rows:
            return terms
        terms["candidates"] = self._candidates(outputs, batch, found) * self.settings.candidate_gain
        shown = [row for row in rows if (look := found[row]) is not None and look.features.size]
        if shown:
            related = self._relations(outputs, batch, found, shown, step) * self.settings.relation_gain
            terms["relations"] = related * len(shown) / len(batch.rows)
        return terms

    def _look(self, image: StoredImage) -> Look | None:
        if image.sha256 not in self.chosen:
            return None
        kept = self.looks.find(image.sha256)
        return kept or self.looks.look(image.sha256, decode_image(self.snapshot.jpeg(image)))

    def _candidates(self, outputs: StudentOutputs, batch: Batch, found: Sequence[Look | None]) -> Any:
        import torch

        most = max(len(look.boxes_xyxy) for look in found if look is not None)
        boxes = np.zeros((len(found), most, 4), np.float32)
        scores = np.zeros((len(found), most, outputs.logits.shape[-1]), np.float32)
        for row, look in enumerate(found):
            if look is not None:
                boxes[row, : len(look.boxes_xyxy)] = batch.placings[row].boxes(look.boxes_xyxy)
                scores[row, : len(look.scores)] = look.scores
        is_taught = torch.tensor([look is not None for look in found])
        on_device = (torch.from_numpy(boxes), torch.from_numpy(scores), is_taught)
        return candidate_loss(outputs, *(part.to(outputs.logits.device) for part in on_device))

    def _relations(
        self,
        outputs: StudentOutputs,
        batch: Batch,
        found: Sequence[Look | None],
        rows: Sequence[int],
        step: int,
    ) -> Any:
        import torch

        strides = [round(batch.images.shape[-1] / m.shape[-1]) for m in outputs.maps]
        level = min(range(len(strides)), key=lambda k: abs(strides[k] - FEATURE_STRIDE_PX))
        rng = np.random.default_rng((self.settings.places, step))
        losses = []
        for row in rows:
            look = found[row]
            assert look is not None
            frame = self.book.find(batch.rows[row])[1].frame
            at = batch.placings[row].places(self.settings.places, frame, self.book.spec, rng)
            in_input, in_frame = (torch.from_numpy(points)[None].to(batch.images.device) for points in at)
            teacher_map = torch.from_numpy(look.features.astype(np.float32))[None].to(batch.images.device)
            losses.append(relation_loss(outputs.maps[level][row : row + 1], teacher_map, in_input, in_frame))
        return torch.stack(losses).mean()
