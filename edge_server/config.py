"""The configuration of an edge server: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from fovea.mqtt.config import BrokerConfig
from fovea.process.config_parts import FilePath, Part, PeerAddress, TlsConfig, resolved_bundle
from fovea.process.update_config import UpdatesConfig
from fovea.runtime.config_file import read_config
from fovea.serving.serving_config import MergeConfig, ServingConfig


class GateConfig(Part):
    """When a frame is still hard after the edge has looked: the doubt that one unit of each thing adds, 0 turning it
    off (see `fovea.core.gate`). Together the usual ones send about a third of the frames of a busy street on."""

    uncertain_boxes: Annotated[float, Field(ge=0, le=1000)] = 0.27
    """a box with a middling score"""
    weak_mass: Annotated[float, Field(ge=0, le=1000)] = 0.54
    """a score of 1, made of boxes too weak to be answered"""
    contradictions: Annotated[float, Field(ge=0, le=1000)] = 0.1
    """a thing that the camera was sure of and the edge did not see"""
    ask_from: Annotated[float, Field(gt=0, le=1)] = 0.7
    """the cloud is asked from this probability on; a doubt of 1 is 0.7"""


class BudgetConfig(Part):
    """What may be asked of the cloud; audits come on top."""

    asks_per_s: Annotated[float, Field(ge=0, le=10_000)] = 2.0
    """frames per second on average"""
    bytes_per_s: Annotated[float, Field(ge=0, le=10**10)] = 500_000.0
    """bytes of pictures per second on average"""
    burst_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """seconds of budget that may be saved up"""


class SpoolConfig(Part):
    """Cases of cameras that send them here, until they are at the cloud."""

    folder: FilePath
    """the folder that they wait in"""
    max_bytes: Annotated[int, Field(ge=1_000_000)] = 2_000_000_000
    """what they take on disk at most"""
    max_cases: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """how many they are at most"""
    min_free_bytes: Annotated[int, Field(ge=0)] = 500_000_000
    """what is left free on the disk; with less, new ones are refused"""
    upload_bytes_per_s: Annotated[float, Field(gt=0)] = 500_000.0
    """how fast they are sent on"""


class CloudConfig(Part):
    """The tier above, for what is hard."""

    address: PeerAddress
    """host:port of the cloud's gRPC"""
    tls: TlsConfig | None = None
    """certificates of this side towards the cloud; plain text when it is left out"""
    timeout_ms: Annotated[float, Field(gt=0, le=60_000)] = 2000.0
    """how long an answer is waited for at most; a caller with less time waits less"""
    margin_ms: Annotated[float, Field(ge=0, le=10_000)] = 20.0
    """how long before its own deadline the edge answers without the cloud"""
    least_ms: Annotated[float, Field(ge=0, le=60_000)] = 50.0
    """with less time left the cloud is not asked"""
    max_in_flight: Annotated[int, Field(ge=1, le=256)] = 4
    """frames that wait for the cloud at once, at most"""
    gate: GateConfig = GateConfig()
    """what makes a frame hard"""
    budget: BudgetConfig = BudgetConfig()
    """what may be asked"""
    audit_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of the other frames that the cloud is asked about all the same, drawn at random"""
    spool: SpoolConfig | None = None
    """takes cases of cameras without a way to the cloud and sends them on; not done when it is left out"""

    def resolved(self, folder: Path) -> CloudConfig:
        """The same with paths that do not depend on the current folder."""
        spool = self.spool and self.spool.model_copy(update={"folder": str(folder / self.spool.folder)})
        return self.model_copy(update={"tls": self.tls and self.tls.resolved(folder), "spool": spool})


class EdgeUpdatesConfig(UpdatesConfig):
    """Signed models from a release repository, tried before they run. `bundle` is then the factory model: the one of
    the first start, and the last way back. `folder` has to outlive updates of the system."""

    device: Annotated[str, Field(min_length=1, max_length=200)]
    """the name of this edge in what it reports"""
    mqtt: BrokerConfig | None = None
    """the broker that is told which model runs, and hints at news; by itself it polls and tells /healthz alone"""

    def resolved(self, folder: Path) -> Self:
        """The same with paths that do not depend on the current folder."""
        return super().resolved(folder).model_copy(update={"mqtt": self.mqtt and self.mqtt.resolved(folder)})


class EdgeConfig(ServingConfig):
    """Everything an edge server is told. Relative paths are relative to the folder of the file."""

    tuned_file: FilePath | None = None
    """what `fovea edge autotune --config` found best on this machine: its bundle and threads replace those here"""
    merge: MergeConfig = MergeConfig()
    """how the answers of several tiers become one"""
    cloud: CloudConfig | None = None
    """the tier above; the edge works alone when it is left out"""
    updates: EdgeUpdatesConfig | None = None
    """where other models come from; `bundle` runs for ever when it is left out"""

    @model_validator(mode="after")
    def _check_spool(self) -> Self:
        spool = None if self.cloud is None else self.cloud.spool
        if spool is not None and spool.max_bytes < self.limits.max_request_bytes:
            # A case that never fits would be offered again for ever.
            raise ValueError(
                f"cloud.spool.max_bytes: expected room for a request of limits.max_request_bytes, "
                f"{self.limits.max_request_bytes}, got {spool.max_bytes}"
            )
        return self

    def resolved(self, folder: Path) -> EdgeConfig:
        """The same with paths that do not depend on the current folder."""
        return self.model_copy(
            update={
                "bundle": resolved_bundle(self.bundle, folder),
                "tuned_file": self.tuned_file and str(folder / self.tuned_file),
                "tls": self.tls and self.tls.resolved(folder),
                "cloud": self.cloud and self.cloud.resolved(folder),
                "updates": self.updates and self.updates.resolved(folder),
            }
        )


def load_config(path: Path) -> EdgeConfig:
    """Raises NotFound, and Malformed with every mistake, its line and what was allowed."""
    return read_config(path, EdgeConfig).resolved(path.absolute().parent)
