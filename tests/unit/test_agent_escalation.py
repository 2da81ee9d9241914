"""Questions to the tier above: capped, timed, counted however they end, and kept as cases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from edge_agent.case_keeping import CaseDraft, CaseKeeping
from edge_agent.escalation import ENDINGS, Ended, Errand, Escalation, ending_of
from edge_agent.observing import ErrandEnding
from fovea.core import errors
from fovea.core.detections import Detections
from fovea.core.errors import BrokenError, FoveaError, Unavailable
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from fovea.runtime.images import decode_image
from protos.calls import DetectAnswer, DetectQuestion
from tests.agent_fakes import FakeLink, FakeObserver, FakeShelf, edge_answer, frame
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector

LIVENESS_S = 20.0


class Office:
    """An escalation with a fake link and a shelf; what it gives back is kept in `ended`."""

    def __init__(
        self, say: Callable[[DetectQuestion], DetectAnswer | FoveaError] = edge_answer, max_in_flight: int = 2
    ) -> None:
        self.clock, self.observer, self.shelf = FakeClock(), FakeObserver(), FakeShelf()
        self.link = FakeLink(say)
        self.keeping = CaseKeeping(self.shelf, jpeg_quality=90)
        self.ended: list[Ended] = []
        self.escalation = Escalation(
            self.link,
            self.keeping,
            max_in_flight,
            self.clock,
            self.ended.append,
            self.observer,
        )
        self.keeping.start()
        self.escalation.start()

    def __enter__(self) -> Office:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.escalation.stop(LIVENESS_S)
        assert self.keeping.stop(LIVENESS_S)

    def errand(self, sequence: int = 0, time_left_s: float = 1.0, is_audit: bool = False) -> Errand:
        seen = frame(self.clock, sequence)
        own = FakeDetector().detect([seen.pixels])[0].detections
        reasons = (Reason.AUDIT,) if is_audit else (Reason.WEAK_BOXES,)
        return Errand(
            seen,
            TierAnswer(Tier.AGENT, own, FakeDetector().labels),
            RouteDecision(Route.EDGE, reasons, send_probability=0.25 if is_audit else 1.0),
            self.clock.monotonic_s() + time_left_s,
        )

    def endings(self, number: int) -> list[ErrandEnding]:
        until(lambda: len(self.ended) == number)
        return [seen.ending for seen in self.observer.errands]


def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + LIVENESS_S
    while not holds():
        assert time.monotonic() < ends_s, "it never came to hold"
        time.sleep(0.002)


def test_an_answer_comes_back_with_its_errand_and_the_bytes_it_took() -> None:
    with Office() as office:
        errand = office.errand()
        assert office.escalation.offer(errand)
        assert office.endings(1) == [ErrandEnding.ANSWERED]
        [ended] = office.ended
        assert ended.errand is errand and ended.answer is not None and ended.answer.revision == 1
        assert ended.sent_bytes == office.observer.errands[0].sent_bytes == errand.frame.pixels.nbytes
        assert ended.ending is ErrandEnding.ANSWERED and ended.ended_mono_s == office.clock.monotonic_s()
        assert ended.encode_s == 0.0


def test_offering_never_waits_and_more_than_the_cap_is_turned_away() -> None:
    with Office(max_in_flight=2) as office:
        office.link.open.clear()
        assert [office.escalation.offer(office.errand(number)) for number in range(3)] == [True, True, False]
        assert office.escalation.in_flight == 2
        office.link.open.set()
        assert office.endings(2) == [ErrandEnding.ANSWERED] * 2
        assert office.escalation.in_flight == 0
        assert office.escalation.offer(office.errand())


def test_the_disk_takes_no_place_of_a_question() -> None:
    with Office(max_in_flight=1) as office:
        goes_on = threading.Event()
        office.shelf.put = lambda case: goes_on.wait(LIVENESS_S)  # type: ignore[method-assign]
        for number in range(3):
            until(lambda number=number: office.escalation.offer(office.errand(number)))  # type: ignore[misc]
        assert office.endings(3) == [ErrandEnding.ANSWERED] * 3
        goes_on.set()


def test_a_question_whose_time_is_over_is_not_sent() -> None:
    with Office() as office:
        assert office.escalation.offer(office.errand(time_left_s=0.0))
        assert office.endings(1) == [ErrandEnding.EXPIRED]
        assert office.link.asked == [] and office.observer.errands[0].sent_bytes == 0


def test_a_question_whose_time_passes_while_it_is_encoded_is_not_sent() -> None:
    with Office() as office:
        encode = office.link.encode

        def slow_encode(pixels: object) -> object:
            office.clock.advance(2.0)
            return encode(pixels)  # type: ignore[arg-type]

        office.link.encode = slow_encode  # type: ignore[method-assign, assignment]
        assert office.escalation.offer(office.errand(time_left_s=1.0))
        assert office.endings(1) == [ErrandEnding.EXPIRED]
        assert office.link.asked == []


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (errors.DeadlineExceeded("late"), ErrandEnding.LATE),
        (errors.Overloaded("full", 0.1), ErrandEnding.REFUSED),
        (errors.Unavailable("gone"), ErrandEnding.UNREACHED),
        (errors.TooLarge("big"), ErrandEnding.REJECTED),
        (errors.Cancelled("given up"), ErrandEnding.CANCELLED),
        (errors.DetectorFailed("no memory"), ErrandEnding.FAILED),
    ],
)
def test_every_error_of_the_link_is_an_ending_with_a_name(error: FoveaError, ending: ErrandEnding) -> None:
    with Office(say=lambda _: error) as office:
        assert office.escalation.offer(office.errand())
        assert office.endings(1) == [ending]
        assert office.ended[0].answer is None and office.ended[0].ending is ending


def test_no_error_of_the_tree_is_without_an_ending() -> None:
    def leaves(kind: type[FoveaError]) -> list[type[FoveaError]]:
        below = kind.__subclasses__()
        return [kind] if not below else [leaf for each in below for leaf in leaves(each)]

    known = tuple(kind for kind, _ in ENDINGS)
    assert [kind for kind in leaves(FoveaError) if not issubclass(kind, known)] == []
    assert ending_of(BrokenError("disk")) is ErrandEnding.FAILED


def test_a_bug_in_asking_is_counted_and_the_next_question_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def say(question: DetectQuestion) -> DetectAnswer:
        if len(office.link.asked) == 1:
            raise RuntimeError("a bug")
        return edge_answer(question)

    with Office(max_in_flight=1) as office:
        office.link.say = say
        for number in range(2):
            until(lambda number=number: office.escalation.offer(office.errand(number)))  # type: ignore[misc]
        assert office.endings(2) == [ErrandEnding.FAILED, ErrandEnding.ANSWERED]
        assert office.escalation.in_flight == 0
    assert "a bug" in caplog.text


# Cases


def test_the_case_of_an_answered_question_holds_what_each_tier_saw() -> None:
    with Office() as office:
        errand = office.errand(is_audit=True)
        office.escalation.offer(errand)
        until(lambda: len(office.shelf.cases) == 1)
        [case] = office.shelf.cases
        assert [answer.tier for answer in case.answers] == [Tier.AGENT, Tier.EDGE]
        assert case.answers[0] is errand.own
        assert (case.reasons, case.send_probability) == ((Reason.AUDIT,), 0.25)
        assert (case.frame_id, case.captured_at) == (errand.frame.id, errand.frame.captured_at)
        assert decode_image(case.jpeg).shape == errand.frame.pixels.shape, (
            "encoded here: raw pixels were sent"
        )


def test_a_question_without_an_answer_is_a_case_with_the_own_one() -> None:
    with Office(say=lambda _: Unavailable("gone")) as office:
        office.escalation.offer(office.errand())
        until(lambda: len(office.shelf.cases) == 1)
        assert [answer.tier for answer in office.shelf.cases[0].answers] == [Tier.AGENT]


def test_what_the_cloud_has_answered_is_kept_there_already() -> None:
    with Office(say=lambda question: edge_answer(question, 2)) as office:
        office.escalation.offer(office.errand(0))
        office.escalation.offer(office.errand(1, is_audit=True))
        office.endings(2)
    assert [case.frame_id.sequence for case in office.shelf.cases] == [1], "but audits are kept always"


def test_stopping_gives_up_what_is_under_way_and_keeps_it_as_cases() -> None:
    office = Office(max_in_flight=1)
    office.link.say = lambda _: Unavailable("the link was closed")
    office.link.open.clear()
    assert office.escalation.offer(office.errand(0))
    until(lambda: len(office.link.asked) == 1)
    assert office.escalation.stop(LIVENESS_S)
    assert office.keeping.stop(LIVENESS_S)
    assert office.link.is_closed
    assert office.endings(1) == [ErrandEnding.CANCELLED]
    assert [case.frame_id.sequence for case in office.shelf.cases] == [0]
    assert not office.escalation.offer(office.errand(1)), "nothing is taken any more"


# Keeping


def draft(clock: FakeClock, sequence: int = 0) -> CaseDraft:
    seen = frame(clock, sequence)
    nothing = Detections.empty(seen.size, model_ref())
    own = TierAnswer(Tier.AGENT, nothing, FakeDetector().labels)
    return CaseDraft(seen, (own,), ("weak_boxes",), 1.0)


def test_a_shelf_without_room_is_counted() -> None:
    shelf = FakeShelf(has_room=False)
    keeping = CaseKeeping(shelf, 90)
    keeping.start()
    assert keeping.keep(draft(FakeClock()))
    assert keeping.stop(LIVENESS_S)
    assert keeping.counts == {"kept": 0, "no_room": 1, "dropped": 0, "failed": 0}


def test_a_slow_disk_makes_nobody_wait_and_what_is_too_much_is_dropped_and_counted() -> None:
    goes_on = threading.Event()

    class SlowShelf(FakeShelf):
        def put(self, case: HardCase) -> bool:
            assert goes_on.wait(LIVENESS_S)
            return super().put(case)

    keeping = CaseKeeping(SlowShelf(), 90)
    keeping.start()
    taken = [keeping.keep(draft(FakeClock(), number)) for number in range(40)]
    assert 0 < taken.count(False) < 40
    goes_on.set()
    assert keeping.stop(LIVENESS_S)
    assert keeping.counts["kept"] == taken.count(True)
    assert keeping.counts["dropped"] == taken.count(False)


def test_a_shelf_that_breaks_loses_one_case_and_not_the_next() -> None:
    class BrokenShelf(FakeShelf):
        def put(self, case: HardCase) -> bool:
            if case.frame_id.sequence == 0:
                raise RuntimeError("a bug")
            return super().put(case)

    shelf = BrokenShelf()
    keeping = CaseKeeping(shelf, 90)
    keeping.start()
    for number in range(2):
        keeping.keep(draft(FakeClock(), number))
    assert keeping.stop(LIVENESS_S)
    assert [case.frame_id.sequence for case in shelf.cases] == [1]
    assert keeping.counts["failed"] == 1


def test_without_a_shelf_nothing_is_kept() -> None:
    keeping = CaseKeeping(None, 90)
    keeping.start()
    assert not keeping.keep(draft(FakeClock()))
    assert keeping.stop(LIVENESS_S)
