"""Between the service and its tier: what becomes of a look, and who takes cases."""

from __future__ import annotations

from typing import Protocol

from fovea.core.arrays import ImageArray
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.merging import MergeSettings, merge_answers, merged_ref
from fovea.core.routing import Tier
from fovea.serving.worker import Looked
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion


class Answerer(Protocol):
    """Makes the answer to a question from what the model of this server saw."""

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        """The answer, early enough before `expires_mono_s` (time.monotonic) to be sent; `pixels` u8[H, W, 3] BGR are
        the picture of the question, a mosaic perhaps, and `looked` is about the frame all the same.

        Its timings are filled in by the service, but for `above_ms`. Raises FoveaErrors, which the caller is told.
        Cancelling the wait harms no other call.
        """
        ...


class CaseDesk(Protocol):
    """Takes cases that others send, and gives a receipt when they are safe."""

    async def deliver(self, case: HardCase) -> DeliveryReceipt:
        """The receipt, when the case is safe on disk; the same case again changes nothing. Raises FoveaErrors."""
        ...


class OwnAnswer:
    """An Answerer that says what the model saw and nothing else."""

    def __init__(self, revision: int) -> None:
        self._revision = revision

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        return DetectAnswer(
            detections=looked.inference.detections,
            model=looked.model,
            labels=looked.labels,
            candidates=looked.inference.candidates if question.wants_candidates else None,
            revision=self._revision,
        )


class MergedAnswer:
    """An Answerer that merges what the model saw with what the tiers of the question saw."""

    def __init__(self, tier: Tier, settings: MergeSettings = MergeSettings()) -> None:
        self._tier = tier
        self._settings = settings

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        return merged_answer(question, looked, all_answers(question, looked, self._tier), self._settings)


def all_answers(question: DetectQuestion, looked: Looked, tier: Tier) -> tuple[TierAnswer, ...]:
    """What each tier saw so far, lowest first: those of the question, and this server's look as that of `tier`, which
    replaces an older one."""
    parts_xyxy = None if question.mosaic is None else question.mosaic.regions_xyxy
    own = TierAnswer(tier, looked.inference.detections, looked.labels, parts_xyxy)
    others = [answer for answer in question.answers if answer.tier is not tier]
    return tuple(sorted([*others, own], key=lambda answer: answer.tier))


def merged_answer(
    question: DetectQuestion,
    looked: Looked,
    answers: tuple[TierAnswer, ...],
    settings: MergeSettings,
    is_degraded: bool = False,
) -> DetectAnswer:
    """`answers` (this server's look among them) as one answer, in the name of all their models. Raises Malformed when
    they are not about one image size."""
    name = merged_ref([answer.detections.model for answer in answers])
    return DetectAnswer(
        detections=merge_answers(answers, name, settings),
        model=looked.model,
        labels=looked.labels,
        candidates=looked.inference.candidates if question.wants_candidates else None,
        revision=max(answer.tier for answer in answers),
        is_degraded=is_degraded,
        answers=answers,
    )
