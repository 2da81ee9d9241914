"""What is said about a tier above that goes and comes back: each thing once."""

from __future__ import annotations

from edge_agent.outage import OutageTeller
from fovea.link.link import LinkState, LinkStatus


def state(status: LinkStatus, away_s: float = 0.0, is_first: bool = False) -> LinkState:
    return LinkState(status, 0.0, "connection refused", away_s=away_s, is_first=is_first)


def test_a_loss_and_a_return_are_told_once_each_with_how_long_and_how_many() -> None:
    teller = OutageTeller()
    assert teller.link_changed(state(LinkStatus.UP, is_first=True)) == "edge reached"
    assert teller.link_changed(state(LinkStatus.POOR)) == "edge lost, answering locally: connection refused"
    assert teller.link_changed(state(LinkStatus.DOWN)) is None, "worse, but no news"
    assert [teller.frame_degraded() for _ in range(312)] == [None] * 312
    assert (
        teller.link_changed(state(LinkStatus.UP, away_s=84.2)) == "edge back after 84 s, 312 frames degraded"
    )
    assert teller.link_changed(state(LinkStatus.DOWN)) is not None, "the next loss is news again"


def test_frames_of_one_outage_are_not_counted_to_the_next() -> None:
    teller = OutageTeller()
    for frames in (3, 1):
        teller.link_changed(state(LinkStatus.DOWN))
        for _ in range(frames):
            teller.frame_degraded()
        said = teller.link_changed(state(LinkStatus.UP, away_s=2))
        assert said == f"edge back after 2 s, {frames} frames degraded"


def test_an_edge_that_was_never_there_is_told_with_the_first_frame_that_misses_it() -> None:
    teller = OutageTeller()
    assert teller.link_changed(state(LinkStatus.DOWN, is_first=True)) is None
    assert teller.frame_degraded() == "edge not reached yet, answering locally"
    assert teller.frame_degraded() is None
    assert (
        teller.link_changed(state(LinkStatus.UP, is_first=True)) == "edge reached, 2 frames degraded before"
    )


def test_a_frame_that_is_degraded_before_the_loss_is_known_counts_and_the_loss_says_why() -> None:
    teller = OutageTeller()
    teller.link_changed(state(LinkStatus.UP, is_first=True))
    assert teller.frame_degraded() is None, "it was reached before, and why it is lost is not known yet"
    assert teller.link_changed(state(LinkStatus.DOWN)) == "edge lost, answering locally: connection refused"
    assert teller.frame_degraded() is None
    assert teller.link_changed(state(LinkStatus.UP, away_s=3)) == "edge back after 3 s, 2 frames degraded"
