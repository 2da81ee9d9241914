"""Frames replayed through agent, edge and cloud on simulated time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.purse import RULES_PRICE, Purse
from fovea.bench.tiers_link import LAN, LTE, WAN, LinkSpec, Outage
from fovea.bench.tiers_outcome import Mode, Outcome, ReplayFrame, Said, TierTimes
from fovea.bench.tiers_replay import Network, Policy, replay
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.errors import Malformed
from fovea.core.gate import Opinion
from fovea.core.price import AskPrice
from fovea.core.routing import Reason, Route

TIMES = TierTimes(
    camera_s=(0.01,),
    encode_s=(0.005,),
    edge_s=(0.03,),
    cloud_s=(0.2,),
    camera_cpu_s=0.01,
    encode_cpu_s=0.005,
    edge_cpu_s=0.03,
    cloud_cpu_s=0.2,
    question_bytes=0,
    answer_bytes=0,
)
JPEG_BYTES = 125_000
NO_AUDITS = DecideSettings(audit_share=0.0)
UNCERTAIN = (Reason.UNCERTAIN_BOXES,)


def opinion(p_ask: float) -> Opinion:
    return Opinion(p_ask, None, UNCERTAIN)


def frames(count: int, p_ask: float = 0.9, p_second: float = 0.0, fps: float = 2.0) -> list[ReplayFrame]:
    return [ReplayFrame(1 + n / fps, JPEG_BYTES, opinion(p_ask), opinion(p_second)) for n in range(count)]


def policy(asks_per_s: float = 1000.0, audit_share: float = 0.0) -> Policy:
    return Policy(
        purse=lambda: Purse(Budget(asks_per_s), AskPrice(RULES_PRICE)),
        budget=lambda: Budget(1000.0),
        decide=replace(NO_AUDITS, audit_share=audit_share),
    )


def latencies(outcomes: list[Outcome]) -> list[float | None]:
    return [each.latency_s for each in outcomes]


def test_the_agent_alone_takes_its_own_time_and_sends_nothing() -> None:
    outcomes = replay(frames(5), Mode.AGENT, Network(LTE), TIMES, policy())
    assert latencies(outcomes) == pytest.approx([0.01] * 5)
    assert all(each.best is Said.CAMERA and not each.sent_bytes and not each.is_asked for each in outcomes)


def test_the_cloud_alone_takes_encoding_the_way_there_its_look_and_the_way_back() -> None:
    outcomes = replay(frames(4), Mode.CLOUD, Network(WAN), TIMES, policy())
    assert latencies(outcomes) == pytest.approx([0.005 + 0.1 + 0.02 + 0.2 + 0.02] * 4)
    assert all(each.best is Said.CLOUD and each.wide_bytes == JPEG_BYTES for each in outcomes)


def test_the_edge_alone_is_a_lan_away_whatever_the_link_to_the_cloud() -> None:
    outcomes = replay(frames(3), Mode.EDGE, Network(LTE), TIMES, policy())
    assert latencies(outcomes) == pytest.approx([0.005 + 0.01 + 0.001 + 0.03] * 3)
    assert all(each.best is Said.EDGE and not each.wide_bytes for each in outcomes)


def test_a_server_that_is_too_slow_for_the_frames_makes_them_wait_longer_and_longer() -> None:
    slow = replace(TIMES, cloud_s=(0.8,))
    waits = latencies(replay(frames(6), Mode.CLOUD, Network(LAN), slow, policy()))
    assert all(b is not None and a is not None and b > a + 0.25 for a, b in itertools.pairwise(waits))


def test_an_asked_frame_has_its_own_answer_at_once_and_a_better_one_later() -> None:
    [outcome] = replay(frames(1), Mode.HYBRID, Network(WAN), TIMES, policy())
    assert [said for _, said in outcome.answers] == [Said.CAMERA, Said.CAMERA_EDGE]
    assert outcome.first_s == pytest.approx(0.01)
    assert outcome.latency_s == pytest.approx(0.01 + 0.005 + 0.01 + 0.001 + 0.03)
    assert outcome.is_asked and not outcome.is_forwarded and outcome.sent_bytes == JPEG_BYTES


def test_a_hard_frame_goes_on_to_the_cloud() -> None:
    [outcome] = replay(frames(1, p_second=0.9), Mode.HYBRID, Network(WAN), TIMES, policy())
    assert outcome.best is Said.ALL and outcome.is_forwarded
    assert outcome.latency_s == pytest.approx(0.01 + 0.005 + 0.011 + 0.03 + 0.12 + 0.2 + 0.02)


def test_a_cloud_that_cannot_be_in_time_refuses_and_the_edge_answers_without_it() -> None:
    slow = replace(TIMES, cloud_s=(5.0,))
    [outcome] = replay(frames(1, p_second=0.9), Mode.HYBRID, Network(WAN), slow, policy())
    assert outcome.best is Said.CAMERA_EDGE and outcome.is_forwarded and not outcome.cloud_looks
    assert outcome.latency_s == pytest.approx(0.01 + 0.005 + 0.011 + 0.03 + 0.12 + 0.02)


def test_a_cloud_whose_answer_is_late_on_the_way_is_not_waited_for() -> None:
    far = LinkSpec(2.0, 100e6)
    [outcome] = replay(frames(1, p_second=0.9), Mode.HYBRID, Network(far), TIMES, policy())
    assert outcome.best is Said.CAMERA_EDGE and outcome.cloud_looks == 1
    assert outcome.latency_s is not None and 1.4 < outcome.latency_s <= 1.5


def test_an_edge_that_is_too_late_leaves_the_answer_of_the_camera() -> None:
    slow = replace(TIMES, edge_s=(5.0,))
    [outcome] = replay(frames(1), Mode.HYBRID, Network(WAN), slow, policy())
    assert outcome.best is Said.CAMERA and outcome.is_asked and not outcome.edge_looks


def test_a_budget_of_a_quarter_asks_about_a_quarter() -> None:
    outcomes = replay(frames(400, p_ask=0.95), Mode.HYBRID, Network(WAN), TIMES, policy(asks_per_s=0.5))
    share = sum(each.is_asked for each in outcomes) / len(outcomes)
    assert 0.2 <= share <= 0.27


def test_a_sure_camera_asks_nobody_but_for_audits() -> None:
    sure = frames(300, p_ask=0.1)
    assert not any(each.sent_bytes for each in replay(sure, Mode.HYBRID, Network(WAN), TIMES, policy()))
    audited = replay(sure, Mode.HYBRID, Network(WAN), TIMES, policy(audit_share=0.1))
    assert 15 <= sum(each.is_asked for each in audited) <= 50


def test_in_an_outage_the_breaker_soon_stops_the_questions_and_they_come_back_after_it() -> None:
    outcomes = replay(frames(120), Mode.HYBRID, Network(WAN, outage=Outage(21.0, 41.0)), TIMES, policy())
    within = [each for each in outcomes if 21 <= each.captured_s < 41]
    after = [each for each in outcomes if each.captured_s >= 47]
    assert all(each.best is Said.CAMERA for each in within)
    assert 0 < sum(each.is_asked for each in within) < len(within) / 2
    assert sum(each.best is Said.CAMERA_EDGE for each in after) > 0.9 * len(after)


def test_who_has_only_the_cloud_has_nothing_in_an_outage() -> None:
    outcomes = replay(frames(40), Mode.CLOUD, Network(WAN, outage=Outage(6.0, 11.0)), TIMES, policy())
    for each in outcomes:
        assert (each.best is Said.NOTHING) == (5.65 < each.captured_s < 11)


opinions = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30)
links = st.builds(LinkSpec, st.floats(0, 0.5), st.floats(1e5, 1e8), st.sampled_from([0.0, 0.02]))


def planned(thoughts: list[tuple[float, float]]) -> list[ReplayFrame]:
    return [
        ReplayFrame(1 + n / 2, JPEG_BYTES, opinion(own), opinion(second))
        for n, (own, second) in enumerate(thoughts)
    ]


@settings(max_examples=60, deadline=None)
@given(opinions, links, links, st.floats(0, 15), st.floats(0, 15))
def test_neither_link_nor_outage_ever_delays_the_camera_s_own_answer(
    thoughts: list[tuple[float, float]], site: LinkSpec, wide: LinkSpec, begin_s: float, lasts_s: float
) -> None:
    own = replay(planned(thoughts), Mode.AGENT, Network(LAN), TIMES, policy())
    cut = Network(wide, site, Outage(begin_s, begin_s + lasts_s))
    hybrid = replay(planned(thoughts), Mode.HYBRID, cut, TIMES, policy())
    assert [each.first_s for each in hybrid] == [each.first_s for each in own]


@settings(max_examples=60, deadline=None)
@given(opinions, links)
def test_no_byte_is_sent_without_asking_and_none_goes_further_than_it_was_sent(
    thoughts: list[tuple[float, float]], wide: LinkSpec
) -> None:
    for each in replay(planned(thoughts), Mode.HYBRID, Network(wide), TIMES, policy()):
        assert (each.sent_bytes > 0) == each.is_asked
        assert (each.wide_bytes > 0) == each.is_forwarded
        assert each.is_asked or not each.is_forwarded
        assert [at_s for at_s, _ in each.answers] == sorted(at_s for at_s, _ in each.answers)
        assert each.latency_s is not None and each.latency_s <= 1.5 + 1e-9
        assert len(each.answers) in (1, 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), links, st.floats(0, 1), st.floats(1, 50), st.sampled_from([Mode.EDGE, Mode.CLOUD]))
def test_over_a_faster_link_no_answer_comes_later(
    count: int, link: LinkSpec, share: float, factor: float, mode: Mode
) -> None:
    faster = LinkSpec(link.round_trip_s * share, link.bits_per_s * factor, link.loss)
    slow = replay(frames(count), mode, Network(link, link), TIMES, policy())
    fast = replay(frames(count), mode, Network(faster, faster), TIMES, policy())
    for a, b in zip(slow, fast, strict=True):
        assert a.latency_s is not None and b.latency_s is not None and b.latency_s <= a.latency_s + 1e-9


def test_the_same_run_twice_is_the_same() -> None:
    sure = frames(50, p_ask=0.75, p_second=0.75)
    runs = [replay(sure, Mode.HYBRID, Network(LTE), TIMES, policy(1.0, 0.1)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_several_cameras_share_the_agent_s_one_thread() -> None:
    both = [replace(each, camera=camera) for each in frames(3) for camera in range(2)]
    assert latencies(replay(both, Mode.AGENT, Network(LAN), TIMES, policy())) == pytest.approx(
        [0.01, 0.02] * 3
    )


def test_frames_out_of_order_and_steps_without_times_are_refused() -> None:
    with pytest.raises(Malformed, match="in the order of their capture"):
        replay(frames(3)[::-1], Mode.AGENT, Network(LAN), TIMES, policy())
    with pytest.raises(Malformed, match="cloud_s: expected at least one time"):
        replace(TIMES, cloud_s=())
    assert policy().second.route is Route.CLOUD
