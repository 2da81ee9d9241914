"""Checks that turn whatever array came in into the read-only array a type promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import Malformed

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
ImageArray = NDArray[np.uint8]

_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)
_BITS_OF_ONE = 0x3F800000


def frozen_floats(name: str, values: Any, shape: tuple[int | None, ...]) -> FloatArray:
    """`values` as a read-only float32 array of `shape` (None: any length), all finite, or Malformed.

    The result is nobody else's memory: a caller who keeps writing to its own array does not reach it. An array
    that came out of here once is passed through without another copy.
    """
    array: FloatArray = _numbers(name, values, shape, _FLOAT)
    flat = array.ravel()
    # The sum of the squares is finite only where all are, unless it is too large: then it is looked at one by one.
    if not math.isfinite(np.dot(flat, flat)) and not np.isfinite(array).all():
        raise Malformed(f"{name}: expected finite values, got {array[~np.isfinite(array)][0]}")
    return array


def frozen_ints(name: str, values: Any, shape: tuple[int | None, ...]) -> IntArray:
    """`values` as a read-only int32 array of `shape` (None: any length), or Malformed; memory as above."""
    array: IntArray = _numbers(name, values, shape, _INT)
    if array is not values and getattr(values, "dtype", None) != _INT:
        given = np.asarray(values).ravel()
        changed = given[given != array.ravel()]
        if changed.size:
            raise Malformed(f"{name}: expected whole numbers that fit 32 bits, got {changed[0]}")
    return array


def frozen_boxes(name: str, values: Any) -> FloatArray:
    """`values` as read-only boxes f32[N, 4] with x1 <= x2 and y1 <= y2, or Malformed."""
    boxes = frozen_floats(name, values, (None, 4))
    wrong = boxes[:, 2:] < boxes[:, :2]
    if np.count_nonzero(wrong):
        row = int(wrong.any(axis=1).argmax())
        raise Malformed(f"{name}: expected x1 <= x2 and y1 <= y2, got {boxes[row].tolist()} in row {row}")
    return boxes


def frozen_unit(name: str, values: Any, shape: tuple[int | None, ...]) -> FloatArray:
    """`values` as a read-only float32 array of `shape` within 0 to 1, or Malformed."""
    array: FloatArray = _numbers(name, values, shape, _FLOAT)
    # Read as whole numbers, the floats of 0 to 1 are those up to the one of 1: all that is not is greater.
    if not np.count_nonzero(array.view(np.uint32) > _BITS_OF_ONE):
        return array
    array = frozen_floats(name, array, shape)
    if array.size and (array.min() < 0.0 or array.max() > 1.0):
        raise Malformed(f"{name}: expected 0 to 1, got {array.min():g} to {array.max():g}")
    return array


def _numbers(name: str, values: Any, shape: tuple[int | None, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`values` as a read-only array of `dtype` and `shape`; what does not fit `dtype` is left to the caller."""
    if type(values) is np.ndarray and values.dtype == dtype:
        array = values if _is_frozen(values) else values.copy()
    else:
        array = _converted(name, values, dtype)
    array.flags.writeable = False
    if array.shape == (0,) and not shape[0]:
        array = array.reshape([wanted or 0 for wanted in shape])
    if len(array.shape) == len(shape):
        for wanted, got in zip(shape, array.shape, strict=True):
            if wanted is not None and wanted != got:
                break
        else:
            return array
    sides = ["N" if wanted is None else str(wanted) for wanted in shape]
    raise Malformed(f"{name}: expected shape ({', '.join(sides)}), got {array.shape}")


def _converted(name: str, values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iuf":
            raise TypeError(f"array of {given.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(given, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "whole numbers" if dtype.kind == "i" else "numbers"
        got = f"array of {values.dtype}" if isinstance(values, np.ndarray) else type(values).__name__
        raise Malformed(f"{name}: expected {wanted}, got {got}") from error


def _is_frozen(array: NDArray[Any]) -> bool:
    """True when nobody can write to the memory of `array`: it is read-only and not a window on another array."""
    flags = array.flags
    return not flags.writeable and flags.owndata and flags.c_contiguous
