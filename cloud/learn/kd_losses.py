"""How far a student is from its teacher: raw outputs where the heads match, candidates and features elsewhere."""

from __future__ import annotations

from typing import Any

from cloud.learn.losses import StudentOutputs

SEEN_FROM = 0.05
"""A candidate, or a student's own claim, that is weaker is not worth a correction."""
SAME_THING_IOU = 0.5


def raw_output_loss(outputs: StudentOutputs, teacher_boxes: Any, teacher_logits: Any) -> Any:
    """Anchor by anchor, for a teacher with the same head on the same input: the divergence of its class probabilities
    and of its distance bins from the student's, weighed by how sure the teacher is of the anchor.

    teacher_boxes f32[B, 4R, A], teacher_logits f32[B, C, A] as in the cut graph. Returns a scalar, 0 where both
    agree (Hinton et al. 2015; Zheng et al. 2022 for the bins).
    """
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
    from torch.nn.functional import kl_div

    wanted = teacher_logits.permute(0, 2, 1).sigmoid()
    floor = cross_entropy(teacher_logits.permute(0, 2, 1), wanted, reduction="none")
    classes = (cross_entropy(outputs.logits, wanted, reduction="none") - floor).sum(-1)
    sure = wanted.amax(-1)
    shape = (*outputs.boxes.shape[:2], 4, -1)
    bins = kl_div(
        outputs.boxes.view(shape).log_softmax(-1), teacher_boxes.permute(0, 2, 1).reshape(shape).log_softmax(-1),
        reduction="none", log_target=True,
    ).sum(-1).mean(-1)  # fmt: skip
    return (classes.sum() + (bins * sure).sum()) / sure.sum().clamp(min=1.0)


def candidate_loss(outputs: StudentOutputs, boxes: Any, scores: Any, is_taught: Any) -> Any:
    """For any teacher at any scale: an anchor whose box overlaps a candidate should be as sure as the candidate is.

    boxes f32[B, J, 4] px of the input, scores f32[B, J, C] in the student's channels, rows of zeros fill up;
    is_taught bool[B] is False where the teacher has not looked. The wanted score of an anchor and class is the best
    product of overlap (0.5 and more) and score; anchors of which neither side claims anything are left out.
    """
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    with torch.no_grad():
        overlap = _overlaps(outputs.decoded() * outputs.strides, boxes)
        overlap = overlap * (overlap >= SAME_THING_IOU)
        wanted = torch.stack(
            [(overlap * scores[:, None, :, k]).amax(-1) for k in range(scores.shape[-1])], dim=-1
        )
        claimed = torch.maximum(wanted, outputs.logits.sigmoid()).amax(-1)
        weights = (claimed * (claimed >= SEEN_FROM) * is_taught[:, None])[..., None]
    entropy = cross_entropy(outputs.logits, wanted, reduction="none") * weights
    return entropy.sum() / (wanted.amax(-1, keepdim=True) * weights).sum().clamp(min=1.0)


def relation_loss(student_map: Any, teacher_map: Any, student_points: Any, teacher_points: Any) -> Any:
    """Do two places of a picture that look alike to the teacher look alike to the student? Free of the scale, the
    number and the meaning of channels, so any teacher will do (Tung & Mori 2019, on places instead of images).

    Maps f32[B, F, h, w] of any sizes; points f32[B, P, 2] in -1..1 of each map, the same places in both.
    Returns the mean squared difference of the cosine similarities of all pairs of places.
    """
    return (
        (_similarities(student_map, student_points) - _similarities(teacher_map, teacher_points))
        .square()
        .mean()
    )


def _similarities(feature_map: Any, points: Any) -> Any:
    """f32[B, P, P]: cosines between the features at the points, after the mean over the points is taken off."""
    from torch.nn.functional import grid_sample, normalize

    at = grid_sample(feature_map.float(), points[:, :, None, :], padding_mode="border", align_corners=False)[
        ..., 0
    ]
    at = normalize(at - at.mean(-1, keepdim=True), dim=1)
    return at.transpose(1, 2) @ at


def _overlaps(a_xyxy: Any, b_xyxy: Any) -> Any:
    """IoU [B, A, J] of boxes [B, A, 4] and [B, J, 4]."""
    import torch

    a, b = a_xyxy[:, :, None], b_xyxy[:, None]
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    both = sides.prod(-1)
    union = (a[..., 2:] - a[..., :2]).clamp(min=0).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - both
    return both / union.clamp(min=1e-6)
