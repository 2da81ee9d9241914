"""The broker as rollouts see it: keeps what devices report, many at once, and tells them that there is news."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cloud.fleet.inbox import Letter, ReportInbox, read_report
from cloud.rollout.report_rows import Heard
from fovea.core.errors import FoveaError, Malformed, RetryableError
from fovea.mqtt.link import MqttLink
from fovea.mqtt.names import MODELS_REPORTED, ROOT, model_desired
from fovea.mqtt.outbox import Lane, Message
from fovea.mqtt.settings import MqttSettings

_log = logging.getLogger(__name__)

AVAILABLE: Final = f"{ROOT}/~cloud/available"
"""Whether the cloud listens (online, stopped, offline); no device's name makes this topic."""
_CLIENT: Final = f"{ROOT}cloud"
_COMPANY_S: Final = 0.2
"""A fleet comes back all at once: so long reports are gathered for one transaction."""
_PAUSE_S: Final = 2.0
_REPORTED_END: Final = MODELS_REPORTED.rpartition("+")[2]
_MOST_COMPLAINTS: Final = 100

Keep = Callable[[Sequence[Heard]], object]
"""Keeps reports for good. Raises FoveaErrors."""


class FleetLink:
    """A `cloud.rollout.controller.Fleet`. Nothing happens before `start`."""

    def __init__(
        self,
        settings: MqttSettings,
        keep: Keep,
        serial_of: Callable[[str], int],
        inbox: ReportInbox | None = None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """`serial_of` a group is that of what its devices are told now. Raises NotFound and Malformed (TLS files)."""
        self._keep = keep
        self._serial_of = serial_of
        self._inbox = ReportInbox() if inbox is None else inbox
        self._pause_s = pause_s
        self._link = MqttLink(settings, _CLIENT, AVAILABLE, [MODELS_REPORTED], [], self._hear)
        self._is_over = threading.Event()
        self._trouble: str | None = None
        self._complained_of: set[str] = set()
        self._reader = threading.Thread(target=self._read_for_ever, name="fleet-reader", daemon=True)

    def start(self) -> None:
        self._reader.start()
        self._link.start()

    def stop(self, timeout_s: float) -> None:
        """What came is kept, as far as there is time. Twice is fine."""
        self._link.stop(timeout_s)
        self._is_over.set()
        self._inbox.close()
        if self._reader.ident is not None:
            self._reader.join(timeout_s)

    def look(self, group: str, devices: list[str]) -> None:
        """A retained word to each: it reaches those, too, that are away now. It may get lost, as devices poll."""
        hint = json.dumps({"look": self._serial_of(group)}).encode()
        for device in devices:
            self._link.put(Message(model_desired(device), partial(bytes, hint), Lane.LATEST))

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    @property
    def trouble(self) -> str | None:
        """Why reports cannot be kept at the moment; None when all is well. A broker that is away is no trouble of
        this process: devices poll, and what they said is retained."""
        return self._trouble

    @property
    def counts(self) -> Mapping[str, int]:
        """Reports by what became of them; see `ReportInbox.counts`."""
        return self._inbox.counts

    def _hear(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Brokers have been seen to send more than was subscribed to."""
        if topic.endswith(_REPORTED_END):
            self._inbox.put(topic, payload, is_retained)

    def _read_for_ever(self) -> None:
        while letters := self._inbox.take(_COMPANY_S):
            try:
                self._take(letters)
            except Exception:  # the top of this thread: one batch that nobody foresaw must not end it
                _log.exception(
                    "reports of %d devices could not be kept, and nobody foresaw why", len(letters)
                )
                self._inbox.count("dropped", len(letters))

    def _take(self, letters: list[Letter]) -> None:
        said = [(letter, heard) for letter in letters if (heard := self._read(letter)) is not None]
        if not said:
            return
        try:
            self._keep([heard for _, heard in said])
        except RetryableError as error:
            self._say_trouble(str(error))
            if not self._is_over.is_set():
                self._inbox.put_back([letter for letter, _ in said])
                self._is_over.wait(self._pause_s)
        except FoveaError as error:
            self._say_trouble(str(error))
            self._inbox.count("dropped", len(said))
        else:
            self._say_trouble(None)
            self._inbox.count("taken", len(said))

    def _read(self, letter: Letter) -> Heard | None:
        try:
            return Heard(read_report(letter), letter.is_repeated)
        except Malformed as error:
            self._inbox.count("malformed")
            if len(self._complained_of) < _MOST_COMPLAINTS and letter.topic not in self._complained_of:
                self._complained_of.add(letter.topic)
                _log.warning("a report on %.200s is passed over (said once): %s", letter.topic, error)
            return None

    def _say_trouble(self, trouble: str | None) -> None:
        """When it begins and when it ends."""
        if trouble is not None and self._trouble is None:
            _log.error("reports of devices cannot be kept for now: %s", trouble)
        if trouble is None and self._trouble is not None:
            _log.warning("reports of devices are kept again")
        self._trouble = trouble
