"""A torch model rebuilt from a bundle answers as the bundle does, and can be trained from where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloud.learn.rebuild import rebuild, restore_statistics
from fovea.core.errors import Incompatible
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.manifest import OutputSpec
from fovea.runtime.ort import open_session
from tests.learning_images import zoo

torch = pytest.importorskip("torch")


def images(bundle: Bundle, count: int = 2, seed: int = 0) -> Any:
    spec = bundle.manifest.input
    return np.random.default_rng(seed).random((count, 3, spec.height, spec.width), np.float32)


def of_onnx(bundle: Bundle, feed: Any) -> list[Any]:
    return open_session(bundle.model, "cpu").run({"images": feed}, ("boxes", "logits"))


def of_torch(model: Any, feed: Any) -> list[Any]:
    with torch.no_grad():
        raw = model(torch.from_numpy(feed))
    raw = raw if model.training else raw[1]
    return [raw[name].numpy() for name in ("boxes", "scores")]


def largest_difference(got: list[Any], wanted: list[Any]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("street-student-day-fp32", "street-student"), ("street-student-fp32", "street-student"),
        ("street-edge", "street-edge"), ("street-cloud", "street-cloud"),
    ],
)  # fmt: skip
def test_a_rebuilt_model_answers_as_its_bundle_does(name: str, architecture: str) -> None:
    bundle = zoo(name)
    rebuilt = rebuild(bundle)
    feed = images(bundle, 1)
    assert rebuilt.architecture.stem == architecture
    assert largest_difference(of_torch(rebuilt.model, feed), of_onnx(bundle, feed)) < 1e-3


def test_restored_statistics_change_no_answer() -> None:
    bundle = zoo("street-student-day-fp32")
    model = rebuild(bundle).model
    restore_statistics(model, [torch.from_numpy(images(bundle, 4, seed)) for seed in (1, 2)])
    feed = images(bundle, 2)
    assert largest_difference(of_torch(model, feed), of_onnx(bundle, feed)) < 1e-3


def test_with_restored_statistics_training_mode_starts_where_the_bundle_was() -> None:
    """Identity norms would throw the answers far off as soon as batch statistics are used."""
    bundle = zoo("street-student-day-fp32")
    feed, wanted = images(bundle, 4), of_onnx(bundle, images(bundle, 4))
    plain, restored = rebuild(bundle).model, rebuild(bundle).model
    restore_statistics(restored, [torch.from_numpy(images(bundle, 4, 1))])
    off = [largest_difference(of_torch(model.train(), feed), wanted) for model in (plain, restored)]
    assert off[1] < 0.3 * off[0]


def test_a_constant_channel_is_left_alone() -> None:
    bundle = zoo("street-student-day-fp32")
    model = rebuild(bundle).model
    feed = images(bundle, 2)
    wanted = of_torch(model, feed)
    restore_statistics(model, [torch.zeros(2, 3, *feed.shape[2:])])  # black: many channels do not vary at all
    assert largest_difference(of_torch(model, feed), wanted) < 1e-2
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_every_weight_takes_part_in_training() -> None:
    model = rebuild(zoo("street-student-day-fp32")).model.train()
    raw = model(torch.rand(2, 3, 64, 64))
    (raw["boxes"].square().mean() + raw["scores"].square().mean()).backward()
    still = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert still == []


def test_eight_bit_weights_are_refused_with_the_way_out() -> None:
    with pytest.raises(Incompatible, match="8-bit weights; a student is trained from its FP32 parent"):
        rebuild(zoo("street-student-int8"))


def test_another_layout_is_refused() -> None:
    bundle = zoo("street-student-fp32")
    other = OutputSpec(layout=Layout.ONE_TO_MANY, tensors=("output0",))
    foreign = replace(bundle, manifest=bundle.manifest.model_copy(update={"output": other}))
    with pytest.raises(Incompatible, match="expected our cut graph"):
        rebuild(foreign)


def test_foreign_weights_are_refused_and_the_known_architectures_named() -> None:
    student, day = zoo("street-edge"), zoo("street-student-day-fp32")
    foreign = replace(student, parts={**student.parts, MODEL: day.model})
    with pytest.raises(
        Incompatible, match=r"none of our architectures \(street-cloud, street-edge, street-student\)"
    ):
        rebuild(foreign)
