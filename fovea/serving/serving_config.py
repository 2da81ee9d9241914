"""The parts of a configuration that only serving processes have, and what they mean to a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fovea.core.merging import MergeSettings
from fovea.core.ports import Detector
from fovea.process.config_parts import (
    Address,
    BundleName,
    Device,
    LogConfig,
    Part,
    StopConfig,
    TlsConfig,
    read_pems,
)
from fovea.serving.admission import QueueLimits
from fovea.serving.batcher import BatchPolicy
from fovea.serving.latency_model import LatencyModel
from fovea.serving.server import ServerSettings
from fovea.serving.warm_up import measured_latency
from protos.calls import ServiceLimits
from protos.tls import server_credentials

LEAST_SAVING = 0.1
"""The share of the device's time that a full batch has to save."""


class QueueConfig(Part):
    """What may wait for the model."""

    max_items: Annotated[int, Field(ge=1, le=100_000)] = 64
    """pictures that wait at most; more are refused with a time to come back"""
    max_bytes: Annotated[int, Field(ge=1_000_000)] = 512_000_000
    """memory of the pictures that wait, opened, at most"""
    aging_s: Annotated[float, Field(ge=0, le=60)] = 0.5
    """head start of each step of priority: a low one is overtaken by those at most that come this much later"""
    margin_ms: Annotated[float, Field(ge=0, le=10_000)] = 5.0
    """how long before its deadline a picture has to be expected to be done, or it is refused at once"""


class LimitsConfig(Part):
    """What one request may be."""

    max_request_bytes: Annotated[int, Field(ge=1000, lt=2**30)] = 16_000_000
    """length of a request at most"""
    max_pixels: Annotated[int, Field(ge=1, le=10**9)] = 64_000_000
    """width times height of a picture at most"""
    max_calls: Annotated[int, Field(ge=8, le=100_000)] = ServerSettings().max_calls
    """calls under way at most, of all callers; more are refused before they are read"""
    max_calls_per_connection: Annotated[int, Field(ge=1, le=100_000)] = (
        ServerSettings().max_calls_per_connection
    )
    """of one connection; its further calls wait at the caller"""


class MergeConfig(Part):
    """How the answers of several tiers to one frame become one."""

    agent: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().agent
    """trust in the camera, relative to the others"""
    edge: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().edge
    """trust in the edge"""
    cloud: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().cloud
    """trust in the cloud"""
    iou: Annotated[float, Field(gt=0, lt=1)] = MergeSettings().iou
    """boxes of one class that overlap by more are one thing"""
    absent_share: Annotated[float, Field(ge=0, le=1)] = MergeSettings().absent_share
    """how much a tier that saw nothing pulls a score down, 0 (not at all) to 1 (as if it had said 0)"""

    def settings(self) -> MergeSettings:
        return MergeSettings(self.agent, self.edge, self.cloud, self.iou, self.absent_share)


class ServingConfig(Part):
    """What every process is told that serves a detector. Relative paths are relative to the folder of the file."""

    listen: Address = "127.0.0.1:50051"
    """host:port for gRPC"""
    bundle: BundleName
    """the model: a .fovea file, or zoo:NAME for a bundled one"""
    device: Device = "auto"
    """auto, cpu or cuda:N; a named CUDA device that is not there is an error"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads of the model"""
    open_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """threads that decode pictures"""
    max_batch: Annotated[int, Field(ge=1, le=256)] = 8
    """pictures that are looked at together at most, where that is measured to save time (10 % or more)"""
    max_wait_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """how long a picture waits for company while the model is free"""
    stuck_after_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """a batch that takes longer counts as hung: systemd's watchdog is not fed any more"""
    queue: QueueConfig = QueueConfig()
    """what may wait for the model"""
    limits: LimitsConfig = LimitsConfig()
    """what one request may be"""
    resources_every_ms: Annotated[float, Field(ge=50, le=60_000)] = 500.0
    """how often CPU, memory, heat, GPU and queue of this machine are looked at"""
    metrics: Address | None = None
    """host:port for Prometheus and /healthz; nothing listens when it is left out"""
    log: LogConfig = LogConfig()
    """what is said while it runs"""
    tls: TlsConfig | None = None
    """certificates; plain text when it is left out"""
    stop: StopConfig = StopConfig()
    """how it ends when it is told to"""


def server_settings(config: ServingConfig, revision: int) -> ServerSettings:
    """What `config` says to a server that gives answer `revision` (1 edge, 2 cloud). Raises NotFound and Malformed
    for the files of `tls`."""
    return ServerSettings(
        limits=ServiceLimits(config.limits.max_request_bytes, config.limits.max_pixels),
        batching=BatchPolicy(config.max_batch, config.max_wait_ms / 1000, config.queue.aging_s),
        queue=QueueLimits(config.queue.max_items, config.queue.max_bytes, config.queue.margin_ms / 1000),
        revision=revision,
        open_threads=config.open_threads,
        notice_s=config.stop.notice_s,
        grace_s=config.stop.grace_s,
        max_calls=config.limits.max_calls,
        max_calls_per_connection=config.limits.max_calls_per_connection,
        credentials=None if config.tls is None else server_credentials(read_pems(config.tls)),
    )


def fitted(
    settings: ServerSettings, detector: Detector, takes_batches: bool
) -> tuple[ServerSettings, LatencyModel]:
    """Runs `detector` to warm and measure it: the same settings with batches only where they pay, and its speed.
    Raises what the detector raises."""
    most = settings.batching.max_batch
    latency = measured_latency(detector, most if takes_batches else 1)
    batching = replace(settings.batching, max_batch=largest_batch(latency, most))
    return replace(settings, batching=batching), latency


def largest_batch(latency: LatencyModel, max_batch: int) -> int:
    """`max_batch` where batches pay. Most CPUs take as long for a batch as for its pictures one by one: there it
    would only make everybody wait for the neighbours, so they go one by one."""
    return max_batch if latency.saving(max_batch) >= LEAST_SAVING else 1
