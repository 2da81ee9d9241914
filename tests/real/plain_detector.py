"""Public detectors run without any of our code: own letterbox, own decode, torchvision's suppression, pycocotools."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torchvision.ops import batched_nms

MIN_SCORE = 0.001
IOU = 0.65


def plain_ap(model: Path, images: list[Path], labels: Path) -> float:
    """AP50-95 of an ONNX detector on YOLO-labelled images."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    side = session.get_inputs()[0].shape[2]
    truth, found = [], []
    for number, path in enumerate(images):
        picture = cv2.imread(str(path))
        height, width = picture.shape[:2]
        truth += _truth(labels / f"{path.stem}.txt", number, width, height)
        found += _found(session, picture, side, number)
    return _coco_ap(truth, found, len(images))


def _found(session: Any, picture: np.ndarray, side: int, image: int) -> list[dict[str, Any]]:
    height, width = picture.shape[:2]
    ratio = min(side / height, side / width)
    new_w, new_h = round(width * ratio), round(height * ratio)
    is_yolox = session.get_outputs()[0].shape[-1] == 85
    left, top = (0, 0) if is_yolox else ((side - new_w) // 2, (side - new_h) // 2)
    canvas = np.full((side, side, 3), 114, np.uint8)
    canvas[top : top + new_h, left : left + new_w] = cv2.resize(picture, (new_w, new_h))
    tensor = canvas.astype(np.float32) if is_yolox else canvas[..., ::-1].astype(np.float32) / 255
    output = session.run(None, {session.get_inputs()[0].name: tensor.transpose(2, 0, 1)[None]})[0][0]
    if is_yolox:
        boxes, scores = _yolox(output, side)
    elif output.shape[0] == 84:
        boxes, scores = _xyxy(output[:4].T), output[4:].T
    else:
        boxes, scores = output[:, :4], _one_hot(output[:, 4], output[:, 5].astype(int))
    rows, channels = np.nonzero(scores > MIN_SCORE)
    boxes, scores = boxes[rows], scores[rows, channels]
    if output.shape[-1] != 6:
        given = (boxes.astype(np.float32), scores.astype(np.float32), channels)
        keep = batched_nms(*(torch.tensor(array) for array in given), IOU).numpy()[:300]
        boxes, scores, channels = boxes[keep], scores[keep], channels[keep]
    boxes = _back(boxes, left, top, new_w / width, new_h / height)
    boxes = np.clip(boxes, 0, [width, height, width, height])
    return [
        {
            "image_id": image,
            "category_id": int(channel),
            "bbox": [float(b[0]), float(b[1]), float(b[2] - b[0]), float(b[3] - b[1])],
            "score": float(score),
        }
        for b, score, channel in zip(boxes, scores, channels, strict=True)
    ]


def _back(boxes: np.ndarray, left: int, top: int, gain_x: float, gain_y: float) -> np.ndarray:
    return (boxes - np.array([left, top, left, top])) / np.array([gain_x, gain_y, gain_x, gain_y])


def _yolox(output: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    cells, strides = [], []
    for stride in (8, 16, 32):
        count = side // stride
        for row in range(count):
            cells += [(column, row) for column in range(count)]
        strides += [stride] * count * count
    step = np.array(strides)[:, None]
    centre = (output[:, :2] + np.array(cells)) * step
    size = np.exp(output[:, 2:4]) * step
    return _xyxy(np.concatenate([centre, size], axis=1)), output[:, 4:5] * output[:, 5:]


def _xyxy(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def _one_hot(scores: np.ndarray, channels: np.ndarray) -> np.ndarray:
    table = np.zeros((len(scores), 80), np.float32)
    table[np.arange(len(scores)), channels] = scores
    return table


def _truth(path: Path, image: int, width: int, height: int) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines():
        channel, x, y, w, h = (float(word) for word in line.split())
        box = [(x - w / 2) * width, (y - h / 2) * height, w * width, h * height]
        rows.append(
            {
                "image_id": image,
                "category_id": int(channel),
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": 0,
            }
        )
    return rows


def _coco_ap(truth: list[dict[str, Any]], found: list[dict[str, Any]], images: int) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": number} for number in range(images)],
            "categories": [{"id": channel} for channel in range(80)],
            "annotations": [row | {"id": number} for number, row in enumerate(truth, start=1)],
        }
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(found), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])
