"""Score calibrations as JSON: the `calibration.json` of a bundle, both ways."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fovea.core.errors import Incompatible, Malformed
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration, ScoreCurve
from fovea.runtime.manifest import canonical_json, explain_validation

_VERSION: Final = 1


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Platt(_Strict):
    kind: Literal["platt"]
    slope: float
    offset: float


class _Piecewise(_Strict):
    kind: Literal["piecewise"]
    x: tuple[float, ...]
    y: tuple[float, ...]


_Curve = Annotated[_Platt | _Piecewise, Field(discriminator="kind")]


class _File(_Strict):
    schema_version: Literal[1]
    fallback: _Curve
    by_class: dict[Annotated[str, Field(pattern=r"^\d{1,10}$")], _Curve]


def calibration_to_json(calibration: ScoreCalibration) -> bytes:
    """Canonical JSON of a calibration. Raises Malformed for a kind of curve that has no form in JSON."""
    return canonical_json(
        {
            "schema_version": _VERSION,
            "fallback": _curve_to_value(calibration.fallback),
            "by_class": {str(key): _curve_to_value(curve) for key, curve in calibration.by_class.items()},
        }
    )


def calibration_from_json(data: bytes) -> ScoreCalibration:
    """The calibration in `data`. Raises Incompatible for another schema version, Malformed for anything else that
    is wrong with it."""
    try:
        file = _File.model_validate_json(data)
    except ValidationError as error:
        if any(entry["loc"] == ("schema_version",) for entry in error.errors()):
            raise Incompatible(f"calibration.json: expected schema version {_VERSION}") from error
        raise Malformed(f"calibration.json: {explain_validation(error)}") from error
    by_class = {int(key): _curve_from_value(curve) for key, curve in file.by_class.items()}
    return ScoreCalibration(_curve_from_value(file.fallback), by_class)


def _curve_to_value(curve: ScoreCurve) -> dict[str, Any]:
    match curve:
        case PlattCurve(slope=slope, offset=offset):
            return {"kind": "platt", "slope": float(slope), "offset": float(offset)}
        case PiecewiseCurve():
            return {"kind": "piecewise", "x": curve.x.tolist(), "y": curve.y.tolist()}
    raise Malformed(f"score curve: expected a Platt or a piecewise curve, got {type(curve).__name__}")


def _curve_from_value(curve: _Platt | _Piecewise) -> ScoreCurve:
    if isinstance(curve, _Platt):
        return PlattCurve(curve.slope, curve.offset)
    return PiecewiseCurve(np.array(curve.x, np.float32), np.array(curve.y, np.float32))
