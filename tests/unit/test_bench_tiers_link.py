"""A link as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.bench.tiers_link import LAN, LTE, WAN, LinkSpec, Outage, Way
from fovea.core.errors import Malformed

messages = st.lists(st.tuples(st.floats(0, 5), st.floats(1, 500_000)), min_size=1, max_size=20)
delays_s = st.floats(0, 0.5)
rates = st.floats(1e5, 1e9)
losses = st.sampled_from([0.0, 0.01, 0.2])


def arrivals(
    spec: LinkSpec, gaps: list[tuple[float, float]], outage: Outage | None = None
) -> list[float | None]:
    """Each message is sent so long after the one before."""
    way, at_s, there = Way(spec, outage, seed=3), 0.0, []
    for gap_s, size_bytes in gaps:
        at_s += gap_s
        there.append(way.send(at_s, size_bytes))
    return there


def test_a_picture_takes_its_bits_over_the_rate_and_half_a_round_trip() -> None:
    assert Way(WAN).send(5.0, 125_000) == pytest.approx(5 + 0.1 + 0.02)
    assert Way(LAN).send(0.0, 125_000) == pytest.approx(0.01 + 0.0005)


def test_the_second_of_two_pictures_waits_for_the_first() -> None:
    way = Way(WAN)
    way.send(0.0, 125_000)
    assert way.send(0.01, 125_000) == pytest.approx(0.2 + 0.02)


@given(messages, delays_s, rates, losses, st.floats(0, 1), st.floats(1, 100))
def test_a_faster_link_never_delivers_later(
    gaps: list[tuple[float, float]], delay_s: float, rate: float, loss: float, share: float, factor: float
) -> None:
    slow = arrivals(LinkSpec(delay_s, rate, loss), gaps)
    fast = arrivals(LinkSpec(delay_s * share, rate * factor, loss), gaps)
    assert all(b is not None and a is not None and b <= a + 1e-9 for a, b in zip(slow, fast, strict=True))


@given(messages, delays_s, rates)
def test_loss_only_ever_delays(gaps: list[tuple[float, float]], delay_s: float, rate: float) -> None:
    clean = arrivals(LinkSpec(delay_s, rate), gaps)
    lossy = arrivals(LinkSpec(delay_s, rate, 0.1), gaps)
    assert all(b is not None and a is not None and b >= a - 1e-9 for a, b in zip(clean, lossy, strict=True))


@given(messages, delays_s, rates, losses)
def test_messages_arrive_in_their_order_and_not_before_they_were_sent(
    gaps: list[tuple[float, float]], delay_s: float, rate: float, loss: float
) -> None:
    there = arrivals(LinkSpec(delay_s, rate, loss), gaps)
    at_s, last_s = 0.0, 0.0
    for (gap_s, size_bytes), each in zip(gaps, there, strict=True):
        at_s += gap_s
        assert each is not None
        assert each >= at_s + size_bytes * 8 / rate + delay_s / 2 - 1e-9
        assert each >= last_s - 1e-12
        last_s = each


def test_a_hundredth_lost_costs_a_busy_picture_something_and_not_everything() -> None:
    way, clean = Way(LTE, seed=1), Way(LinkSpec(LTE.round_trip_s, LTE.bits_per_s))
    waits_s = [(way.send(10.0 * n, 100_000) or 0) - (clean.send(10.0 * n, 100_000) or 0) for n in range(300)]
    # 70 segments: half of the pictures lose one at least, which costs a round trip, seldom a timeout.
    assert 0.35 < sum(wait_s > 0.001 for wait_s in waits_s) / 300 < 0.65
    assert 0.02 < sum(waits_s) / 300 < 0.1


def test_what_is_on_its_way_when_the_link_is_cut_is_lost_and_later_messages_are_not() -> None:
    way = Way(WAN, Outage(1.0, 2.0))
    assert way.send(0.0, 1000) is not None
    assert way.send(0.95, 125_000) is None
    assert way.send(1.5, 1000) is None
    assert way.send(2.0, 125_000) == pytest.approx(2.12)


@pytest.mark.parametrize("wrong", [(-1, 1e6, 0), (0, 0, 0), (0, 1e6, 1.0), (float("nan"), 1e6, 0)])
def test_a_link_that_cannot_be_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(Malformed, match="link: expected"):
        LinkSpec(*wrong)


def test_an_outage_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(Malformed, match="outage: expected"):
        Outage(2.0, 1.0)
