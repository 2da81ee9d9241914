"""From a configuration to the parts of an edge server: the only place that names concrete classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from edge_server.config import ZOO, EdgeConfig, TlsConfig
from edge_server.metrics import PrometheusMetrics
from fovea import zoo
from fovea.core.errors import Malformed, NotFound
from fovea.core.ports import Detector
from fovea.runtime.manifest import BatchMode
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.serving.admission import QueueLimits
from fovea.serving.batcher import BatchPolicy
from fovea.serving.latency_model import LatencyModel
from fovea.serving.server import ServerSettings
from fovea.serving.warm_up import measured_latency
from protos.calls import ServiceLimits

LEAST_SAVING = 0.1
"""The share of the device's time that a full batch has to save."""

REVISION = 1
"""The edge gives the second answer to a frame."""


@dataclass(frozen=True, slots=True, eq=False)
class EdgeParts:
    """What an edge server runs with; `detector` is warm, and closed by whoever has the parts."""

    detector: Detector
    device: str
    settings: ServerSettings
    latency: LatencyModel
    metrics: PrometheusMetrics


def build(config: EdgeConfig) -> EdgeParts:
    """Loads the model, runs it and measures it. Raises NotFound and Malformed (files), Incompatible (this machine
    has no such device or cannot run this model), DetectorFailed."""
    credentials = None if config.tls is None else _credentials(config.tls)
    detector = OnnxDetector.open(_bundle_path(config.bundle), config.device, config.threads)
    is_single = detector.manifest.input.batch is BatchMode.FIXED
    try:
        latency = measured_latency(detector, 1 if is_single else config.max_batch)
    except BaseException:
        detector.close()
        raise
    return EdgeParts(
        detector,
        detector.device,
        _settings(config, largest_batch(latency, config.max_batch), credentials),
        latency,
        PrometheusMetrics(detector.ref, detector.device),
    )


def largest_batch(latency: LatencyModel, max_batch: int) -> int:
    """`max_batch` where batches pay. Most CPUs take as long for a batch as for its pictures one by one: there it
    would only make everybody wait for the neighbours, so they go one by one."""
    return max_batch if latency.saving(max_batch) >= LEAST_SAVING else 1


def _bundle_path(bundle: str) -> Path:
    return zoo.path_of(bundle.removeprefix(ZOO)) if bundle.startswith(ZOO) else Path(bundle)


def _settings(
    config: EdgeConfig, max_batch: int, credentials: grpc.ServerCredentials | None
) -> ServerSettings:
    return ServerSettings(
        limits=ServiceLimits(config.limits.max_request_bytes, config.limits.max_pixels),
        batching=BatchPolicy(max_batch, config.max_wait_ms / 1000, config.queue.aging_s),
        queue=QueueLimits(config.queue.max_items, config.queue.max_bytes, config.queue.margin_ms / 1000),
        revision=REVISION,
        open_threads=config.open_threads,
        notice_s=config.stop.notice_s,
        grace_s=config.stop.grace_s,
        credentials=credentials,
    )


def _credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    ca, cert, key = (
        _pem(name, path) for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))
    )
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)


def _pem(name: str, path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"tls.{name}: no file {path}") from error
    except OSError as error:
        raise Malformed(f"tls.{name}: cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in data:
        raise Malformed(f"tls.{name}: expected a PEM file, got {path}")
    return data
