"""Starting and stopping a gRPC server around a detector, so that nobody is cut off who need not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fovea.core.errors import Malformed, Unavailable
from fovea.core.ports import Detector
from fovea.serving.admission import QueueLimits
from fovea.serving.answerer import Answerer, CaseDesk, OwnAnswer
from fovea.serving.batcher import BatchPolicy
from fovea.serving.calls_under_way import CallsUnderWay
from fovea.serving.case_service import CaseService
from fovea.serving.latency_model import LatencyModel
from fovea.serving.outcomes import NobodyWatches, Observer
from fovea.serving.service import DetectService
from fovea.serving.worker import BatchingWorker, Worker
from protos.calls import ServiceLimits
from protos.rpc import CASE_SERVICE, DETECT_SERVICE, case_handlers, detect_handlers, server_options

_FLUSH_S = 0.2
"""For the last bytes of answers that are given, and for watchers of the health, who never leave by themselves."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server behaves, whatever its model.

    revision: which answer to a frame this tier gives (1 edge, 2 cloud). longest_wait_s: for calls without a deadline.
    notice_s: how long it goes on taking calls after its readiness is withdrawn, for balancers to notice. grace_s: how
    long it then waits for what is under way. stop_s: how long it then waits for a model that does not return.
    credentials: None is plain text. max_calls: under way at most, of all kinds; gRPC refuses more before it reads
    them. max_calls_per_connection: one connection has no more of them, its further calls wait at the caller.
    """

    limits: ServiceLimits = field(default_factory=ServiceLimits)
    batching: BatchPolicy = field(default_factory=BatchPolicy)
    queue: QueueLimits = field(default_factory=QueueLimits)
    revision: int = 1
    open_threads: int = 2
    longest_wait_s: float = 30.0
    max_calls: int = 512
    max_calls_per_connection: int = 128
    notice_s: float = 0.0
    grace_s: float = 5.0
    stop_s: float = 1.0
    credentials: grpc.ServerCredentials | None = None

    def __post_init__(self) -> None:
        if min(self.open_threads, self.max_calls, self.max_calls_per_connection) < 1 or not (
            self.longest_wait_s > 0 and self.notice_s >= 0 and self.grace_s >= 0 and self.stop_s >= 0
        ):
            raise Malformed(f"server settings: expected threads, calls and times above 0, got {self}")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where a server listens, and what works behind it."""

    host: str
    port: int
    worker: Worker

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@asynccontextmanager
async def serve(
    detector: Detector,
    address: str = "127.0.0.1:0",
    settings: ServerSettings = ServerSettings(),
    observer: Observer = NobodyWatches(),
    latency: LatencyModel | None = None,
    answerer: Answerer | None = None,
    case_desk: CaseDesk | None = None,
) -> AsyncIterator[RunningServer]:
    """Serves `detector` at `address` (host:port, port 0: any free one) until the block ends.

    `latency` is what is known of the detector's speed (see `fovea.serving.warm_up`); it is learned on the way.
    `answerer` makes answers of looks (None: what the model saw and nothing else); with a `case_desk` cases are taken
    on the same port.

    On the way out: not ready any more, then a notice, then new calls are Unavailable while those under way are
    finished within the grace, then the end. The detector stays open: it belongs to the caller, who should ask
    `RunningServer.worker.busy_s` whether it still runs. Raises Unavailable when the address is taken.
    """
    worker = BatchingWorker(detector, settings.batching, settings.queue, latency, observer)
    openers = ThreadPoolExecutor(settings.open_threads, thread_name_prefix="open-image")
    calls = CallsUnderWay()
    answerer = answerer or OwnAnswer(settings.revision)
    service = DetectService(
        worker, openers, settings.limits, answerer, calls, settings.longest_wait_s, observer
    )
    services = [DETECT_SERVICE]
    readiness = health.aio.HealthServicer()  # type: ignore[attr-defined]
    server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=settings.max_calls)
    server.add_generic_rpc_handlers((detect_handlers(service),))
    if case_desk is not None:
        taking = CaseService(case_desk, openers, settings.limits, calls, observer)
        server.add_generic_rpc_handlers((case_handlers(taking),))
        services.append(CASE_SERVICE)
    health_pb2_grpc.add_HealthServicer_to_server(readiness, server)
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = _listen(server, address, settings.credentials)
        worker.start()
        for name in ("", *services):
            await readiness.set(name, health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        try:
            yield RunningServer(address.rpartition(":")[0], port, worker)
        finally:
            await readiness.enter_graceful_shutdown()
            await asyncio.sleep(settings.notice_s)
            await calls.drain(settings.grace_s)
    finally:
        worker.refuse_all()
        await server.stop(_FLUSH_S)
        await worker.stop(settings.stop_s)
        openers.shutdown(wait=False, cancel_futures=True)


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    """With twice the limit of a request, so that one somewhat over it comes to the service, which refuses and counts
    it."""
    limit_bytes = min(2 * settings.limits.max_request_bytes, 2**31 - 1)
    return [
        *server_options(limit_bytes),
        ("grpc.max_concurrent_streams", settings.max_calls_per_connection),
    ]


def _listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise Unavailable(f"cannot listen on {address}: {error}") from error
