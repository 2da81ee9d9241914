"""The choice among routes: constraints hold whatever the weights say, and each term moves it the right way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.qoe import (
    Constraints,
    Priorities,
    QoeWeights,
    RouteOption,
    broken_constraint,
    choose_route,
    quality_of_experience,
)
from fovea.core.routing import Reason, Route

LOCAL = RouteOption(Route.LOCAL, 40, 60, 0.3, 0.5)
EDGE = RouteOption(Route.EDGE, 90, 150, 0.45, 0.4, 30_000)
CLOUD = RouteOption(Route.CLOUD, 300, 600, 0.6, 0.2, 30_000)

shares = st.floats(0, 1)
milliseconds = st.floats(0, 1e5)


@st.composite
def weights(draw: st.DrawFn) -> QoeWeights:
    parts = [draw(st.floats(0.001, 1)) for _ in range(4)]
    latency, quality, memory, priority = (part / sum(parts) for part in parts)
    return QoeWeights(latency, quality, memory, priority, draw(st.floats(1, 5000)))


@st.composite
def options(
    draw: st.DrawFn, routes: tuple[Route, ...] = (Route.LOCAL, Route.EDGE, Route.CLOUD)
) -> list[RouteOption]:
    chosen = draw(st.lists(st.sampled_from(routes), min_size=1, unique=True))
    made = []
    for route in chosen:
        mean = draw(milliseconds)
        sent = 0.0 if route is Route.LOCAL else draw(st.floats(0, 1e6))
        made.append(RouteOption(route, mean, mean + draw(milliseconds), draw(shares), draw(shares), sent))
    return made


limits = st.builds(
    Constraints,
    st.floats(0, 2e5) | st.just(math.inf),
    st.floats(-1e6, 1e6) | st.just(math.inf),
    st.floats(-5, 5) | st.just(math.inf),
    shares,
    shares,
)


@given(options(), weights(), limits)
def test_a_hard_constraint_is_never_broken(
    offered: list[RouteOption], counts: QoeWeights, limit: Constraints
) -> None:
    choice = choose_route(offered, counts, limit)
    if choice.route is Route.SKIP:
        assert all(broken_constraint(option, limit) for option in offered)
        assert choice.qoe == 0
        return
    option = next(option for option in offered if option.route is choice.route)
    assert option.latency_p95_ms <= limit.deadline_ms
    assert option.memory_share <= limit.most_memory_share
    if option.is_asked:
        assert option.sent_bytes <= limit.bytes_left
        assert limit.asks_left >= 1


@given(options(), weights(), limits)
def test_no_route_that_may_be_taken_is_better_than_the_one_that_is(
    offered: list[RouteOption], counts: QoeWeights, limit: Constraints
) -> None:
    choice = choose_route(offered, counts, limit)
    for option in offered:
        if broken_constraint(option, limit) is None:
            assert quality_of_experience(option, counts, limit.priority) <= choice.qoe
    assert 0 <= choice.qoe <= 1 + 1e-9
    assert choice.reasons
    assert choose_route(offered[::-1], counts, limit) == choice


@given(options(), weights(), shares, milliseconds, shares, shares)
def test_quality_of_experience_is_monotone_in_every_term(
    offered: list[RouteOption],
    counts: QoeWeights,
    priority: float,
    slower: float,
    better: float,
    fuller: float,
) -> None:
    option = offered[0]
    value = quality_of_experience(option, counts, priority)
    late = replace(option, latency_ms=option.latency_ms + slower)
    good = replace(option, quality=max(option.quality, better))
    full = replace(option, memory_share=max(option.memory_share, fuller))
    tolerance = 1e-12
    assert quality_of_experience(late, counts, priority) <= value + tolerance
    assert quality_of_experience(good, counts, priority) >= value - tolerance
    assert quality_of_experience(full, counts, priority) <= value + tolerance
    assert quality_of_experience(option, counts, 1.0) >= value - tolerance


@given(options(), weights(), limits, shares)
def test_a_higher_priority_never_gives_a_frame_a_worse_look(
    offered: list[RouteOption], counts: QoeWeights, limit: Constraints, priority: float
) -> None:
    assume(priority >= limit.priority)
    before = choose_route(offered, counts, limit)
    after = choose_route(offered, counts, replace(limit, priority=priority))
    assume(before.route is not Route.SKIP)
    quality = {option.route: option.quality for option in offered}
    # Equal sums may round either way: only a difference that rounding cannot make is a worse look.
    assert quality[after.route] >= quality[before.route] - 1e-9 or before.qoe - after.qoe < 1e-9


@pytest.mark.parametrize(
    "values", [(0.4, 0.3, 0.2, 0.2), (0.5, 0.3, 0.2, 0.1), (-0.1, 0.6, 0.4, 0.1), (math.nan, 0.3, 0.2, 0.1)]
)
def test_weights_that_do_not_add_up_to_one_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(Malformed, match=r"four of 0 or more that add up to 1"):
        QoeWeights(*values)


def test_the_usual_weights_are_those_of_the_design() -> None:
    usual = QoeWeights()
    assert (usual.latency, usual.quality, usual.memory, usual.priority) == (0.4, 0.3, 0.2, 0.1)


def test_a_frame_goes_to_the_cloud_when_only_quality_counts_and_stays_when_only_latency_does() -> None:
    offered = [LOCAL, EDGE, CLOUD]
    assert choose_route(offered, QoeWeights(0, 1, 0, 0)).route is Route.CLOUD
    assert choose_route(offered, QoeWeights(1, 0, 0, 0)).route is Route.LOCAL


def test_the_deadline_is_held_against_the_slow_answers_not_the_usual_one() -> None:
    only_quality = QoeWeights(0, 1, 0, 0)
    choice = choose_route([LOCAL, EDGE, CLOUD], only_quality, Constraints(deadline_ms=400))
    assert choice.route is Route.EDGE
    assert choice.reasons == (Reason.EXPECTED_GAIN, Reason.NO_TIME)


def test_an_empty_budget_keeps_the_frame_at_home_and_says_so() -> None:
    only_quality = QoeWeights(0, 1, 0, 0)
    for limit in (Constraints(bytes_left=29_999), Constraints(asks_left=0.5), Constraints(bytes_left=-1)):
        choice = choose_route([LOCAL, EDGE], only_quality, limit)
        assert choice.route is Route.LOCAL
        assert choice.reasons == (Reason.SURE, Reason.OVER_BUDGET)


def test_nobody_looks_when_nobody_can_in_time() -> None:
    choice = choose_route([LOCAL, EDGE], constraints=Constraints(deadline_ms=10))
    assert choice == (Route.SKIP, 0.0, (Reason.NO_TIME,))


def test_of_equal_routes_the_nearer_tier_looks() -> None:
    edge = RouteOption(Route.EDGE, 50, 50, 0.4)
    assert (
        choose_route([replace(edge, route=Route.CLOUD), edge, replace(edge, route=Route.LOCAL)]).route
        is Route.LOCAL
    )


def test_a_priority_moves_the_choice_of_cameras_and_labels() -> None:
    priorities = Priorities(0.0, {"gate": 1.0}, {0: 0.8})
    assert priorities.of("yard") == 0
    assert priorities.of("yard", [2, 0]) == 0.8
    assert priorities.of("gate", [0]) == 1
    counts = QoeWeights(0.5, 0, 0, 0.5)
    slow, quick = RouteOption(Route.EDGE, 250, 250, 0.9), RouteOption(Route.LOCAL, 125, 125, 0.1)
    assert (
        choose_route([slow, quick], counts, Constraints(priority=priorities.of("yard"))).route is Route.LOCAL
    )
    assert (
        choose_route([slow, quick], counts, Constraints(priority=priorities.of("gate"))).route is Route.EDGE
    )


def test_what_nobody_claims_has_the_usual_priority_even_when_a_low_one_was_given_to_others() -> None:
    assert Priorities(0.5, {"yard": 0.1}).of("yard") == 0.1
    assert Priorities(0.5, {"yard": 0.1}).of("street", [7]) == 0.5


@pytest.mark.parametrize("priority", [-0.1, 1.1, math.nan])
def test_a_priority_outside_its_range_is_refused_with_its_name(priority: float) -> None:
    with pytest.raises(Malformed, match=r"of camera 'yard': expected 0 to 1"):
        Priorities(by_camera={"yard": priority})
    with pytest.raises(Malformed, match=r"of class 3: expected 0 to 1"):
        Priorities(by_label={3: priority})
    with pytest.raises(Malformed, match=r"constraints priority"):
        Constraints(priority=priority)


@pytest.mark.parametrize("field", ["latency_ms", "latency_p95_ms", "quality", "memory_share", "sent_bytes"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_an_option_that_makes_no_sense_is_refused(field: str, value: float) -> None:
    with pytest.raises(Malformed, match=f"route option {field}"):
        replace(EDGE, **{field: value})


def test_no_option_or_one_route_twice_is_refused() -> None:
    with pytest.raises(Malformed, match="at least one"):
        choose_route([])
    with pytest.raises(Malformed, match="each route once"):
        choose_route([EDGE, EDGE])
