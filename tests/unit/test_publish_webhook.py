"""Events by POST: delivered in order, tried again with patience, bounded, and never a delay for the caller."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from edge_agent.publish.publishing import ObjectEvent
from edge_agent.publish.webhook import Webhook, WebhookSettings
from fovea.core.errors import Malformed
from tests.broker_process import free_port
from tests.mqtt_listener import wait_until
from tests.published_values import some_event


class Receiver:
    """An HTTP server that notes what is posted and answers as it is told; 200 when it is told nothing."""

    def __init__(self, port: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.go_on.wait(30)
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    receiver.bodies.append(json.loads(body))
                receiver.headers.append(dict(self.headers))
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hooks/s3cret?key=s3cret"

    @property
    def ids(self) -> list[str]:
        return [body["after"]["id"] for body in self.bodies]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver(port)
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.go_on.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


@contextmanager
def posting(url: str, **changes: Any) -> Iterator[Webhook]:
    webhook = Webhook(WebhookSettings(url, first_pause_s=0.01, **changes), "box")
    webhook.start()
    try:
        yield webhook
    finally:
        webhook.stop(2.0)


def events(*names: str) -> list[ObjectEvent]:
    return [some_event(id=name) for name in names]


def test_events_are_posted_in_order_as_the_json_that_mqtt_has() -> None:
    with receiving() as receiver, posting(receiver.url, token="Bearer t0ken") as webhook:
        webhook.publish_events("gate", events("a", "b"))
        webhook.publish_events("gate", events("c"))
        wait_until(lambda: webhook.counts["webhook_delivered"] == 3)
        assert receiver.ids == ["a", "b", "c"]
        assert receiver.bodies[0]["type"] == "new" and receiver.bodies[0]["device"] == "box"
        assert receiver.headers[0]["Authorization"] == "Bearer t0ken"
        assert receiver.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_passes_with_time_is_tried_again_in_order(status: int) -> None:
    with receiving() as receiver, posting(receiver.url) as webhook:
        receiver.answers = [status, status]
        webhook.publish_events("gate", events("a", "b"))
        wait_until(lambda: webhook.counts["webhook_delivered"] == 2)
        assert receiver.ids == ["a", "b"]
        assert webhook.counts["webhook_failed"] == 2


@pytest.mark.parametrize("status", [400, 401, 404, 302, 307])
def test_a_refusal_is_final_for_that_event_and_redirections_are_refusals(status: int) -> None:
    with receiving() as receiver, posting(receiver.url, token="t", token_header="X-Token") as webhook:
        receiver.answers = [status]
        webhook.publish_events("gate", events("a", "b"))
        wait_until(lambda: webhook.counts["webhook_delivered"] == 1)
        assert receiver.ids == ["b"]
        assert len(receiver.headers) == 2
        assert webhook.counts["webhook_refused"] == 1


def test_a_receiver_that_is_away_is_said_once_and_events_wait_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    with posting(f"http://127.0.0.1:{port}/hooks/s3cret?key=s3cret") as webhook:
        webhook.publish_events("gate", events("a", "b"))
        wait_until(lambda: webhook.counts["webhook_failed"] >= 3)
        assert not webhook.is_connected
        with receiving(port) as receiver:
            wait_until(lambda: webhook.counts["webhook_delivered"] == 2)
            assert receiver.ids == ["a", "b"]
            assert webhook.is_connected
    said = [record.getMessage() for record in caplog.records if record.name == "edge_agent.publish.webhook"]
    assert len(said) == 2 and "does not take events" in said[0] and "again" in said[1]
    assert "s3cret" not in caplog.text


def test_a_receiver_that_hangs_never_delays_the_caller_and_the_oldest_give_way() -> None:
    with receiving() as receiver, posting(receiver.url, max_events=3, timeout_s=30) as webhook:
        receiver.go_on.clear()
        webhook.publish_events("gate", events("first"))
        wait_until(lambda: webhook.counts["webhook_waiting"] == 0)
        started_s = time.monotonic()
        for number in range(1000):
            webhook.publish_events("gate", events(str(number)))
        assert time.monotonic() - started_s < 10
        assert webhook.counts["webhook_dropped"] == 997
        receiver.go_on.set()
        wait_until(lambda: webhook.counts["webhook_delivered"] == 4)
        assert receiver.ids == ["first", "997", "998", "999"]


def test_an_answer_that_does_not_come_in_time_is_a_failure() -> None:
    with receiving() as receiver, posting(receiver.url, timeout_s=0.1) as webhook:
        receiver.go_on.clear()
        webhook.publish_events("gate", events("a"))
        wait_until(lambda: webhook.counts["webhook_failed"] >= 1)


def test_an_event_that_waited_too_long_is_given_up_and_counted() -> None:
    with posting(f"http://127.0.0.1:{free_port()}/", max_age_s=0.05) as webhook:
        webhook.publish_events("gate", events("a"))
        wait_until(lambda: webhook.counts["webhook_expired"] == 1)
        assert webhook.counts["webhook_waiting"] == 0


def test_stopping_delivers_what_waits_and_waits_for_nobody_who_hangs() -> None:
    with receiving() as receiver:
        webhook = Webhook(WebhookSettings(receiver.url), "box")
        webhook.start()
        webhook.publish_events("gate", events(*"abcdefgh"))
        webhook.stop(10.0)
        assert receiver.ids == list("abcdefgh")
        webhook.stop(10.0)
        receiver.go_on.clear()
        hung = Webhook(WebhookSettings(receiver.url), "box")
        hung.start()
        hung.publish_events("gate", events("a"))
        started_s = time.monotonic()
        hung.stop(0.2)
        assert time.monotonic() - started_s < 3
    never = Webhook(WebhookSettings("http://127.0.0.1:1/"), "box")
    never.stop(1.0)
    never.start()


def test_stopping_ends_a_pause() -> None:
    webhook = Webhook(WebhookSettings(f"http://127.0.0.1:{free_port()}/", first_pause_s=60), "box")
    webhook.start()
    webhook.publish_events("gate", events("a"))
    wait_until(lambda: webhook.counts["webhook_failed"] == 1)
    started_s = time.monotonic()
    webhook.stop(20.0)
    assert time.monotonic() - started_s < 10


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"url": "ftp://h/s3cret"}, "http"),
        ({"url": "http://me:s3cret@h/"}, "without credentials"),
        ({"url": "http:///s3cret"}, "host"),
        ({"url": "http://[::1/s3cret"}, "http"),
        ({"url": "http://h:99999/s3cret"}, "http"),
        ({"url": "http://h/\ns3cret"}, "ASCII"),
        ({"url": "http://h/a s3cret"}, "spaces"),
        ({"token": "s3cret\r\nX-Other: 1"}, "one line"),
        ({"token_header": "X: y"}, "token_header"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"max_events": 0}, "max_events"),
        ({"timeout_s": float("nan")}, "timeout_s"),
    ],
)
def test_settings_that_make_no_sense_are_refused_without_showing_a_secret(
    changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(Malformed, match=says) as refused:
        WebhookSettings(**({"url": "http://h/"} | changes))
    assert "s3cret" not in str(refused.value)


def test_neither_token_nor_path_show_in_the_settings() -> None:
    shown = repr(WebhookSettings("https://hooks.example/T0/s3cret?k=s3cret", token="s3cret"))
    assert "s3cret" not in shown and "hooks.example" in shown
