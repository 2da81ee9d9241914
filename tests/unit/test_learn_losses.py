"""Boxes count by their weight, unknown places are no background, and a teacher pulls its student towards itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud.learn.batches import Batch, Batches, PictureBook
from cloud.learn.dataset import LabelledImage, Snapshot
from cloud.learn.kd_losses import candidate_loss, raw_output_loss, relation_loss
from cloud.learn.losses import DetectionCriterion, StudentOutputs
from cloud.learn.pictures import PLAIN
from cloud.learn.rebuild import rebuild
from tests.learning_images import STREET, image, zoo

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def student() -> Any:
    return rebuild(zoo("street-student-day-fp32")).model


def batch_of(folder: Path, *images: LabelledImage) -> Batch:
    kept = Snapshot.write(folder, images, STREET, val_share=0.0)
    spec = zoo("street-student-day-fp32").manifest.input
    return Batches(PictureBook(kept, spec), STREET, 0).make(0, kept.images, PLAIN)


def outputs_of(student: Any, batch: Batch) -> StudentOutputs:
    with torch.no_grad():
        return StudentOutputs.of(student(batch.images)[1], student.stride)


def own_loss(student: Any, batch: Batch) -> dict[str, float]:
    """The loss of Ultralytics itself, which knows no weights."""
    from ultralytics.utils.loss import v8DetectionLoss

    height, width = batch.images.shape[2:]
    rows = [
        (b, r) for b in range(len(batch.rows)) for r in range(batch.boxes.shape[1]) if batch.weights[b, r] > 0
    ]
    boxes = torch.stack([batch.boxes[b, r] for b, r in rows])
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    scale = torch.tensor([width, height, width, height])
    targets = {
        "batch_idx": torch.tensor([float(b) for b, _ in rows]),
        "cls": torch.tensor([float(batch.channels[b, r]) for b, r in rows]),
        "bboxes": torch.cat([centres, sides], 1) / scale,
    }
    with torch.no_grad():
        _, items = v8DetectionLoss(student)(student(batch.images)[1], targets)
    return {name: float(value) for name, value in items.items()}


def test_with_weights_of_1_it_is_the_loss_that_the_student_was_first_trained_with(
    student: Any, tmp_path: Path
) -> None:
    images = [replace(image(n, boxes=n), weights=np.ones(n, np.float32)) for n in (1, 3)]
    batch = batch_of(tmp_path, *images)
    loss = DetectionCriterion(student)(outputs_of(student, batch), batch)
    wanted = own_loss(student, batch)
    got = {"box_loss": loss.box, "cls_loss": loss.classes, "dfl_loss": loss.bins}
    assert {k: float(v) for k, v in got.items()} == pytest.approx(wanted, rel=1e-4)


def test_a_box_of_little_weight_pulls_little(student: Any, tmp_path: Path) -> None:
    """Beside a sure box: the terms are means over the weights, so one box alone would hide its weight."""
    one = image(4, boxes=2)
    pulls = []
    for weight in (1.0, 0.1):
        batch = batch_of(tmp_path, replace(one, weights=[1.0, weight]))
        outputs = outputs_of(student, batch)
        logits = outputs.logits.clone().requires_grad_(True)
        loss = DetectionCriterion(student)(replace(outputs, logits=logits), batch)
        [gradient] = torch.autograd.grad(loss.classes, logits)
        centres = outputs.centres * outputs.strides
        box = batch.boxes[0, 1]
        inside = ((centres > box[:2]) & (centres < box[2:])).all(1) & loss.is_object[0]
        pulls.append(float(gradient[0][inside].abs().sum()))
    assert pulls[1] < 0.3 * pulls[0]


def test_a_claim_in_an_ignored_region_costs_nothing_and_elsewhere_it_does(
    student: Any, tmp_path: Path
) -> None:
    nothing = image(5, boxes=0)
    ignoring = replace(nothing, ignore_xyxy=[[0, 0, 80, 90]])
    gradients = []
    for each in (nothing, ignoring):
        batch = batch_of(tmp_path, each)
        outputs = outputs_of(student, batch)
        logits = outputs.logits.clone().requires_grad_(True)
        loss = DetectionCriterion(student)(replace(outputs, logits=logits), batch)
        [gradient] = torch.autograd.grad(loss.total, logits)
        gradients.append(gradient[0].abs().sum(1))
        left = (outputs.centres * outputs.strides)[:, 0] < 160
        rows = (outputs.centres * outputs.strides)[:, 1]
        shown = (rows > 6) & (rows < 186)
    assert float(gradients[0][left & shown].min()) > 0
    assert float(gradients[1][left & shown].max()) == 0
    np.testing.assert_allclose(gradients[1][~left].numpy(), gradients[0][~left].numpy(), rtol=1e-5)


def test_an_object_inside_an_ignored_region_is_still_learned(student: Any, tmp_path: Path) -> None:
    batch = batch_of(tmp_path, replace(image(6, boxes=1), ignore_xyxy=[[0, 0, 160, 90]]))
    loss = DetectionCriterion(student)(outputs_of(student, batch), batch)
    assert bool(loss.is_object.any()) and float(loss.box) > 0 and float(loss.classes) > 0


def test_an_image_without_boxes_and_a_batch_without_any_have_a_loss(student: Any, tmp_path: Path) -> None:
    loss = DetectionCriterion(student)(
        *(lambda b: (outputs_of(student, b), b))(batch_of(tmp_path, image(7, boxes=0)))
    )
    assert float(loss.box) == 0 and float(loss.bins) == 0 and float(loss.classes) > 0


def raw(outputs: StudentOutputs) -> tuple[Any, Any]:
    return outputs.boxes.permute(0, 2, 1), outputs.logits.permute(0, 2, 1)


def test_a_student_that_agrees_with_its_teacher_has_nothing_to_learn_from_raw_outputs(
    student: Any, tmp_path: Path
) -> None:
    outputs = outputs_of(student, batch_of(tmp_path, image(8)))
    assert float(raw_output_loss(outputs, *raw(outputs))) == pytest.approx(0, abs=1e-5)


def test_descending_the_raw_loss_brings_the_student_to_the_teacher(student: Any, tmp_path: Path) -> None:
    outputs = outputs_of(student, batch_of(tmp_path, image(8)))
    teacher = rebuild(zoo("street-student-fp32")).model
    wanted = outputs_of(teacher, batch_of(tmp_path, image(8)))
    boxes, logits = (v.clone().requires_grad_(True) for v in (outputs.boxes, outputs.logits))
    optimizer = torch.optim.Adam([boxes, logits], lr=0.1)
    losses = []
    for _ in range(150):
        loss = raw_output_loss(replace(outputs, boxes=boxes, logits=logits), *raw(wanted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
    assert float((logits.sigmoid() - wanted.logits.sigmoid()).abs().max()) < 0.1


def candidates(outputs: StudentOutputs, anchor: int, score: float) -> tuple[Any, Any]:
    """One candidate exactly where the student's box of an anchor is, of class 2."""
    box = (outputs.decoded() * outputs.strides)[:, anchor : anchor + 1]
    scores = torch.zeros(1, 1, len(STREET))
    scores[..., 2] = score
    return box, scores


@pytest.mark.parametrize("score", [0.2, 0.9])
def test_where_boxes_agree_the_student_becomes_as_sure_as_the_candidate(
    student: Any, tmp_path: Path, score: float
) -> None:
    outputs = outputs_of(student, batch_of(tmp_path, image(9)))
    anchor = int(((outputs.decoded()[0, :, 2:] - outputs.decoded()[0, :, :2]).prod(1)).argmax())
    logits = outputs.logits.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([logits], lr=0.2)
    for _ in range(80):
        loss = candidate_loss(
            replace(outputs, logits=logits), *candidates(outputs, anchor, score), torch.tensor([True])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(logits[0, anchor, 2].sigmoid()) == pytest.approx(score, abs=0.1)


def test_an_image_that_the_teacher_did_not_look_at_teaches_nothing(student: Any, tmp_path: Path) -> None:
    outputs = outputs_of(student, batch_of(tmp_path, image(9)))
    nothing = torch.tensor([False])
    assert float(candidate_loss(outputs, *candidates(outputs, 5, 0.9), nothing)) == 0


def test_a_claim_that_the_teacher_does_not_share_is_pushed_down(student: Any, tmp_path: Path) -> None:
    outputs = outputs_of(student, batch_of(tmp_path, image(9, boxes=0)))
    logits = torch.full_like(outputs.logits, -9.0)
    logits[0, 3, 1] = 2.0
    logits.requires_grad_(True)
    empty = (torch.zeros(1, 1, 4), torch.zeros(1, 1, len(STREET)))
    loss = candidate_loss(replace(outputs, logits=logits), *empty, torch.tensor([True]))
    [gradient] = torch.autograd.grad(loss, logits)
    assert float(gradient[0, 3, 1]) > 0
    assert float(gradient[0, 4:].abs().sum()) == 0  # what neither side claims is left alone


def maps(seed: int, channels: int, hw: tuple[int, int] = (6, 10)) -> Any:
    return torch.randn(2, channels, *hw, generator=torch.Generator().manual_seed(seed))


def points(count: int = 40) -> Any:
    return torch.rand(2, count, 2, generator=torch.Generator().manual_seed(9)) * 1.8 - 0.9


def test_relations_do_not_depend_on_the_scale_the_order_or_the_number_of_channels() -> None:
    student, at = maps(1, 16), points()
    teachers = [student * 37.0, student.flip(1), torch.cat([student, student], 1), student + 5.0]
    for teacher in teachers:
        assert float(relation_loss(student, teacher, at, at)) == pytest.approx(0, abs=1e-4)
    assert float(relation_loss(student, maps(2, 64, (12, 20)), at, at)) > 0.01


def test_relations_follow_a_mirrored_picture() -> None:
    student, at = maps(1, 16), points()
    mirrored = at * torch.tensor([-1.0, 1.0])
    assert float(relation_loss(student.flip(3), student, mirrored, at)) == pytest.approx(0, abs=1e-5)
    assert float(relation_loss(student.flip(3), student, at, at)) > 0.01
