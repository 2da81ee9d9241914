"""Gone, or only slow: how a link is judged by the ends of its calls, without a network."""

from __future__ import annotations

import pytest

from fovea.core.errors import (
    Cancelled,
    DeadlineExceeded,
    DetectorFailed,
    FoveaError,
    Incompatible,
    Malformed,
    NotAllowed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fovea.link.breaker import BreakerSettings
from fovea.link.calling import Failure
from fovea.link.link import LinkStatus
from fovea.link.link_judge import JudgeSettings, LinkJudge, Permit, Verdict, verdict_of

SETTINGS = JudgeSettings(
    reach=BreakerSettings(failures_in_a_row=3, first_pause_s=1.0, longest_pause_s=4.0),
    pace=BreakerSettings(failures_in_a_row=4, first_pause_s=1.0, longest_pause_s=4.0),
    check_every_s=10.0,
    recheck_s=0.25,
)


def judge_that_is_up(now_s: float = 0.0) -> LinkJudge:
    judge = LinkJudge(SETTINGS, now_s)
    judge.check_succeeded(judge.admit_check(now_s), now_s)
    [change] = judge.take_changes()
    assert (change.status, change.is_first) == (LinkStatus.UP, True)
    return judge


def permit_of(judge: LinkJudge, now_s: float) -> Permit:
    permit = judge.admit_question(now_s)
    assert permit is not None
    return permit


def end(judge: LinkJudge, verdict: Verdict, now_s: float, times: int = 1) -> None:
    for _ in range(times):
        judge.ended(permit_of(judge, now_s), verdict, now_s, "the reason")


def statuses(judge: LinkJudge) -> list[LinkStatus]:
    return [change.status for change in judge.take_changes()]


@pytest.mark.parametrize(
    ("error", "is_from_server", "verdict"),
    [
        (DeadlineExceeded("x"), False, Verdict.LATE),
        (DeadlineExceeded("x"), True, Verdict.UNFIT),
        (Unavailable("x"), False, Verdict.UNREACHABLE),
        (Unavailable("x"), True, Verdict.UNFIT),
        (DetectorFailed("x"), False, Verdict.UNREACHABLE),
        (DetectorFailed("x"), True, Verdict.UNFIT),
        (Cancelled("x"), False, Verdict.UNREACHABLE),
        (Incompatible("x"), False, Verdict.UNFIT),
        (NotAllowed("x"), True, Verdict.UNFIT),
        (Overloaded("x"), True, Verdict.BESIDE_IT),
        (Malformed("x"), True, Verdict.BESIDE_IT),
        (TooLarge("x"), False, Verdict.BESIDE_IT),
    ],
)
def test_every_error_says_something_about_the_link(
    error: FoveaError, is_from_server: bool, verdict: Verdict
) -> None:
    assert verdict_of(Failure(error, is_from_server)) is verdict


def test_it_begins_down_and_is_up_with_the_first_check_that_is_answered() -> None:
    judge = LinkJudge(SETTINGS, 100.0)
    assert judge.state.status is LinkStatus.DOWN and not judge.state.is_up
    assert judge.admit_question(100.0) is None
    assert judge.check_due_mono_s() == 100.0
    judge.check_failed(judge.admit_check(100.0), 100.5, "refused")
    assert judge.take_changes() == [], "down it was before"
    assert (judge.state.reason, judge.state.since_mono_s) == ("refused", 100.0), "the newest reason shows"
    judge.check_succeeded(judge.admit_check(101.5), 101.5)
    [change] = judge.take_changes()
    assert change.is_up and change.is_first
    assert (change.since_mono_s, change.away_s, change.missed_calls) == (101.5, 1.5, 1)


def test_calls_that_could_not_be_made_mean_down_once_and_the_way_back_says_for_how_long() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.UNREACHABLE, 10.0, 3)
    [lost] = judge.take_changes()
    assert (lost.status, lost.reason) == (LinkStatus.DOWN, "the reason")
    assert (lost.away_s, lost.missed_calls, lost.is_first) == (0.0, 3, False)
    for _ in range(7):
        assert judge.admit_question(11.0) is None
    judge.check_failed(judge.admit_check(11.0), 12.0, "refused")
    assert judge.take_changes() == []
    judge.check_succeeded(judge.admit_check(94.0), 94.0)
    [back] = judge.take_changes()
    assert (back.status, back.away_s, back.missed_calls) == (LinkStatus.UP, 84.0, 10)
    end(judge, Verdict.UNREACHABLE, 95.0, 3)
    assert judge.take_changes()[0].missed_calls == 3, "those of the last time are told already"


def test_late_answers_of_a_server_that_is_there_are_poor_and_never_down() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.LATE, 1.0, 4)
    assert not judge.may_ask(1.0)
    assert judge.take_changes() == [], "a check will tell poor from down"
    assert judge.check_due_mono_s() <= 1.0
    judge.check_succeeded(judge.admit_check(1.0), 1.1)
    assert statuses(judge) == [LinkStatus.POOR]
    assert judge.state.is_up, "asking makes sense, now and then"
    now_s = 1.0
    for _ in range(20):
        now_s += 4.0
        end(judge, Verdict.LATE, now_s)
        assert judge.admit_question(now_s) is None, "one trial for each pause"
        judge.check_succeeded(judge.admit_check(now_s), now_s)
    assert judge.take_changes() == []
    end(judge, Verdict.ANSWERED, now_s + 4.0)
    [back] = judge.take_changes()
    assert (back.status, back.away_s, back.missed_calls) == (LinkStatus.UP, now_s + 4.0 - 1.1, 44)


def test_late_answers_and_a_check_that_fails_mean_that_nobody_is_there() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.LATE, 1.0, 4)
    judge.check_failed(judge.admit_check(1.0), 3.0, "no answer")
    assert statuses(judge) == [LinkStatus.DOWN]
    judge.check_succeeded(judge.admit_check(4.0), 4.0)
    assert statuses(judge) == [LinkStatus.UP]
    assert judge.may_ask(4.0), "what was held against it is forgotten"


def test_one_late_answer_and_checks_that_go_on_failing_mean_down_without_another_question() -> None:
    judge, now_s = judge_that_is_up(), 1.0
    end(judge, Verdict.LATE, now_s)
    for _ in range(3):
        now_s = max(now_s, judge.check_due_mono_s()) + 2.0
        judge.check_failed(judge.admit_check(now_s), now_s, "no answer")
    assert statuses(judge) == [LinkStatus.DOWN]
    assert now_s < 8.0


def test_late_uploads_say_nothing_about_the_pace_of_answers() -> None:
    judge = judge_that_is_up()
    for _ in range(10):
        permit = judge.admit_delivery()
        assert permit is not None
        judge.ended(permit, Verdict.LATE, 1.0, "late")
    assert judge.may_ask(1.0)
    assert judge.check_due_mono_s() <= 1.0, "but it is looked after"


def test_a_server_that_says_it_cannot_is_poor_and_uploads_go_on() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.UNFIT, 1.0, 4)
    assert statuses(judge) == [LinkStatus.POOR]
    assert judge.admit_delivery() is not None


def test_a_busy_server_is_up_and_left_alone_for_as_long_as_it_asks() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.BESIDE_IT, 1.0, 50)
    judge.hold(3.0)
    judge.hold(2.0)
    assert judge.state.status is LinkStatus.UP
    assert not judge.may_ask(2.9) and judge.may_ask(3.0)


def test_a_call_from_before_the_loss_changes_nothing_afterwards() -> None:
    judge = judge_that_is_up()
    old = [permit_of(judge, 0.0) for _ in range(3)]
    end(judge, Verdict.UNREACHABLE, 1.0, 3)
    judge.ended(old[0], Verdict.ANSWERED, 1.5)
    judge.ended(old[1], Verdict.LATE, 1.5, "late")
    assert statuses(judge) == [LinkStatus.DOWN]
    judge.check_succeeded(judge.admit_check(2.0), 2.0)
    judge.ended(old[2], Verdict.UNREACHABLE, 2.1, "gone")
    assert statuses(judge) == [LinkStatus.UP]


def test_who_is_not_heard_of_is_looked_after_and_who_answers_is_left_in_peace() -> None:
    judge = judge_that_is_up(0.0)
    assert judge.check_due_mono_s() == 10.0
    end(judge, Verdict.ANSWERED, 7.0)
    assert judge.check_due_mono_s() == 17.0
    judge.check_failed(judge.admit_check(17.0), 17.5, "no answer")
    assert judge.check_due_mono_s() == 17.75
    assert judge.state.status is LinkStatus.UP, "one is not enough"


def test_a_question_that_was_never_sent_leaves_the_trial_to_another() -> None:
    judge = judge_that_is_up()
    end(judge, Verdict.UNFIT, 1.0, 4)
    judge.withdrawn(permit_of(judge, 2.0))
    assert judge.may_ask(2.0)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Malformed, match="recheck_s <= check_every_s"):
        JudgeSettings(check_every_s=0.1, recheck_s=0.2)
