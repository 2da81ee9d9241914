"""Does a graph do what its manifest says? Decided when it is loaded, never while it serves."""

from __future__ import annotations

from collections.abc import Sequence

from fovea.core.errors import Incompatible
from fovea.core.yolo import Layout
from fovea.runtime.manifest import BatchMode, BundleManifest, InputSpec, TensorLayout
from fovea.runtime.ort import OrtSession


def anchor_count(spec: InputSpec, strides: Sequence[int]) -> int:
    """Number of grid cells of all levels together."""
    return sum((spec.width // stride) * (spec.height // stride) for stride in strides)


def expected_input_shape(spec: InputSpec) -> tuple[int | None, ...]:
    """Shape of the input tensor; None for a free batch."""
    batch = None if spec.batch is BatchMode.DYNAMIC else 1
    if spec.layout is TensorLayout.NCHW:
        return (batch, 3, spec.height, spec.width)
    return (batch, spec.height, spec.width, 3)


def check_graph(session: OrtSession, manifest: BundleManifest) -> None:
    """Raises Incompatible when the input or the names of the outputs are not those of the manifest."""
    spec = manifest.input
    if len(session.inputs) != 1:
        names = ", ".join(str(tensor) for tensor in session.inputs)
        raise Incompatible(f"model inputs: expected one, got {names or 'none'}")
    found = session.inputs[0]
    if found.name != spec.tensor or found.dtype != spec.dtype.value:
        raise Incompatible(f"model input: expected {spec.tensor} {spec.dtype.value}, got {found}")
    expected = expected_input_shape(spec)
    fits = len(found.shape) == 4 and all(
        got is None or wanted == got for wanted, got in zip(expected, found.shape, strict=True)
    )
    if not fits:
        shown = tuple("?" if dim is None else dim for dim in expected)
        raise Incompatible(f"model input: expected shape {shown} from the manifest, got {found}")
    missing = set(manifest.output.tensors) - {tensor.name for tensor in session.outputs}
    if missing:
        has = ", ".join(str(tensor) for tensor in session.outputs)
        raise Incompatible(f"model outputs: expected {', '.join(sorted(missing))}, the graph has {has}")


def check_outputs(shapes: Sequence[tuple[int, ...]], manifest: BundleManifest) -> None:
    """Raises Incompatible when the shapes of a real run on one frame do not fit layout, labels, input and strides."""
    classes, anchors = len(manifest.labels), anchor_count(manifest.input, manifest.output.strides)
    layout = manifest.output.layout
    expected: dict[Layout, list[tuple[int | None, ...]]] = {
        Layout.CUT: [(1, 4 * manifest.output.reg_max, anchors), (1, classes, anchors)],
        Layout.ONE_TO_MANY: [(1, 4 + classes, anchors)],
        Layout.END_TO_END: [(1, None, 6)],
        Layout.YOLOX: [(1, anchors, 5 + classes)],
    }
    for name, wanted, got in zip(manifest.output.tensors, expected[layout], shapes, strict=True):
        if len(wanted) != len(got) or any(a is not None and a != b for a, b in zip(wanted, got, strict=True)):
            shown = tuple("N" if dim is None else dim for dim in wanted)
            raise Incompatible(
                f"model output {name}: expected {shown} (layout {layout}, {classes} labels, input "
                f"{manifest.input.size}, strides {list(manifest.output.strides)}), got {tuple(got)}"
            )
