"""What is foretold of the tier above: from answers and from silence, and for how long it is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_agent.escalation import Ended, Errand
from edge_agent.foresight import Foresight
from edge_agent.observing import ErrandEnding
from fovea.core.detections import Detections
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.latency import EwmaPredictor, EwmaSettings
from fovea.core.lstm_latency import LstmPredictor, LstmWeights
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from protos.calls import DetectAnswer, Timings
from tests.agent_fakes import EDGE_REF, frame
from tests.fakes import FAKE_REF, FakeClock

LABELS = LabelSet.from_names(["person"])


def errand(asked_mono_s: float = 100.0, route: Route = Route.EDGE, in_flight: int = 0) -> Errand:
    own = Detections.empty(ImageSize(64, 48), FAKE_REF)
    decision = RouteDecision(route, (Reason.EXPECTED_GAIN,))
    seen = frame(FakeClock(monotonic_s=asked_mono_s))
    return Errand(
        seen, TierAnswer(Tier.AGENT, own, LABELS), decision, asked_mono_s + 1.5, asked_mono_s, in_flight
    )


def answer(revision: int = 1, above_ms: float = 0.0) -> DetectAnswer:
    seen = Detections.empty(ImageSize(64, 48), EDGE_REF)
    return DetectAnswer(seen, EDGE_REF, LABELS, revision=revision, timings=Timings(above_ms=above_ms))


def answered(took_s: float, said: DetectAnswer | None = None, asked_mono_s: float = 100.0) -> Ended:
    return Ended(
        errand(asked_mono_s),
        said or answer(),
        ErrandEnding.ANSWERED,
        asked_mono_s + took_s,
        sent_bytes=20_000,
        encode_s=0.004,
    )


def foresight(stale_after_s: float = 5.0) -> Foresight:
    return Foresight(EwmaPredictor(EwmaSettings(alpha=1.0)), stale_after_s)


def test_nothing_is_foretold_of_a_tier_that_never_answered() -> None:
    assert foresight().expected_ms(Tier.EDGE, 100.0, 0) is None
    assert foresight().figures() == {}


def test_an_answer_tells_how_long_the_next_one_takes_and_what_a_question_weighs() -> None:
    seer = foresight()
    seer.ended(answered(0.25))
    assert seer.expected_ms(Tier.EDGE, 100.5, 0) == pytest.approx(250)
    assert seer.question_bytes == 20_000 and seer.encode_ms == pytest.approx(4.0)
    assert seer.figures() == {"edge_ms": 250.0, "edge_ms_p95": 500.0}


def test_what_an_edge_waited_for_the_cloud_is_told_of_the_cloud_and_not_of_the_edge() -> None:
    seer = foresight()
    seer.ended(answered(0.5, answer(revision=2, above_ms=380.0)))
    assert seer.expected_ms(Tier.EDGE, 101.0, 0) == pytest.approx(120)
    assert seer.expected_ms(Tier.CLOUD, 101.0, 0) == pytest.approx(500)


def test_a_cloud_that_is_asked_itself_is_followed_as_the_cloud() -> None:
    seer = foresight()
    asked = Ended(errand(route=Route.CLOUD), answer(2), ErrandEnding.ANSWERED, 100.3)
    seer.ended(asked)
    assert seer.expected_ms(Tier.CLOUD, 101.0, 0) == pytest.approx(300)
    assert seer.expected_ms(Tier.EDGE, 101.0, 0) is None


def test_silence_until_the_deadline_tells_that_it_takes_longer_than_this() -> None:
    seer = foresight()
    seer.ended(Ended(errand(), None, ErrandEnding.LATE, 101.5))
    assert seer.expected_ms(Tier.EDGE, 102.0, 0) == pytest.approx(1500)


def test_a_silence_that_was_shorter_than_expected_tells_nothing() -> None:
    seer = foresight()
    seer.ended(answered(0.4))
    seer.ended(Ended(errand(101.0), None, ErrandEnding.LATE, 101.05))
    assert seer.expected_ms(Tier.EDGE, 101.1, 0) == pytest.approx(400)
    assert seer.expected_ms(Tier.EDGE, 105.5, 0) is None, "nor does it make the forecast any fresher"


@pytest.mark.parametrize("ending", [each for each in ErrandEnding if each is not ErrandEnding.LATE])
def test_an_end_without_an_answer_that_is_no_silence_tells_nothing(ending: ErrandEnding) -> None:
    seer = foresight()
    seer.ended(Ended(errand(), None, ending, 100.01))
    assert seer.expected_ms(Tier.EDGE, 100.02, 0) is None


def test_a_forecast_is_not_believed_for_ever_so_that_it_can_be_corrected() -> None:
    seer = foresight(stale_after_s=5.0)
    seer.ended(answered(1.5))
    assert seer.expected_ms(Tier.EDGE, 106.4, 0) == pytest.approx(1500)
    assert seer.expected_ms(Tier.EDGE, 106.6, 0) is None
    seer.ended(answered(0.1, asked_mono_s=107.0))
    assert seer.expected_ms(Tier.EDGE, 107.2, 0) == pytest.approx(100)


def test_a_fitted_predictor_hears_how_many_questions_were_under_way() -> None:
    cells, units = 1, 1
    in_flight_only = np.zeros((cells + 3, units), np.float32)
    in_flight_only[cells, 0] = 0.5
    weights = LstmWeights(
        alpha=0.5,
        kernel=np.zeros((4 + cells, 4 * cells), np.float32),
        offsets=np.zeros(4 * cells, np.float32),
        head=in_flight_only,
        head_offsets=np.zeros(units, np.float32),
        out=np.ones(units, np.float32),
        out_offset=0.0,
    )
    seer = Foresight(LstmPredictor(weights))
    seer.ended(answered(0.1))
    alone, crowded = (seer.expected_ms(Tier.EDGE, 100.2, number) for number in (0, 8))
    assert alone == pytest.approx(100, rel=0.01)
    assert crowded is not None and crowded > 1.5 * 100


def test_a_clock_that_gives_no_time_between_asking_and_hearing_is_no_error() -> None:
    seer = foresight()
    seer.ended(replace(answered(0.0), sent_bytes=0, encode_s=None))
    assert seer.expected_ms(Tier.EDGE, 100.0, 0) == pytest.approx(0.01)
    assert (seer.question_bytes, seer.encode_ms) == (0, 0.0)
