"""A small server for tests of the link: answers as it is told, in this process or as a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from fovea.core.detections import Detections
from fovea.core.errors import FoveaError
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from protos.calls import (
    DeliveryReceipt,
    Description,
    DetectAnswer,
    DetectQuestion,
    ServiceLimits,
    Timings,
)
from protos.codec import (
    answer_to_bytes,
    delivery_from_bytes,
    description_to_bytes,
    question_from_bytes,
    receipt_to_bytes,
)
from protos.rpc import case_handlers, detect_handlers, server_options, status_of
from tests.fakes import FAKE_REF

LABELS = LabelSet.from_names(["person", "car", "bicycle"])
ANSWER = DetectAnswer(Detections.empty(ImageSize(8, 8), FAKE_REF), FAKE_REF, LABELS, timings=Timings(0, 1, 2))
ROOT = Path(__file__).parents[2]


class LinkServer:
    """Listens from the start. `fail_with` is said to every question and case, `answer_after` keeps them waiting."""

    def __init__(
        self,
        address: str = "127.0.0.1:0",
        credentials: grpc.ServerCredentials | None = None,
        limits: ServiceLimits = ServiceLimits(),
    ) -> None:
        self.fail_with: FoveaError | None = None
        self.fail_describe_with: FoveaError | None = None
        self.answer_after: threading.Event | None = None
        self.answer = answer_to_bytes(ANSWER)
        self.questions: list[DetectQuestion] = []
        self.cases: list[str] = []
        self.described = 0
        self._description = description_to_bytes(Description(FAKE_REF, LABELS, limits))
        self._server = grpc.server(ThreadPoolExecutor(8), options=server_options(limits.max_request_bytes))
        methods: Any = self
        self._server.add_generic_rpc_handlers((detect_handlers(methods), case_handlers(methods)))
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.port = port
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """Nothing listens there any more when it returns."""
        if self.answer_after is not None:
            self.answer_after.set()
        self._server.stop(0).wait(10)

    def detect(self, request: bytes, context: Any) -> bytes:
        self.questions.append(question_from_bytes(request))
        self._hold_back(context)
        return self.answer

    def describe(self, request: bytes, context: Any) -> bytes:
        self.described += 1
        if self.fail_describe_with is not None:
            _say(self.fail_describe_with, context)
        return self._description

    def deliver(self, request: bytes, context: Any) -> bytes:
        self._hold_back(context)
        case = delivery_from_bytes(request).case
        is_new = case.id not in self.cases
        self.cases.append(case.id)
        return receipt_to_bytes(DeliveryReceipt(case.id, is_new))

    def _hold_back(self, context: Any) -> None:
        if self.answer_after is not None:
            self.answer_after.wait(30)
        if self.fail_with is not None:
            _say(self.fail_with, context)


def _say(error: FoveaError, context: Any) -> None:
    status, text, metadata = status_of(error)
    context.set_trailing_metadata(metadata)
    context.abort(status, text)


def server_process(port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """A LinkServer as a process of its own, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.link_server", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


if __name__ == "__main__":
    running = LinkServer(f"127.0.0.1:{sys.argv[1]}")
    print(running.port, flush=True)
    with suppress(KeyboardInterrupt):
        time.sleep(600)
