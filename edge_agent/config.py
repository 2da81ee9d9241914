"""The configuration of an agent: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from edge_agent.camera_config import CameraConfig, Name, QoeWeightsConfig, Share
from edge_agent.updates.config import AgentUpdatesConfig
from fovea.core.detections import TOLD_FROM
from fovea.mqtt.config import BrokerConfig
from fovea.process.config_parts import (
    Address,
    BundleName,
    FilePath,
    LogConfig,
    Part,
    PeerAddress,
    TlsConfig,
    resolved_bundle,
)
from fovea.runtime.config_file import read_config


class EdgeLinkConfig(Part):
    """Who is asked for a sharper look."""

    address: PeerAddress
    """host:port, or unix:PATH on the same machine"""
    fallbacks: list[PeerAddress] = Field(default_factory=list)
    """asked in this order while those before are down"""
    tier: Literal["edge", "cloud"] = "edge"
    """which tier is at that address: a camera without an edge box may ask the cloud itself"""
    tls: TlsConfig | None = None
    """certificates; plain text when it is left out"""
    timeout_ms: Annotated[float, Field(ge=10, le=60_000)] = 1500.0
    """how long after its capture an answer to a frame is worth having"""
    encoding: Literal["auto", "jpeg", "png", "raw"] = "auto"
    """how pictures travel; auto: raw within this machine, jpeg to others"""
    jpeg_quality: Annotated[int, Field(ge=30, le=100)] = 90
    """of pictures that travel as jpeg, and of those in the spool"""
    regions: Literal["auto", "never"] = "never"
    """auto: only the parts of a frame are sent that hold the doubt about it, where these are few and whoever is asked
    takes such pictures; audits are whole frames always"""
    max_in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    """questions under way at most"""


class GateConfig(Part):
    """When a frame is worth a question: the doubt that one unit of each thing adds, 0 turning it off (see
    `fovea.core.gate`). Where the model's bundle carries a gate of its own, only ask_from holds."""

    ask_from: Annotated[float, Field(gt=0, le=1)] = 0.7
    """a frame with this probability that asking pays is asked about"""
    sure_from: Share = 0.6
    """answered boxes with a lower score are uncertain"""
    uncertain_boxes: Annotated[float, Field(ge=0, le=1000)] = 0.15
    """a box with a middling score"""
    weak_mass: Annotated[float, Field(ge=0, le=1000)] = 0.35
    """a score of 1, made of boxes too weak to be answered"""
    vanished_tracks: Annotated[float, Field(ge=0, le=1000)] = 0.28
    """a track that ends without leaving"""
    unexplained_motion: Annotated[float, Field(ge=0, le=1000)] = 1.4
    """the whole picture moving without a box"""


class LabelQoeConfig(Part):
    """How frames are weighed in which this label was seen."""

    priority: Share | None = None
    """of such frames; of several the highest counts"""
    weights: QoeWeightsConfig | None = None
    """those of the camera when they are left out"""


class QoeConfig(Part):
    """Which of the tiers that may be asked looks at a frame: the one of the best quality of experience. Where the
    gate estimates no gain, its word alone counts."""

    enabled: bool = True
    """false: the gate's word alone counts"""
    weights: QoeWeightsConfig = QoeWeightsConfig()
    """of all cameras that say nothing else"""
    usual_priority: Share = 0.5
    """of frames of which nobody says anything else"""
    labels: dict[str, LabelQoeConfig] = Field(default_factory=dict)
    """what is different for frames with a label in them, by its name"""


class AbConfig(Part):
    """Two policies of the bundle side by side on live cameras; `fovea policy compare` tells them apart. They decide
    who is asked and how much; the rest stays as it is configured."""

    a: str
    """a policy of the bundle"""
    b: str
    """another one"""
    share_b: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """the share that is for b"""
    by: Literal["frame", "slice", "camera"] = "slice"
    """what belongs together: each frame alone, a camera for slice_s seconds, or a camera for good"""
    slice_s: Annotated[float, Field(ge=1, le=86_400)] = 60.0
    """how long a slice is"""
    salt: str = ""
    """another one deals the frames anew"""


class BudgetConfig(Part):
    """What questions may cost; audits come on top."""

    asks_per_s: Annotated[float, Field(gt=0, le=10_000)] = 2.0
    """questions per second on the average, of all cameras together"""
    bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    """bytes of pictures per second on the average; null: no limit but that of the questions"""
    burst_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """how many seconds of unused budget are kept"""


class BestWithin(Part):
    """Hold a frame's own answer back for a better one."""

    best_within_ms: Annotated[float, Field(ge=1, le=10_000)]
    """so long after its capture; then its own answer is published, and the better one when it comes"""


class MqttConfig(BrokerConfig):
    """The broker. With `tls: {}` its certificate is checked against the authorities of the system."""

    home_assistant: bool = False
    """announce cameras and counts to Home Assistant"""


class WebhookConfig(Part):
    """Events by HTTP POST."""

    url: Annotated[str, Field(pattern=r"^https?://[^@\s]+$")]
    """http(s)://, without credentials"""
    token_file: FilePath | None = None
    """a file whose first line is sent as the token"""
    token_header: Annotated[str, Field(min_length=1)] = "Authorization"
    """the header that carries it, as it is; for Authorization the file says `Bearer ...`"""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """how long one POST may take"""
    max_events: Annotated[int, Field(ge=1, le=100_000)] = 200
    """events that wait at most; the oldest are dropped"""


class SpoolConfig(Part):
    """Hard cases on this device's disk, until the tier above has them."""

    folder: FilePath
    """where they lie; nobody else uses this folder"""
    max_bytes: Annotated[int, Field(ge=1_000_000)] = 500_000_000
    """their size at most"""
    max_cases: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """their number at most"""
    min_free_bytes: Annotated[int, Field(ge=0)] = 200_000_000
    """room that is left on the disk for others"""
    upload_bytes_per_s: Annotated[float, Field(gt=0)] = 250_000.0
    """how fast they are handed up, while no question is under way"""
    sample_share: Share = 0.0
    """the share of looked-at frames that is kept at random, too"""


class AgentConfig(Part):
    """Everything an agent is told. Relative paths are relative to the folder of the file."""

    device: Name
    """the name of this device, in topics and cases"""
    bundle: BundleName
    """the model: a .fovea file, or zoo:NAME for a bundled one"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads of the model"""
    tuned_file: FilePath | None = None
    """what `fovea agent autotune --config` found best on this board: its bundle and threads replace these"""
    idle_bundle: BundleName | None = None
    """a cheaper model for cameras that have been idle for long; the usual one looks when it is left out"""
    cameras: Annotated[list[CameraConfig], Field(min_length=1, max_length=256)]
    """at least one camera; all share the model"""
    edge: EdgeLinkConfig | None = None
    """who is asked for a sharper look; nobody when it is left out"""
    tell_from: Share = TOLD_FROM
    """boxes with this score or more are told and followed; weaker ones only go up with a question, for merging"""
    gate: GateConfig = GateConfig()
    """when a frame is worth a question"""
    budget: BudgetConfig = BudgetConfig()
    """what questions may cost"""
    policy: str | None = None
    """a policy of the bundle; takes the place of gate.ask_from, budget, tell_from and qoe.weights"""
    ab: AbConfig | None = None
    """two policies of the bundle that are compared"""
    qoe: QoeConfig = QoeConfig()
    """which of the tiers that may be asked looks at a frame"""
    audit_share: Share = 0.015
    """the share of looked-at frames that is sent up at random, for an unbiased estimate"""
    answer: Annotated[
        Annotated[Literal["first"], Tag("first")] | Annotated[BestWithin, Tag("held")],
        Discriminator(lambda given: "first" if isinstance(given, str) else "held"),
    ] = "first"
    """first: publish the own answer at once; or {best_within_ms: N}: hold it back so long for a better one"""
    mqtt: MqttConfig | None = None
    """the broker; nothing is published there when it is left out"""
    webhook: WebhookConfig | None = None
    """where events are posted to"""
    spool: SpoolConfig | None = None
    """where hard cases are kept; nowhere when it is left out"""
    updates: AgentUpdatesConfig | None = None
    """where other models come from; `bundle` runs for ever when it is left out"""
    resources_every_ms: Annotated[float, Field(ge=50, le=60_000)] = 500.0
    """how often CPU, memory, heat, GPU and queue of this machine are looked at"""
    metrics: Address | None = None
    """host:port for Prometheus and /healthz; nothing listens when it is left out"""
    log: LogConfig = LogConfig()
    """what is said while it runs"""
    results_file: FilePath | None = None
    """every published result as a line of JSON, appended"""
    stats_file: FilePath | None = None
    """the figures of this moment as JSON, written anew every second"""
    exit_when_finished: bool = False
    """end when every camera is a file that has come to its end"""
    stuck_after_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """a frame that takes longer counts as hung: systemd's watchdog is not fed any more"""

    @model_validator(mode="after")
    def _one_policy(self) -> AgentConfig:
        if self.policy is not None and self.ab is not None:
            raise ValueError("expected policy or ab, got both")
        if self.ab is not None and self.edge is None:
            raise ValueError("ab: expected an edge to be asked, there is none")
        if self.ab is not None and self.updates is not None:
            raise ValueError("expected ab or updates, got both: policies are compared on one model")
        return self

    @model_validator(mode="after")
    def _names_once(self) -> AgentConfig:
        names = [camera.name for camera in self.cameras]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"cameras: expected each name once, got {', '.join(twice)} more often")
        return self

    def resolved(self, folder: Path) -> AgentConfig:
        """The same with paths that do not depend on the current folder."""

        def file(path: str | None) -> str | None:
            return path and str(folder / path)

        edge, mqtt, webhook, spool = self.edge, self.mqtt, self.webhook, self.spool
        if edge is not None and edge.tls is not None:
            edge = edge.model_copy(update={"tls": edge.tls.resolved(folder)})
        if mqtt is not None:
            mqtt = mqtt.resolved(folder)
        if webhook is not None:
            webhook = webhook.model_copy(update={"token_file": file(webhook.token_file)})
        if spool is not None:
            spool = spool.model_copy(update={"folder": file(spool.folder)})
        return self.model_copy(
            update={
                "bundle": resolved_bundle(self.bundle, folder),
                "tuned_file": file(self.tuned_file),
                "idle_bundle": self.idle_bundle and resolved_bundle(self.idle_bundle, folder),
                "cameras": [camera.resolved(folder) for camera in self.cameras],
                "edge": edge,
                "mqtt": mqtt,
                "webhook": webhook,
                "spool": spool,
                "updates": self.updates and self.updates.resolved(folder),
                "results_file": file(self.results_file),
                "stats_file": file(self.stats_file),
            }
        )


def load_config(path: Path) -> AgentConfig:
    """Raises NotFound, and Malformed with every mistake, its line and what was allowed."""
    return read_config(path, AgentConfig).resolved(path.absolute().parent)
