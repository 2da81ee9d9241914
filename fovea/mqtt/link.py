"""The connection to one broker: connects for ever, sends what waits in an outbox, hands over what comes."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fovea.mqtt.outbox import Lane, Message, Outbox
from fovea.mqtt.settings import LARGEST_PAUSE_S, MqttSettings

log = logging.getLogger(__name__)

OnMessage = Callable[[str, bytes, bool], None]
"""Called with topic, payload and whether it was retained, on a thread of the link."""

_MOST_UNDER_WAY = 20
"""Messages given to paho and not yet on the wire, or not yet acknowledged: its own queue has no bound."""
_FIRST_LOOK_S = 5.0
"""How long after the first connection the `first_filters` are listened to."""
_QOS = {Lane.LATEST: 0, Lane.EVENTS: 1, Lane.RESULTS: 0}
# What is retained is repeated on every connection, so acknowledging it adds nothing; and an old value that paho sends
# again after a reconnection could come after a newer one.
_COUNTED = ("sent", "lost", "unsayable", "connections", "login_refusals")


class MqttLink:
    """One client of one broker; nothing happens before `start`.

    MQTT 3.1.1: every broker speaks it, the embedded one of the demo included, and nothing of version 5 is needed.
    `available` is the topic that always says whether this client is there: online, stopped, offline.
    """

    def __init__(
        self,
        settings: MqttSettings,
        client_id: str,
        available: str,
        filters: Sequence[str],
        first_filters: Sequence[str],
        on_message: OnMessage,
    ) -> None:
        """`filters` are subscribed to on every connection, `first_filters` for a few seconds after the first.
        Raises NotFound and Malformed for TLS files."""
        self._settings = settings
        self._available = available
        self._filters = (available, *filters)
        self._first_filters = tuple(first_filters)
        self._on_message = on_message
        # paho calls back with locks of its own held: it is never called while this one is.
        self._changed = threading.Condition()
        self._outbox = Outbox(settings.max_events, settings.max_results)
        self._under_way: dict[int, Lane] = {}
        self._early: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._is_connected = False
        self._is_subscribed = False
        self._is_started = False
        self._first_look_until_mono_s: float | None = None
        self._has_looked = False
        self._drain_until_mono_s: float | None = None
        self._trouble: str | None = None
        self._sender = threading.Thread(target=self._send_for_ever, name="mqtt-sender", daemon=True)
        self._client = self._new_client(client_id)

    def start(self) -> None:
        with self._changed:
            if self._is_started or self._is_stopping:
                return
            self._is_started = True
        # The jitter keeps a fleet from coming back in step.
        self._client.reconnect_delay_set(1, random.randint(LARGEST_PAUSE_S * 2 // 3, LARGEST_PAUSE_S))
        self._client.connect_async(self._settings.host, self._settings.port, self._settings.keepalive_s)
        self._client.loop_start()
        self._sender.start()

    def put(self, message: Message) -> None:
        """Sends it when it can be sent; see Outbox for what is dropped when it cannot."""
        with self._changed:
            self._outbox.put(message)
            self._changed.notify_all()

    def has_latest(self, topic: str) -> bool:
        """Whether something retained was put for this topic."""
        with self._changed:
            return self._outbox.has_latest(topic)

    @property
    def is_connected(self) -> bool:
        """Whether the broker let this client in, knows its filters, and the connection stands as far as is known."""
        return self._is_connected and self._is_subscribed

    @property
    def counts(self) -> Mapping[str, int]:
        """sent, lost (given to a connection that broke), unsayable, connections, login_refusals, dropped_events,
        dropped_results, waiting."""
        with self._changed:
            dropped = {f"dropped_{lane}": number for lane, number in self._outbox.dropped.items()}
            return {name: self._counts[name] for name in _COUNTED} | dropped | {"waiting": len(self._outbox)}

    def stop(self, timeout_s: float) -> None:
        """Half of the time for what waits, the rest for the goodbye; ends its threads, or leaves them as daemons."""
        end_mono_s = time.monotonic() + timeout_s
        with self._changed:
            was_running = self._is_started and not self._is_stopping
            self._drain_until_mono_s = self._drain_until_mono_s or time.monotonic() + timeout_s / 2
            self._changed.notify_all()
        if not was_running:
            return
        self._sender.join(timeout_s / 2 + 0.1)
        self._say_goodbye(end_mono_s)
        # paho joins its thread without limit, which may sit in a connect.
        ending = threading.Thread(target=self._client.loop_stop, name="mqtt-stop", daemon=True)
        ending.start()
        ending.join(max(0.1, end_mono_s - time.monotonic()))

    # Sending, on a thread of its own.

    @property
    def _is_stopping(self) -> bool:
        return self._drain_until_mono_s is not None

    def _send_for_ever(self) -> None:
        while (step := self._next_step()) is not None:
            step()

    def _next_step(self) -> Callable[[], None] | None:
        """Waits for something to do, which is done without the lock; None when it is time to end."""
        with self._changed:
            while True:
                now_mono_s = time.monotonic()
                if self._first_look_until_mono_s is not None and now_mono_s >= self._first_look_until_mono_s:
                    self._first_look_until_mono_s, self._has_looked = None, True
                    return self._end_first_look
                can_send = self._is_connected and len(self._under_way) < _MOST_UNDER_WAY
                if can_send and (message := self._outbox.take()) is not None:
                    return partial(self._send, message)
                if self._drain_until_mono_s is not None and (
                    not self._is_connected
                    or not (len(self._outbox) or self._under_way)
                    or now_mono_s >= self._drain_until_mono_s
                ):
                    return None
                ends = [self._drain_until_mono_s, self._first_look_until_mono_s]
                self._changed.wait(min((max(0.01, end - now_mono_s) for end in ends if end), default=None))

    def _send(self, message: Message) -> None:
        try:
            payload = message.encode()
        except Exception:  # one message that cannot be said must not silence all that come after it
            log.exception("mqtt: a message for %.200s cannot be said", message.topic)
            with self._changed:
                self._counts["unsayable"] += 1
                self._outbox.forget(message)
            return
        if not self._give(message.topic, payload, message.lane):
            with self._changed:
                self._outbox.put_back(message)
                self._is_connected = False

    def _end_first_look(self) -> None:
        self._client.unsubscribe(list(self._first_filters))

    def _give(self, topic: str, payload: bytes, lane: Lane) -> bool:
        """Gives a message to paho; False when there was no connection and paho did not keep it either."""
        info = self._client.publish(topic, payload, _QOS[lane], retain=lane is Lane.LATEST)
        is_kept = info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS or _QOS[lane] > 0
        with self._changed:
            if is_kept:
                self._counts["sent"] += 1
                self._note_given(info.mid, lane)
        return is_kept

    def _note_given(self, mid: int, lane: Lane) -> None:
        # It may be on the wire before paho's publish has returned.
        if mid in self._early:
            self._early.discard(mid)
        else:
            self._under_way[mid] = lane

    def _say_available(self, what: str) -> int:
        info = self._client.publish(self._available, what, 1, True)
        with self._changed:
            self._note_given(info.mid, Lane.EVENTS)
        return info.mid

    def _say_goodbye(self, end_mono_s: float) -> None:
        """A clean disconnect sends no last will, so it says itself that it stopped."""
        if self._is_connected:
            mid = self._say_available("stopped")
            with self._changed:
                self._changed.wait_for(
                    lambda: mid not in self._under_way or not self._is_connected,
                    max(0.1, end_mono_s - time.monotonic() - 0.3),
                )
        self._client.disconnect()
        with self._changed:
            self._changed.wait_for(
                lambda: not self._is_connected, max(0.1, end_mono_s - time.monotonic() - 0.1)
            )

    # What paho calls, on its own thread, which an exception would end.

    def _new_client(self, client_id: str) -> Client:
        settings = self._settings
        client = Client(
            CallbackAPIVersion.VERSION2, client_id, clean_session=True, protocol=MQTTProtocolVersion.MQTTv311
        )
        client.will_set(self._available, "offline", qos=1, retain=True)
        client.connect_timeout = settings.connect_timeout_s
        client.max_inflight_messages_set(2 * _MOST_UNDER_WAY)  # `available` never waits for others
        client.suppress_exceptions = True
        client.on_log = self._paho_says
        if settings.username is not None:
            client.username_pw_set(settings.username, settings.password)
        if settings.tls is not None:
            client.tls_set_context(settings.tls.context())
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
        client.on_disconnect = self._disconnected
        client.on_message = self._message_came
        client.on_publish = self._published
        client.on_subscribe = self._subscribed
        return client

    def _paho_says(self, _: Client, __: object, level: int, text: str) -> None:
        """It calls its own shutdown an error, too."""
        if level == LogLevel.MQTT_LOG_ERR and "exception" in text:
            log.error("mqtt: %s", text)

    def _connected(
        self, client: Client, _: object, __: ConnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        if reason.is_failure:
            with self._changed:
                self._counts["login_refusals"] += 1
            self._say_trouble(f"the broker refuses this device: {reason}")
            return
        if self._is_stopping:
            return
        with self._changed:
            self._is_subscribed = False
            self._forget_under_way()
        self._say_available("online")
        # Subscriptions end with the connection: they are made on each.
        first = () if self._has_looked else self._first_filters
        client.subscribe([(topic_filter, 1) for topic_filter in (*self._filters, *first)])
        with self._changed:
            self._counts["connections"] += 1
            self._outbox.repeat_latest()
            self._is_connected = True
            if first:
                self._first_look_until_mono_s = time.monotonic() + _FIRST_LOOK_S
            self._changed.notify_all()
        self._trouble = None
        log.info("mqtt: connected to %s", self._settings.address)

    def _subscribed(
        self, _: Client, __: object, ___: int, reasons: list[ReasonCode], ____: Properties | None
    ) -> None:
        self._is_subscribed = True
        if any(reason.is_failure for reason in reasons):
            log.warning("mqtt: the broker does not let this device listen (%s)", self._settings.address)

    def _forget_under_way(self) -> None:
        """What needs no acknowledgement died with the connection; paho sends the rest again by itself."""
        self._counts["lost"] += sum(lane is Lane.RESULTS for lane in self._under_way.values())
        self._under_way = {mid: lane for mid, lane in self._under_way.items() if _QOS[lane] > 0}
        self._early.clear()

    def _not_connected(self, _: Client, __: object) -> None:
        self._say_trouble(f"the broker cannot be reached: {sys.exception()}")

    def _disconnected(
        self, _: Client, __: object, ___: DisconnectFlags, reason: ReasonCode, ____: Properties | None
    ) -> None:
        with self._changed:
            was_connected = self._is_connected
            self._is_connected = False
            self._changed.notify_all()
        if was_connected and not self._is_stopping:
            self._say_trouble(f"the connection ended: {reason}")

    def _say_trouble(self, trouble: str) -> None:
        """Once per trouble, until it is over or another one."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("mqtt: %s (%s); trying again for ever", trouble, self._settings.address)

    def _published(self, _: Client, __: object, mid: int, ___: ReasonCode, ____: Properties) -> None:
        with self._changed:
            if self._under_way.pop(mid, None) is None:
                self._early.add(mid)
            self._changed.notify_all()

    def _message_came(self, _: Client, __: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return
        try:
            if topic != self._available:
                self._on_message(topic, bytes(message.payload), message.retain)
            elif message.payload == b"offline" and not self._is_stopping:
                # The last will of a connection that broke may come after the next one was made.
                self._say_available("online")
        except Exception:  # whatever others send, this thread goes on
            log.exception("mqtt: a message on %.200r", topic)
