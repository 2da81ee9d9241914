"""Modelled energy: sums of constants times work, never silent about where a constant comes from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.energy import BAND, EnergyConstants, FrameWork, energy_of
from fovea.core.errors import Malformed

spent = st.floats(min_value=0, max_value=1e6, allow_nan=False)
work = st.builds(FrameWork, spent, spent, spent, spent, spent)


def test_a_frame_that_nobody_looked_at_costs_nothing() -> None:
    assert energy_of(FrameWork()).total_j == 0


def test_each_part_is_its_constant_times_what_was_spent() -> None:
    constants = EnergyConstants(4.0, 1.0, 1e-6, 2e-5, 10.0, 12.0)
    energy = energy_of(FrameWork(0.01, 1000, 0.02, 500, 0.2), constants)
    assert energy.board_j == pytest.approx(0.04)
    assert energy.local_link_j == pytest.approx(0.001)
    assert energy.edge_j == pytest.approx(0.2)
    assert energy.wide_link_j == pytest.approx(0.01)
    assert energy.cloud_j == pytest.approx(2.4)
    assert energy.total_j == pytest.approx(2.651)


@given(work)
def test_the_band_lies_around_the_value_and_is_as_wide_as_stated(done: FrameWork) -> None:
    energy = energy_of(done)
    assert energy.low_j <= energy.total_j <= energy.high_j
    assert energy.high_j - energy.low_j == pytest.approx(2 * BAND * energy.total_j)


@given(work, work)
def test_energy_of_two_frames_is_the_sum_of_the_energies(a: FrameWork, b: FrameWork) -> None:
    both = FrameWork(*(getattr(a, name) + getattr(b, name) for name in FrameWork.__dataclass_fields__))
    assert energy_of(both).total_j == pytest.approx(energy_of(a).total_j + energy_of(b).total_j)


def test_every_constant_is_shown_with_a_unit_and_a_sentence_on_its_source() -> None:
    constants = EnergyConstants()
    shown = {row.name: row for row in constants.table()}
    assert set(shown) == set(EnergyConstants.__dataclass_fields__)
    for name, row in shown.items():
        assert row.value == getattr(constants, name)
        assert row.unit
        assert row.source.endswith(".")
        assert len(row.source) > 40


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_constants_and_work_that_cannot_be_are_refused_by_name(value: float) -> None:
    with pytest.raises(Malformed, match="wide_j_per_byte"):
        EnergyConstants(wide_j_per_byte=value)
    with pytest.raises(Malformed, match="edge_cpu_s"):
        FrameWork(edge_cpu_s=value)
