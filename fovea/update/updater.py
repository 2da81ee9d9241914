"""One device's way from what it is told to run to what it runs; every step may be cut short by a power cut."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from fovea.core.detections import ModelRef
from fovea.core.errors import Cancelled, FoveaError, RetryableError
from fovea.core.release import (
    Assignment,
    DesiredState,
    Health,
    ModelPin,
    Phase,
    ReportedState,
)
from fovea.runtime.store import BundleStore
from fovea.update.download import DownloadLimits
from fovea.update.floors import FloorFile, Floors
from fovea.update.installing import Installer, TrialFailed
from fovea.update.judging import check_desired
from fovea.update.ports import Host, Surroundings, Trial, Web
from fovea.update.probation import ProbationRules, Verdict, judge_probation
from fovea.update.record import Failed, Order, Record, RecordFile
from fovea.update.telling import Identity, Teller
from fovea.update.time_floor import TimeFloor
from fovea.update.trust import SignedRelease, Trust

_log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 15.0
_TIME_KEPT_EVERY: Final = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """jitter: by how much of itself the interval varies. hint_spread_s: a hint is followed within this time, at
    random, so that a whole fleet does not ask at once. boot_tries: at how many boots a model may be started during
    its probation. built_at: when this software was built; no time before it is believed."""

    base_url: str
    folder: Path
    pinned_root: bytes = field(repr=False)
    interval_s: float = 300.0
    jitter: float = 0.2
    hint_spread_s: float = 5.0
    check_every_s: float = 2.0
    boot_tries: int = 1
    built_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    download: DownloadLimits = field(default_factory=DownloadLimits)
    probation: ProbationRules = field(default_factory=ProbationRules)


@dataclass(slots=True)
class _Watch:
    """A probation that this process sees."""

    order: Order
    began: Health
    began_mono_s: float


class Updater:
    """For one thread, which calls `step` again and again; `look` may be called from any.

    `settings.folder` is on the disk of the store and is never wiped. Whatever goes wrong, what runs goes on running.
    """

    def __init__(
        self,
        identity: Identity,
        settings: UpdateSettings,
        store: BundleStore,
        web: Web,
        trial: Trial,
        host: Host,
        report: Callable[[ReportedState], None],
        surroundings: Surroundings,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._store = store
        self._host = host
        self._surroundings = surroundings
        self._floors = FloorFile(settings.folder)
        self._time = TimeFloor(surroundings.clock, settings.built_at)
        self._teller = Teller(identity, store, self._floors, host, surroundings.clock, self._time, report)
        self._record_file = RecordFile(settings.folder / "update.json")
        self._record = Record()
        self._trust = Trust(
            settings.folder / "metadata",
            settings.pinned_root,
            settings.base_url,
            web,
            surroundings.clock,
            self._time,
        )
        self._installer = Installer(
            settings.folder / "incoming",
            store,
            web,
            trial,
            identity.machine,
            settings.download,
            surroundings,
        )
        self._phase = Phase.IDLE
        self._reason: str | None = None
        self._watch: _Watch | None = None
        self._shadowed: tuple[ModelRef, float] | None = None
        self._hinted = threading.Event()
        self._has_resumed = False
        self._unreached = 0
        self._poll_due_mono_s = self._mono_s()

    def look(self) -> None:
        """Somebody says that there may be news. What the news are, only the signed state says."""
        self._hinted.set()

    def step(self) -> float:
        """Does what is due and says in how many seconds something may be due again. Raises nothing but Cancelled,
        which `Surroundings.pause` may raise in a download."""
        if not self._has_resumed:
            self._resume()
        if self._hinted.is_set():
            self._hinted.clear()
            spread_s = self._settings.hint_spread_s * self._surroundings.draw()
            self._poll_due_mono_s = min(self._poll_due_mono_s, self._mono_s() + spread_s)
        self._guarded(self._check_probation)
        if self._mono_s() >= self._poll_due_mono_s:
            is_reached = self._guarded(self._poll)
            self._unreached = 0 if is_reached else self._unreached + 1
            self._poll_due_mono_s = self._mono_s() + self._until_next_poll_s()
            self._tell(self._phase, self._reason)
        left_s = max(self._poll_due_mono_s - self._mono_s(), 0.0)
        return left_s if self._watch is None else min(left_s, self._settings.check_every_s)

    def _guarded(self, act: Callable[[], None]) -> bool:
        """False when nobody could be reached; all other errors are told, and what runs goes on."""
        try:
            act()
        except Cancelled:
            raise
        except RetryableError as error:
            _log.info("updates: %s", error)
            self._reason = str(error)
            return False
        except FoveaError as error:
            self._refuse(str(error))
        except OSError as error:
            self._refuse(f"the disk fails: {error}")
        return True

    def _resume(self) -> None:
        """Where a restart has left things. With a store that cannot be read there is nothing to resume."""
        self._has_resumed = True
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        self._record = self._record_file.read()
        self._guarded(self._resume_time)
        self._guarded(self._resume_policy)
        self._guarded(self._resume_order)

    def _resume_time(self) -> None:
        self._time.raise_to(self._floors.read().seen_at)

    def _resume_policy(self) -> None:
        if self._record.policy is not None:
            self._host.apply(self._record.policy)

    def _resume_order(self) -> None:
        order, pending = self._record.order, self._store.pending()
        if order is None:
            if pending is not None:
                self._take_back(None, "the way to it was not completed")
        elif pending is not None and pending.ref == order.pin.ref:
            self._begin_watch(order)
        elif self._store.stepped_back_from() == order.pin.ref:
            said = self._fail(order.pin, order.serial, "it did not survive its first starts", has_run=True)
            self._tell(Phase.STEPPED_BACK, said)
        elif self._store.current() == self._store.last_good() == order.pin.ref:
            self._settle(order)
        else:  # the power went before the switch: the next poll does it all again
            self._write(replace(self._record, order=None))

    def _poll(self) -> None:
        floors = self._floors.read()
        signed = self._trust.refresh()
        desired = signed.desired(self._identity.group)
        now = self._time.now()
        check_desired(desired, self._identity.group, self._identity.family, floors, now)
        # `now` is certain, too: the signatures that were just checked have not expired at it.
        latest = min(self._time.latest_credible(), signed.good_until)
        accepted = floors.with_accepted(desired, now, latest)
        is_same = accepted.groups == floors.groups
        if not is_same or accepted.seen_at - floors.seen_at > _TIME_KEPT_EVERY:
            self._floors.write(accepted)
        self._time.raise_to(accepted.seen_at)
        self._follow(signed, desired)

    def _follow(self, signed: SignedRelease, desired: DesiredState) -> None:
        assigned = desired.for_device(self._identity.device)
        self._apply_policy(assigned)
        if self._watch is not None and self._watch.order.pin.ref != assigned.run.ref:
            self._take_back(self._watch.order, f"order {desired.serial} takes it back")
        if self._watch is None:
            if self._store.current() == assigned.run.ref:
                self._tell(Phase.COMMITTED, None)
            elif not self._has_failed(assigned.run, desired.serial):
                self._install(signed, assigned.run, desired)
        else:
            self._phase, self._reason = Phase.PROBATION, None
        self._follow_shadow(signed, assigned, desired)

    def _apply_policy(self, assigned: Assignment) -> None:
        if assigned.policy != self._record.policy:
            self._host.apply(assigned.policy)
            self._write(replace(self._record, policy=assigned.policy))

    def _install(self, signed: SignedRelease, pin: ModelPin, desired: DesiredState) -> None:
        try:
            facts = self._installer.bring(signed, pin, desired, self._floors.read(), self._tell)
        except TrialFailed as error:
            self._refuse(self._fail(pin, desired.serial, str(error), has_run=False))
            return
        replaced = self._store.current()
        # A time that is not credible must not make every later order look older than this one.
        ordered_at = min(desired.issued_at, self._floors.read().seen_at)
        order = Order(pin, desired.serial, ordered_at, facts.counter, desired.probation, replaced)
        self._write(replace(self._record, order=order, failed=None))
        bundle = self._store.begin_probation(pin.ref, self._settings.boot_tries)
        try:
            self._host.switch_to(bundle)
        except Cancelled:  # the process ends, the model is not to blame: the next start has it on probation
            raise
        except FoveaError as error:
            said = self._fail(pin, desired.serial, f"it cannot be made ready: {error}", has_run=True)
            self._store.step_back()  # the host has kept the old one running
            self._tell(Phase.STEPPED_BACK, said)
            return
        self._begin_watch(order)

    def _begin_watch(self, order: Order) -> None:
        self._watch = _Watch(order, self._host.health(), self._mono_s())
        self._tell(Phase.PROBATION, None)

    def _check_probation(self) -> None:
        watch = self._watch
        if watch is None:
            return
        elapsed_s = self._mono_s() - watch.began_mono_s
        finding = judge_probation(
            watch.order.probation, watch.began, self._host.health(), elapsed_s, self._settings.probation
        )
        if finding.verdict is Verdict.COMMIT:
            self._store.commit()
            self._settle(watch.order)
        elif finding.verdict is Verdict.STEP_BACK:
            self._take_back(watch.order, finding.reason)

    def _settle(self, order: Order) -> None:
        """What remains after the store has committed."""
        self._watch = None
        family = order.pin.family
        floors: Floors = self._floors.read()
        self._floors.write(floors.with_committed(family, order.counter, order.issued_at))
        self._write(replace(self._record, order=None))
        shadowed = None if self._shadowed is None else self._shadowed[0]
        self._store.prune([ref for ref in (order.replaces, shadowed) if ref is not None])
        self._tell(Phase.COMMITTED, None)

    def _take_back(self, order: Order | None, reason: str) -> None:
        """The last good model runs again, first of all and whatever the disk says: harm ends at once. Should the
        power go before it is written down, the next boot finds the model on probation and judges it again."""
        self._watch = None
        said = reason
        try:
            self._host.switch_to(self._store.open_last_good())
        finally:
            if order is not None:
                said = self._fail(order.pin, order.serial, reason, has_run=True)
            self._store.step_back()
        self._tell(Phase.STEPPED_BACK, said)

    def _follow_shadow(self, signed: SignedRelease, assigned: Assignment, desired: DesiredState) -> None:
        pin, share = assigned.shadow, assigned.shadow_share
        wanted = None if pin is None or share <= 0 else (pin.ref, share)
        if wanted == self._shadowed or (pin is not None and self._has_failed(pin, desired.serial)):
            return
        if pin is None or wanted is None:
            self._host.shadow(None, 0.0)
        else:
            try:
                self._installer.bring(signed, pin, desired, self._floors.read(), self._tell)
                self._host.shadow(self._store.get(pin.ref), share)
            except TrialFailed as error:
                self._refuse(self._fail(pin, desired.serial, str(error), has_run=False))
                return
            self._tell(Phase.COMMITTED if self._watch is None else Phase.PROBATION, None)
        self._shadowed = wanted

    def _has_failed(self, pin: ModelPin, serial: int) -> bool:
        failed = self._record.failed
        if failed is None or (failed.sha256, failed.serial) != (pin.sha256, serial):
            return False
        self._phase = Phase.STEPPED_BACK if failed.has_run else Phase.REFUSED
        self._reason = failed.reason
        return True

    def _fail(self, pin: ModelPin, serial: int, reason: str, *, has_run: bool) -> str:
        """Writes down that this model will not do, and gives the whole sentence."""
        said = f"{pin.ref}: {reason}"
        self._write(replace(self._record, order=None, failed=Failed(pin.sha256, serial, said, has_run)))
        return said

    def _write(self, record: Record) -> None:
        if record != self._record:
            self._record_file.write(record)
            self._record = record

    def _refuse(self, reason: str) -> None:
        if (self._phase, self._reason) != (Phase.REFUSED, reason):
            _log.warning("update refused: %s", reason)
        self._tell(Phase.REFUSED, reason)

    def _tell(self, phase: Phase, reason: str | None = None) -> None:
        self._phase, self._reason = phase, reason
        self._teller.tell(phase, reason)

    def _until_next_poll_s(self) -> float:
        usual_s = self._settings.interval_s * (
            1 + self._settings.jitter * (2 * self._surroundings.draw() - 1)
        )
        if not self._unreached:
            return usual_s
        retry_s = _FIRST_RETRY_S * 2.0 ** min(self._unreached - 1, 16)
        return min(usual_s, retry_s * (0.5 + 0.5 * self._surroundings.draw()))

    def _mono_s(self) -> float:
        return self._surroundings.clock.monotonic_s()
