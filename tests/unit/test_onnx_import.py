"""Importing ONNX detectors: the layout is read off the shapes, and what does not fit is said in a sentence."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from fovea.core.errors import Incompatible, Malformed
from fovea.core.labels import COCO_NAMES, LabelSet
from fovea.core.letterbox import Placement
from fovea.core.yolo import Layout
from fovea.runtime.bundle import Bundle
from fovea.runtime.dry_run import DryRunReport, TensorReport, try_model
from fovea.runtime.images import decode_image
from fovea.runtime.import_onnx import Facts, InputOptions, import_model
from fovea.runtime.manifest import BatchMode, ColorOrder, InputDtype, Precision, TensorLayout
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.output_guess import check_label_count, guess_input, guess_output
from tests.builders import CREATED_AT, TINY_LABELS, scene, tiny_bundle, tiny_onnx

FACTS = Facts("found", "1", CREATED_AT, "AGPL-3.0-or-later", answer_min_score=0.1)
LABELS = LabelSet.from_names(TINY_LABELS)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    return path


def imported(path: Path, labels: LabelSet | None = LABELS, options: InputOptions = InputOptions()) -> Bundle:
    """Without the child process, which `test_onnx_dry_run.py` is about and which costs a second."""
    return import_model(path, labels, FACTS, options, report=try_model(path))


def with_names(data: bytes, names: str) -> bytes:
    model = onnx.load_from_string(data)
    entry = model.metadata_props.add()
    entry.key, entry.value = "names", names
    changed: bytes = model.SerializeToString()
    return changed


@pytest.mark.parametrize("layout", list(Layout))
def test_each_layout_is_recognised_and_answers_like_a_bundle_made_by_hand(
    layout: Layout, tmp_path: Path
) -> None:
    bundle = imported(written(tmp_path, tiny_onnx(layout)), LABELS)
    assert bundle.manifest.output.layout is layout
    assert bundle.manifest.input.batch is BatchMode.DYNAMIC
    frame = scene(40, 90)
    seen = OnnxDetector.open(bundle, device="cpu").detect([frame])[0].detections
    expected = OnnxDetector.open(tiny_bundle(layout), device="cpu").detect([frame])[0].detections
    assert len(seen) > 0
    np.testing.assert_array_equal(seen.boxes_xyxy, expected.boxes_xyxy)
    np.testing.assert_array_equal(seen.class_ids, expected.class_ids)


@pytest.mark.parametrize("hw", [(64, 64), (96, 64), (64, 160)])
def test_another_input_size_is_read_off_the_graph(hw: tuple[int, int], tmp_path: Path) -> None:
    bundle = imported(written(tmp_path, tiny_onnx(input_hw=hw)), LABELS)
    assert (bundle.manifest.input.height, bundle.manifest.input.width) == hw


def test_nhwc_uint8_with_a_fixed_batch_is_recognised(tmp_path: Path) -> None:
    model = tiny_onnx(tensor_layout=TensorLayout.NHWC, dtype=InputDtype.UINT8, batch=BatchMode.FIXED)
    spec = imported(written(tmp_path, model), LABELS).manifest.input
    assert (spec.layout, spec.dtype, spec.batch, spec.scale) == (
        TensorLayout.NHWC,
        InputDtype.UINT8,
        BatchMode.FIXED,
        1.0,
    )


def test_what_the_caller_knows_better_is_taken(tmp_path: Path) -> None:
    options = InputOptions(
        color=ColorOrder.BGR, scale=1.0, mean=(103.5, 116.3, 123.7), std=(57.4, 57.1, 58.4),
        placement=Placement.STRETCH, pad_value=0,
    )  # fmt: skip
    spec = imported(written(tmp_path, tiny_onnx()), LABELS, options).manifest.input
    assert (spec.color, spec.scale, spec.mean, spec.placement, spec.pad_value) == (
        ColorOrder.BGR,
        1.0,
        (103.5, 116.3, 123.7),
        Placement.STRETCH,
        0,
    )


def test_names_inside_the_file_are_taken_when_none_are_given(tmp_path: Path) -> None:
    path = written(tmp_path, with_names(tiny_onnx(), "{0: 'person', 1: 'car', 2: 'forklift'}"))
    assert imported(path, None).manifest.labels == ("person", "car", "forklift")


@pytest.mark.parametrize(
    "names", ["", "{0: 'person'", "{1: 'person'}", "[1, 2]", "__import__('os')", "{0: 5}"]
)
def test_unreadable_names_inside_the_file_are_refused(names: str, tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="labels"):
        imported(written(tmp_path, with_names(tiny_onnx(), names)), None)


def test_a_file_without_names_asks_for_a_label_list(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="give a label list"):
        imported(written(tmp_path, tiny_onnx()), None)


@pytest.mark.parametrize("layout", [Layout.CUT, Layout.ONE_TO_MANY, Layout.YOLOX])
@pytest.mark.parametrize("names", [TINY_LABELS[:2], (*TINY_LABELS, "bus")])
def test_a_label_list_of_another_length_is_refused_with_both_numbers(
    layout: Layout, names: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(Malformed, match=f"3 class channels, the label list has {len(names)} names"):
        imported(written(tmp_path, tiny_onnx(layout)), LabelSet.from_names(names))


def test_the_two_coco_lists_are_told_apart() -> None:
    check_label_count(80, len(COCO_NAMES))
    with pytest.raises(Malformed, match="80 names in a row and as a list of 90 or 91"):
        check_label_count(80, 91)
    with pytest.raises(Malformed, match="80 names in a row"):
        check_label_count(91, 80)


def test_a_short_list_for_an_end_to_end_model_is_found_by_running_it(tmp_path: Path) -> None:
    path = written(tmp_path, tiny_onnx(Layout.END_TO_END, classes=9))
    with pytest.raises(Malformed, match="does not fit its labels"):
        imported(path, LABELS)


def test_a_list_that_differs_from_the_names_in_an_end_to_end_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, with_names(tiny_onnx(Layout.END_TO_END), "{0: 'a', 1: 'b', 2: 'c', 3: 'd'}"))
    with pytest.raises(Malformed, match="4 class channels, the label list has 3"):
        imported(path, LABELS)


def test_quantized_operators_make_it_int8(tmp_path: Path) -> None:
    plain = imported(written(tmp_path, tiny_onnx()), LABELS)
    assert plain.manifest.precision is Precision.FP32
    model = onnx.load_from_string(tiny_onnx())
    model.doc_string = "QuantizeLinear"
    quantized = imported(written(tmp_path, model.SerializeToString()), LABELS)
    assert quantized.manifest.precision is Precision.INT8


def test_the_imported_bundle_opens_from_disk_as_the_same_model(tmp_path: Path) -> None:
    bundle = imported(written(tmp_path, tiny_onnx()), LABELS)
    assert Bundle.open(bundle.write(tmp_path)).ref == bundle.ref


def report(
    *outputs: tuple[str, tuple[int, ...]], input_shape: tuple[int, ...] = (1, 3, 640, 640)
) -> DryRunReport:
    def tensor(name: str, shape: tuple[int, ...], dtype: str = "float32") -> TensorReport:
        return TensorReport(name=name, dtype=dtype, declared=shape, shape=shape)

    return DryRunReport(
        onnxruntime="1.32.0",
        device="cpu",
        inputs=(tensor("images", input_shape),),
        outputs=tuple(tensor(name, shape) for name, shape in outputs),
        load_ms=1.0,
        first_run_ms=1.0,
        run_ms=1.0,
        is_deterministic=True,
        is_finite=True,
        is_batch_independent=None,
        metadata={},
    )


@pytest.mark.parametrize(
    ("outputs", "layout", "classes", "strides"),
    [
        ([("output0", (1, 84, 8400))], Layout.ONE_TO_MANY, 80, (8, 16, 32)),
        ([("output0", (1, 5, 8400))], Layout.ONE_TO_MANY, 1, (8, 16, 32)),
        ([("output0", (1, 6, 34000))], Layout.ONE_TO_MANY, 2, (4, 8, 16, 32)),
        ([("output0", (1, 300, 6))], Layout.END_TO_END, None, (8, 16, 32)),
        ([("output", (1, 8400, 85))], Layout.YOLOX, 80, (8, 16, 32)),
        ([("output", (1, 8400, 6))], Layout.YOLOX, 1, (8, 16, 32)),
        ([("boxes", (1, 64, 8400)), ("logits", (1, 80, 8400))], Layout.CUT, 80, (8, 16, 32)),
        ([("logits", (1, 80, 8400)), ("boxes", (1, 64, 8400))], Layout.CUT, 80, (8, 16, 32)),
        ([("a", (1, 4, 2000)), ("b", (1, 6, 2000))], Layout.CUT, 6, (16, 32)),
    ],
)
def test_layouts_are_told_apart_by_their_shapes(
    outputs: list[tuple[str, tuple[int, ...]]], layout: Layout, classes: int | None, strides: tuple[int, ...]
) -> None:
    guess = guess_output(report(*outputs), 640, 640)
    assert (guess.layout, guess.class_count, guess.strides) == (layout, classes, strides)
    if layout is Layout.CUT and {name for name, _ in outputs} == {"boxes", "logits"}:
        assert guess.tensors == ("boxes", "logits")


@pytest.mark.parametrize(
    "outputs",
    [
        [("cls_score0", (1600, 80)), ("bbox_pred0", (400, 80)), ("cls_score1", (100, 80))],
        [("output", (1, 25200, 85))],
        [("output", (1, 255, 80, 80)), ("b", (1, 255, 40, 40)), ("c", (1, 255, 20, 20))],
        [("prob", (1, 1000))],
        [("boxes", (1, 63, 8400)), ("logits", (1, 80, 8400))],
        [("boxes", (1, 64, 8400)), ("logits", (1, 80, 2100))],
    ],
    ids=["nanodet", "yolov5", "yolov3", "classifier", "uneven bins", "uneven anchors"],
)  # fmt: skip
def test_an_unknown_layout_is_refused_and_the_known_ones_are_named(
    outputs: list[tuple[str, tuple[int, ...]]],
) -> None:
    with pytest.raises(
        Incompatible, match=r"Known are cut: .*one_to_many: .*end_to_end: .*yolox: "
    ) as caught:
        guess_output(report(*outputs), 640, 640)
    assert outputs[0][0] in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 1, 640, 640), (1, 640, 640, 4), (3, 640, 640), (2, 3, 640, 640)])
def test_an_input_that_is_not_one_colour_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Incompatible, match="expected"):
        guess_input(report(("output0", (1, 84, 8400)), input_shape=shape))


def test_a_batch_whose_frames_influence_each_other_is_run_one_by_one() -> None:
    free = report(("output0", (1, 84, 8400))).model_copy(
        update={
            "inputs": (
                TensorReport(
                    name="images", dtype="float32", declared=(None, 3, 640, 640), shape=(1, 3, 640, 640)
                ),
            ),
            "is_batch_independent": False,
        }
    )
    assert guess_input(free).batch is BatchMode.FIXED
    assert guess_input(free.model_copy(update={"is_batch_independent": True})).batch is BatchMode.DYNAMIC


def test_facts_with_an_impossible_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="name"):
        import_model(written(tmp_path, tiny_onnx()), LABELS, replace(FACTS, name="../x"))


def test_a_file_that_was_not_tried_yet_goes_through_a_child_process_first(tmp_path: Path) -> None:
    path = written(tmp_path, tiny_onnx())
    assert import_model(path, LABELS, FACTS).ref == imported(path).ref
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(Malformed, match="HTML"):
        import_model(path, LABELS, FACTS)


@pytest.mark.skipif(
    "FOVEA_REALDATA" not in os.environ, reason="FOVEA_REALDATA names no folder with real files"
)
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("yolov8n_int8", Layout.ONE_TO_MANY),
        ("yolo26n_int8", Layout.END_TO_END),
        ("yolov10n_int8_640_patched", Layout.END_TO_END),
        ("yolox_nano", Layout.YOLOX),
        ("nanodet", None),
    ],
)
def test_published_models_are_recognised_and_see_people(name: str, layout: Layout | None) -> None:
    folder = Path(os.environ["FOVEA_REALDATA"])
    path = folder / "models" / f"{name}.onnx"
    if layout is None:
        with pytest.raises(Incompatible, match="fit no known layout"):
            import_model(path, LabelSet.coco(), FACTS)
        return
    bundle = import_model(path, LabelSet.coco(), FACTS)
    assert bundle.manifest.output.layout is layout
    frame = decode_image((folder / "seq" / "PETS09-S2L1" / "img1" / "000001.jpg").read_bytes())
    seen = OnnxDetector.open(bundle, device="cpu").detect([frame])[0].detections
    assert (seen.scores[seen.class_ids == 0] > 0.4).sum() >= 3
