"""Several tiers above in order of preference: the first that answers is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fovea.core.arrays import ImageArray
from fovea.core.errors import DeadlineExceeded, Incompatible, Malformed, Overloaded, Unavailable
from fovea.core.hard_case import HardCase
from fovea.link.link import Link, LinkState, LinkStatus, Listener, StateKeeper
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion

Answer = TypeVar("Answer")
Elsewhere = Unavailable | Overloaded | Incompatible
"""What one says and another may not."""

_WAY_OUT_S = 0.95
_ORDER = {LinkStatus.UP: 0, LinkStatus.POOR: 1, LinkStatus.DOWN: 2}


class Upstreams:
    """A Link to the first of several links that may be asked; the next one is tried, in the time that is left, when
    that one turns out to be gone or full. It is up while one of them is, and owns them: `close` closes all."""

    def __init__(self, links: Sequence[Link]) -> None:
        """`links`: the preferred one first. Raises Malformed when there is none."""
        if not links:
            raise Malformed("upstreams: expected at least one, got none")
        self._links = tuple(links)
        # Held while listeners are called, so that each hears all changes in order.
        self._telling = threading.RLock()
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._keeper = StateKeeper(time.monotonic(), "not asked yet")
        for link in self._links:
            link.listen(self._one_has_changed)
        self._look_for_changes()

    @property
    def state(self) -> LinkState:
        """Of all together; the reason is the newest of each, for a link that stays down tells nobody of a new one."""
        with self._lock:
            state = self._keeper.state
        if state.status is LinkStatus.UP:
            return state
        return replace(state, reason=_reasons([link.state for link in self._links]))

    @property
    def may_ask(self) -> bool:
        return any(link.may_ask for link in self._links)

    @property
    def is_busy(self) -> bool:
        return not self.may_ask and any(link.is_busy for link in self._links)

    @property
    def round_trip_ms(self) -> float | None:
        return self._preferred().round_trip_ms

    @property
    def takes_mosaics(self) -> bool:
        """Of the link that would be asked now."""
        return self._preferred().takes_mosaics

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        """As they go to the link that would be asked now; `ask` encodes raw pixels anew for one that wants a file."""
        return self._preferred().encode(pixels)

    def listen(self, listener: Listener) -> None:
        """Changes of all together: that one stands in for another is none."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        """As `Link.ask`. A late answer is not asked for elsewhere: its time is over. Who takes no mosaics is passed
        over with one."""

        def ask(link: Link, left_s: float) -> DetectAnswer:
            image = question.image
            fitted = question if isinstance(image, bytes) else replace(question, image=link.encode(image))
            return link.ask(fitted, left_s)

        def is_fit(link: Link) -> bool:
            return link.may_ask and (question.mosaic is None or link.takes_mosaics)

        return self._first_answer(ask, timeout_s, self._in_order(is_fit))

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        """As `Link.deliver`. One that takes no cases at all (Incompatible) is passed over, too."""
        return self._first_answer(
            lambda link, left_s: link.deliver(case, left_s),
            timeout_s,
            self._in_order(lambda link: link.state.is_up),
            (Unavailable, Overloaded, Incompatible),
        )

    def close(self) -> None:
        """All at once: one that is slow to end does not hold up the others."""
        closers = [threading.Thread(target=link.close, daemon=True) for link in self._links]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(_WAY_OUT_S)

    def _in_order(self, is_fit: Callable[[Link], bool]) -> list[Link]:
        """The fit ones, or all where none is: then the refusal of each is the answer."""
        return [link for link in self._links if is_fit(link)] or list(self._links)

    def _preferred(self) -> Link:
        return self._in_order(lambda link: link.may_ask)[0]

    def _first_answer(
        self,
        call: Callable[[Link, float], Answer],
        timeout_s: float,
        links: Sequence[Link],
        also: tuple[type[Elsewhere], ...] = (Unavailable, Overloaded),
    ) -> Answer:
        """Of the first link that gives one; the next is tried after an error of the kinds `also`."""
        ends_s = time.monotonic() + timeout_s
        failures: list[Elsewhere] = []
        for link in links:
            try:
                answer = call(link, ends_s - time.monotonic())
            except also as failure:
                failures.append(failure)
            except DeadlineExceeded as error:
                self._has_missed()
                # No time was left for this one: what the one before said tells more.
                raise (failures[-1] if failures else error) from error
            else:
                with self._lock:
                    self._keeper.answered()
                return answer
        self._has_missed()
        raise _most_telling(failures)

    def _has_missed(self) -> None:
        with self._lock:
            self._keeper.missed()

    def _one_has_changed(self, _: LinkState) -> None:
        self._look_for_changes()

    def _look_for_changes(self) -> None:
        with self._telling:
            states = [link.state for link in self._links]
            best = min(states, key=lambda state: _ORDER[state.status])
            with self._lock:
                reason = best.reason if best.status is LinkStatus.UP else _reasons(states)
                change = self._keeper.now_is(best.status, reason, time.monotonic())
                listeners = self._listeners
            if change is not None:
                for listener in listeners:
                    listener(change)


def _reasons(states: Sequence[LinkState]) -> str:
    return "; ".join(dict.fromkeys(state.reason for state in states))


def _most_telling(failures: Sequence[Elsewhere]) -> Elsewhere:
    """One that is full is nearer to an answer than one that is gone, and that one nearer than one that never takes
    such a thing; of several full ones the first to have room."""
    full = [failure for failure in failures if isinstance(failure, Overloaded)]
    if not full:
        kind = Unavailable if any(isinstance(failure, Unavailable) for failure in failures) else Incompatible
        return kind("; ".join(str(failure) for failure in failures))
    return min(
        full, key=lambda failure: float("inf") if failure.retry_after_s is None else failure.retry_after_s
    )
