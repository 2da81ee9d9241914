"""Brings spooled cases to the tier above, one at a time, slowly, and only while nobody waits for an answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from fovea.core.errors import (
    BrokenError,
    Cancelled,
    DeadlineExceeded,
    FoveaError,
    Incompatible,
    Malformed,
    NotAllowed,
    Overloaded,
    RejectedError,
    RetryableError,
)
from fovea.core.hard_case import HardCase
from fovea.link.case_spool import CaseSpool
from fovea.link.link import LinkState, LinkStatus
from protos.calls import DeliveryReceipt

_log = logging.getLogger(__name__)

_MOST_DOUBLINGS = 3

Deliver = Callable[[HardCase, float], DeliveryReceipt]
"""As `Link.deliver`: the case, and the seconds it may take."""


@dataclass(frozen=True, slots=True)
class UploaderSettings:
    """bytes_per_s       in the long run; one case always goes as a whole
    timeout_s         for one delivery; doubled up to three times where that was not enough
    first_pause_s, longest_pause_s
                      after a failed delivery, doubled with each that fails in a row
    busy_poll_s       how often it looks whether it may go on
    longest_busy_s    when live questions left no room for so long, one case goes all the same: a camera that always
                      asks must not fill its spool for ever
    tries             so often a case is tried for which no answer comes in time, or at which the tier above breaks,
                      before others go first for a while
    """

    bytes_per_s: float = 250_000.0
    timeout_s: float = 30.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    busy_poll_s: float = 0.1
    longest_busy_s: float = 10.0
    tries: int = 3

    def __post_init__(self) -> None:
        if not (
            self.bytes_per_s > 0
            and self.timeout_s > 0
            and 0 < self.first_pause_s <= self.longest_pause_s < float("inf")
            and self.busy_poll_s > 0
            and self.longest_busy_s > 0
            and self.tries >= 1
        ):
            raise Malformed(f"uploader settings: expected numbers above 0, got {self}")


@dataclass(frozen=True, slots=True)
class UploadCounts:
    """delivered: new to the tier above. known_already: it had them. failed: tries that will be repeated. set_aside:
    cases it will never take. sent_bytes: of pictures, delivered."""

    delivered: int = 0
    known_already: int = 0
    failed: int = 0
    set_aside: int = 0
    sent_bytes: int = 0


class CaseUploader:
    """One daemon thread from `start` to `stop`. A case leaves the spool's queue only when the tier above has said
    that it has it, so it may come twice and is never lost; it is tried for ever, unless the case itself is refused.
    """

    def __init__(
        self,
        spool: CaseSpool,
        deliver: Deliver,
        settings: UploaderSettings = UploaderSettings(),
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_busy`: whether an answer is waited for, which goes first."""
        self._spool = spool
        self._deliver = deliver
        self._settings = settings
        self._is_busy = is_busy
        self._counts = UploadCounts()
        self._has_work = threading.Event()
        self._stop = threading.Event()
        self._next_mono_s = 0.0
        self._pause_s = settings.first_pause_s
        self._is_backing_off = False
        self._late_in_a_row = 0
        self._tries: dict[str, int] = {}
        self._is_turned_away = False
        self._free_mono_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="case uploader", daemon=True)

    @property
    def counts(self) -> UploadCounts:
        return self._counts

    def start(self) -> None:
        self._spool.listen(self._has_work.set)
        self._has_work.set()
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Waits `timeout_s` at most for a delivery under way (closing the link ends one); its case stays spooled."""
        self._stop.set()
        self._has_work.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def link_changed(self, state: LinkState) -> None:
        """For `Link.listen`: whoever is there again is not kept waiting by the pauses after failures of before."""
        if state.status is LinkStatus.UP and self._is_backing_off:
            self._pause_s = self._settings.first_pause_s
            self._next_mono_s = 0.0

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:
                _log.exception("case uploader: failed, and goes on")
                self._back_off(None)

    def _step(self) -> None:
        """Waits until it may, then delivers one case."""
        if self._is_busy() and time.monotonic() < self._free_mono_s + self._settings.longest_busy_s:
            self._stop.wait(self._settings.busy_poll_s)
            return
        self._free_mono_s = time.monotonic()
        pause_s = self._next_mono_s - time.monotonic()
        if pause_s > 0:
            # In parts, so that no stop and no clock keeps it.
            self._stop.wait(min(pause_s, 1.0))
            return
        self._has_work.clear()
        case = self._next_case()
        if case is None:
            self._has_work.wait(self._settings.longest_pause_s)
            return
        self._upload(case)

    def _next_case(self) -> HardCase | None:
        """The oldest; those that failed too often only when there is no other."""
        put_off = {case_id for case_id, tries in self._tries.items() if tries >= self._settings.tries}
        found = self._spool.oldest(1, skip=put_off)
        if not found and put_off:
            self._tries.clear()
            found = self._spool.oldest(1)
        return found[0] if found else None

    def _upload(self, case: HardCase) -> None:
        begun_s = time.monotonic()
        timeout_s = self._settings.timeout_s * 2 ** min(self._late_in_a_row, _MOST_DOUBLINGS)
        try:
            receipt = self._deliver(case, timeout_s)
        except DeadlineExceeded as error:
            self._late_in_a_row += 1
            self._failed_with_it(case, error)
        except BrokenError as error:
            self._failed_with_it(case, error)
        except (NotAllowed, Incompatible) as error:
            # About the two of us, not about this case: a person has to mend it, so a person has to hear of it.
            self._say_turned_away(error)
            self._failed(case, error)
        except (RetryableError, Cancelled) as error:
            self._failed(case, error)
        except RejectedError as error:
            _log.warning("case %s is refused and set aside: %s", case.id, error)
            self._spool.set_aside(case.id)
            self._counts = replace(self._counts, set_aside=self._counts.set_aside + 1)
        else:
            self._succeeded(case, receipt, begun_s)

    def _succeeded(self, case: HardCase, receipt: DeliveryReceipt, begun_s: float) -> None:
        if receipt.id != case.id:
            self._failed(case, Incompatible(f"a receipt for {receipt.id}, which was not sent"))
            return
        self._spool.mark_delivered(case.id)
        if self._is_turned_away:
            self._is_turned_away = False
            _log.info("the tier above takes cases again")
        self._tries.pop(case.id, None)
        self._late_in_a_row = 0
        self._is_backing_off = False
        self._pause_s = self._settings.first_pause_s
        self._next_mono_s = begun_s + len(case.jpeg) / self._settings.bytes_per_s
        counts = self._counts
        self._counts = replace(
            counts,
            delivered=counts.delivered + receipt.is_new,
            known_already=counts.known_already + (not receipt.is_new),
            sent_bytes=counts.sent_bytes + len(case.jpeg),
        )

    def _say_turned_away(self, error: FoveaError) -> None:
        """Once, until a case is taken: the counts hold the rest."""
        if not self._is_turned_away:
            self._is_turned_away = True
            _log.warning(
                "the tier above takes no cases from here, they are kept and offered again: %s "
                "(an edge takes them when its configuration says cloud.spool)",
                error,
            )

    def _failed_with_it(self, case: HardCase, error: FoveaError) -> None:
        """It may be this case at which the tier above fails."""
        self._tries[case.id] = self._tries.get(case.id, 0) + 1
        self._failed(case, error)

    def _failed(self, case: HardCase, error: FoveaError) -> None:
        _log.debug("case %s: %s", case.id, error)
        self._counts = replace(self._counts, failed=self._counts.failed + 1)
        self._back_off(error.retry_after_s if isinstance(error, Overloaded) else None)

    def _back_off(self, at_least_s: float | None) -> None:
        self._is_backing_off = True
        self._next_mono_s = time.monotonic() + max(self._pause_s, at_least_s or 0.0)
        self._pause_s = min(self._pause_s * 2, self._settings.longest_pause_s)
