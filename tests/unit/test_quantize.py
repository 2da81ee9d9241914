"""INT8 bundles: the real recipe on a small SiLU network, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from calibration.predict import ap_score, labelled_by
from calibration.quant_graph import (
    check_qlinear_convs,
    convolutions,
    expected_qlinear_convs,
    head_nodes,
    optimised_op_counts,
    prepared,
    stem_nodes,
)
from calibration.quant_recipe import Calibration, Calibrator, QuantRecipe, quantize_graph
from calibration.quant_search import SearchSettings, layer_damage, search
from calibration.quantize import Quantized, input_tensors, quantize_bundle
from fovea.core.errors import Incompatible, Malformed
from fovea.core.scores import PlattCurve, ScoreCalibration
from fovea.core.yolo import Layout
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import Precision
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.preprocess import Preprocessor
from tests.builders import scene, tiny_bundle
from tests.unit.small_nets import BODY_CONVS, HEAD_CONVS, relu_onnx, silu_onnx

FRAMES = [scene(64, 64, seed) for seed in range(12)]
QUICK = SearchSettings(calibrators=(Calibrator.MINMAX,), most_trials=4, sensitivity_images=2)


@pytest.fixture(scope="module")
def fp32() -> Bundle:
    bundle = tiny_bundle(model=silu_onnx(), name="small-fp32", version="1.2", answer_min_score=0.05)
    return bundle.with_calibration(ScoreCalibration(PlattCurve(1.0, 0.5)))


@pytest.fixture(scope="module")
def quantized(fp32: Bundle) -> Quantized:
    detector = OnnxDetector.open(fp32, "cpu")
    score = ap_score(labelled_by(detector, FRAMES[8:]), detector.labels.ids)
    return quantize_bundle(fp32, FRAMES[:8], score, QUICK)


@pytest.fixture
def calibration(fp32: Bundle, tmp_path: Path) -> Calibration:
    graph = prepared(fp32.model)
    return Calibration(graph, head_nodes(graph), "images", input_tensors(fp32, FRAMES[:8]), tmp_path)


def test_the_head_and_the_stem_are_found(calibration: Calibration) -> None:
    graph = calibration.graph
    assert len(convolutions(graph)) == BODY_CONVS + HEAD_CONVS
    heads = calibration.head & set(convolutions(graph))
    assert heads == {f"{name}{level}" for name in ("boxes", "logits") for level in range(HEAD_CONVS // 2)}
    assert "boxes_concat" in calibration.head
    stem = stem_nodes(graph)
    assert stem & set(convolutions(graph)) == {"body1"}
    assert len(stem) == 3


def test_every_convolution_but_the_head_runs_in_eight_bits(calibration: Calibration) -> None:
    model = quantize_graph(calibration, QuantRecipe())
    counts = optimised_op_counts(model)
    assert counts["QLinearConv"] == BODY_CONVS
    assert counts["QLinearSigmoid"] == counts["QLinearMul"] == BODY_CONVS
    assert counts["Conv"] + counts["FusedConv"] == HEAD_CONVS
    assert check_qlinear_convs(model, BODY_CONVS) == BODY_CONVS


def test_weights_are_signed_per_channel_and_activations_unsigned(calibration: Calibration) -> None:
    model = onnx.load_from_string(quantize_graph(calibration, QuantRecipe()))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    weight = next(tensor for name, tensor in stored.items() if name.startswith("body2.w_quantized"))
    scale = next(tensor for name, tensor in stored.items() if name.startswith("body2.w_scale"))
    assert weight.data_type == onnx.TensorProto.INT8
    assert list(scale.dims) == [16]
    zero_point = next(tensor for name, tensor in stored.items() if name == "images_zero_point")
    assert zero_point.data_type == onnx.TensorProto.UINT8


def test_a_graph_that_the_runtime_does_not_fuse_is_refused_with_the_counts(fp32: Bundle) -> None:
    with pytest.raises(Incompatible, match=f"expected {BODY_CONVS} QLinearConv after .* optimisation, got 0"):
        check_qlinear_convs(fp32.model, BODY_CONVS)


def test_layers_that_are_kept_in_float_are_not_expected_in_eight_bits(calibration: Calibration) -> None:
    kept = stem_nodes(calibration.graph)
    model = quantize_graph(calibration, QuantRecipe(keep_float=kept))
    expected = expected_qlinear_convs(calibration.graph, kept | calibration.head)
    assert check_qlinear_convs(model, expected) == BODY_CONVS - 1


def test_a_relu_layer_that_the_runtime_quantizes_against_our_word_is_noticed_and_the_search_goes_without(
    fp32: Bundle, tmp_path: Path
) -> None:
    graph = prepared(relu_onnx())
    calibration = Calibration(graph, head_nodes(graph), "images", input_tensors(fp32, FRAMES[:4]), tmp_path)
    kept = frozenset({"body4", "body4.y.act"})
    with pytest.raises(Incompatible, match=f"expected {BODY_CONVS - 1} QLinearConv .* got {BODY_CONVS}"):
        check_qlinear_convs(
            quantize_graph(calibration, QuantRecipe(keep_float=kept)),
            expected_qlinear_convs(graph, calibration.head | kept),
        )
    found = search(calibration, lambda model: 1.0, QUICK)
    assert found.best.qlinear_convs in (BODY_CONVS, BODY_CONVS - 1)


@pytest.mark.parametrize("calibrator", [Calibrator.PERCENTILE_99_99, Calibrator.ENTROPY])
def test_histogram_calibrators_clip_what_minmax_keeps(
    calibration: Calibration, calibrator: Calibrator
) -> None:
    widest = _activation_scale(quantize_graph(calibration, QuantRecipe()))
    clipped = _activation_scale(quantize_graph(calibration, QuantRecipe(calibrator)))
    assert clipped <= widest * 1.001
    assert check_qlinear_convs(quantize_graph(calibration, QuantRecipe(calibrator)), BODY_CONVS)


def _activation_scale(model: bytes) -> float:
    graph = onnx.load_from_string(model)
    tensor = next(tensor for tensor in graph.graph.initializer if tensor.name == "body8.y.silu_scale")
    return float(onnx.numpy_helper.to_array(tensor))


def test_the_int8_bundle_says_what_it_is_and_where_it_came_from(fp32: Bundle, quantized: Quantized) -> None:
    manifest = quantized.bundle.manifest
    assert (manifest.name, manifest.version) == ("small-int8", "1.2")
    assert manifest.precision is Precision.INT8
    assert manifest.parent is not None
    assert manifest.parent.ref() == fp32.ref
    assert manifest.report["quantize.qlinear_conv"] == manifest.report["quantize.qlinear_conv_expected"]
    assert len(quantized.bundle.model) < len(fp32.model)


def test_the_score_calibration_of_the_fp32_model_is_not_carried_over(quantized: Quantized) -> None:
    assert set(quantized.bundle.parts) == {"model.onnx"}


def test_the_int8_detector_sees_what_the_fp32_one_sees(fp32: Bundle, quantized: Quantized) -> None:
    before = OnnxDetector.open(fp32, "cpu").detect(FRAMES[8:9])[0].candidates
    after = OnnxDetector.open(quantized.bundle, "cpu").detect(FRAMES[8:9])[0].candidates
    assert after.best_scores[0] == pytest.approx(before.best_scores[0], abs=0.05)
    assert quantized.search.best.score > 0.3


def test_the_most_damaging_layer_is_kept_in_float_when_that_pays(calibration: Calibration) -> None:
    damage = layer_damage(calibration, QuantRecipe(), images=2)
    worst = min(set(damage) - stem_nodes(calibration.graph), key=lambda name: damage[name])

    def score(model: bytes) -> float:
        return 0.5 if f"{worst}.w_quantized".encode() in model else 0.9

    found = search(calibration, score, SearchSettings((Calibrator.MINMAX,), most_trials=20))
    assert worst in found.best.recipe.keep_float
    assert found.best.score == 0.9
    assert found.best.qlinear_convs < BODY_CONVS


def test_layers_stay_in_eight_bits_when_float_does_not_pay(calibration: Calibration) -> None:
    found = search(calibration, lambda model: 0.5, SearchSettings((Calibrator.MINMAX,), most_trials=20))
    assert found.best.recipe.keep_float <= stem_nodes(calibration.graph)


def test_the_damage_of_a_layer_is_measured_with_only_that_layer_quantized(calibration: Calibration) -> None:
    damage = layer_damage(calibration, QuantRecipe(), images=2)
    assert set(damage) == set(convolutions(calibration.graph)) - calibration.head
    whole = quantize_graph(calibration, QuantRecipe())
    assert b"body1.w_quantized" in whole
    alone = quantize_graph(calibration, QuantRecipe(), only=["body1"])
    assert b"body1.w_quantized" in alone
    assert b"body2.w_quantized" not in alone
    assert all(np.isfinite(list(damage.values())))


def test_the_search_stops_at_its_budget(calibration: Calibration) -> None:
    for budget in (1, 3, 6):
        found = search(calibration, lambda model: 0.5, SearchSettings(most_trials=budget))
        assert len(found.trials) == budget


def test_calibration_samples_are_made_as_the_detector_makes_its_input(fp32: Bundle) -> None:
    frames = [scene(48, 100, 1), scene(100, 48, 2)]
    made = input_tensors(fp32, frames)
    for frame, tensor in zip(frames, made, strict=True):
        assert np.array_equal(Preprocessor(fp32.manifest.input).fill([frame])[0], tensor)
    assert not np.shares_memory(made[0], made[1])


def test_what_cannot_be_quantized_is_refused(fp32: Bundle, quantized: Quantized) -> None:
    with pytest.raises(Malformed, match="expected an fp32 bundle"):
        quantize_bundle(quantized.bundle, FRAMES, lambda bundle: 0.0)
    with pytest.raises(Malformed, match="cut before the decode"):
        quantize_bundle(tiny_bundle(Layout.ONE_TO_MANY), FRAMES, lambda bundle: 0.0)
    with pytest.raises(Malformed, match="expected frames to calibrate on"):
        quantize_bundle(fp32, [], lambda bundle: 0.0)


def test_agreement_with_a_model_that_sees_nothing_is_refused(fp32: Bundle) -> None:
    blind = OnnxDetector.open(fp32.with_parts({}, answer_min_score=1.0), "cpu")
    with pytest.raises(Malformed, match="sees nothing"):
        labelled_by(blind, FRAMES[:2])
