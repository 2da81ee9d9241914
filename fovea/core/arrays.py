"""Checks that turn whatever array came in into the read-only array a type promises."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import Malformed

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
ImageArray = NDArray[np.uint8]


def frozen_floats(name: str, values: Any, shape: tuple[int | None, ...]) -> FloatArray:
    """`values` as a read-only float32 array of `shape` (None: any length), all finite, or Malformed."""
    try:
        array = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise Malformed(f"{name}: expected numbers, got {type(values).__name__}") from error
    array = _shaped(name, array, shape)
    if not np.isfinite(array).all():
        raise Malformed(f"{name}: expected finite values, got NaN or infinity")
    return array


def frozen_ints(name: str, values: Any, shape: tuple[int | None, ...]) -> IntArray:
    """`values` as a read-only int32 array of `shape` (None: any length), or Malformed."""
    try:
        given = np.asarray(values)
        array = np.ascontiguousarray(given, dtype=np.int32)
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed(f"{name}: expected whole numbers, got {type(values).__name__}") from error
    if given.size and not np.array_equal(given, array):
        raise Malformed(f"{name}: expected whole numbers that fit 32 bits")
    return _shaped(name, array, shape)


def _shaped(name: str, array: NDArray[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
    if array.size == 0:
        array = array.reshape([0 if wanted is None else wanted for wanted in shape])
    fits = array.ndim == len(shape) and all(
        wanted is None or wanted == got for wanted, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted_text = "(" + ", ".join("N" if wanted is None else str(wanted) for wanted in shape) + ")"
        raise Malformed(f"{name}: expected shape {wanted_text}, got {array.shape}")
    if array.flags.writeable:
        # A copy, unless the conversion made one: a caller who keeps writing to its own array must not reach us.
        array = array.copy()
        array.flags.writeable = False
    return array
