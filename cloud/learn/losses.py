"""What a student is corrected by: labelled boxes that count by their weight, and what its teacher thinks of it.

Detection: task-aligned assignment (Feng et al. 2021), binary cross-entropy, CIoU (Zheng et al. 2020) and
distribution focal loss (Li et al. 2020), built of Ultralytics' parts. Where nothing is known nothing is background.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloud.learn.batches import Batch
from cloud.learn.rebuild import LOSS_GAINS
from fovea.serving.vendor_env import load_ultralytics


@dataclass(frozen=True, slots=True, eq=False)
class StudentOutputs:
    """Raw outputs of a student in float32: boxes [B, A, 4R] bins, logits [B, A, C], maps [B, F, h, w] per stride,
    and the anchors: centres [A, 2] in strides, strides [A, 1] px."""

    boxes: Any
    logits: Any
    maps: list[Any]
    centres: Any
    strides: Any

    @classmethod
    def of(cls, raw: Any, strides: Any) -> StudentOutputs:
        """From the dictionary that a Detect head gives."""
        load_ultralytics()
        from ultralytics.utils.tal import make_anchors

        centres, per_anchor = make_anchors(raw["feats"], strides, 0.5)
        boxes, logits = (raw[name].float().permute(0, 2, 1).contiguous() for name in ("boxes", "scores"))
        return cls(boxes, logits, raw["feats"], centres.float(), per_anchor.float())

    def decoded(self) -> Any:
        """Boxes f32[B, A, 4] xyxy in strides."""
        import torch
        from ultralytics.utils.tal import dist2bbox

        count, anchors, channels = self.boxes.shape
        bins = torch.arange(channels // 4, dtype=torch.float32, device=self.boxes.device)
        distances = self.boxes.view(count, anchors, 4, channels // 4).softmax(3) @ bins
        return dist2bbox(distances, self.centres, xywh=False)


@dataclass(frozen=True, slots=True, eq=False)
class DetectionLoss:
    """The three terms of the detection loss (scalars, gains applied), and which anchors are objects (bool[B, A])."""

    box: Any
    classes: Any
    bins: Any
    is_object: Any

    @property
    def total(self) -> Any:
        return self.box + self.classes + self.bins


class DetectionCriterion:
    """The detection loss of one model; holds no weights."""

    def __init__(self, model: Any) -> None:
        load_ultralytics()
        from ultralytics.utils.loss import BboxLoss
        from ultralytics.utils.tal import TaskAlignedAssigner

        head = model.model[-1]
        self.stride, self.channels = head.stride, head.nc
        self._assigner = TaskAlignedAssigner(
            topk=10, num_classes=head.nc, alpha=0.5, beta=6.0, stride=head.stride.tolist()
        )
        self._box_loss = BboxLoss(head.reg_max)

    def __call__(self, outputs: StudentOutputs, batch: Batch) -> DetectionLoss:
        """The loss of `outputs`: each anchor counts as the box does that it was assigned to; anchors whose centre
        lies in an ignored region are no background."""
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

        predicted = outputs.decoded()
        _, boxes, scores, is_object, which = self._assigner(
            outputs.logits.detach().sigmoid(),
            predicted.detach() * outputs.strides,
            outputs.centres * outputs.strides,
            batch.channels[..., None].float(),
            batch.boxes,
            (batch.weights > 0).float()[..., None],
        )
        weights = torch.ones_like(outputs.logits[..., 0])
        weights[_inside(outputs.centres * outputs.strides, batch.ignored)] = 0.0
        if batch.weights.shape[1]:
            weights = torch.where(is_object, batch.weights.gather(1, which.long()), weights)
        weighted = scores * weights[..., None]
        norm = weighted.sum().clamp(min=1.0)
        entropy = cross_entropy(outputs.logits, scores, reduction="none") * weights[..., None]
        size = outputs.strides.new_tensor(batch.images.shape[2:])
        overlap, bins = self._box_loss(
            outputs.boxes, predicted, outputs.centres, boxes / outputs.strides, weighted, norm, is_object, size,
            outputs.strides,
        )  # fmt: skip
        return DetectionLoss(
            overlap * LOSS_GAINS["box"],
            entropy.sum() / norm * LOSS_GAINS["cls"],
            bins * LOSS_GAINS["dfl"],
            is_object,
        )


def _inside(points: Any, boxes: Any) -> Any:
    """bool[B, A]: which points [A, 2] lie in any of the boxes [B, K, 4] of each image."""
    after = (points[None, :, None, :] >= boxes[:, None, :, :2]).all(-1)
    before = (points[None, :, None, :] < boxes[:, None, :, 2:]).all(-1)
    return (after & before).any(-1)
