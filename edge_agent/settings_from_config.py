"""From what a configuration says to the values that the parts of an agent take. Reads secret files; opens nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from edge_agent.agent import AgentSettings
from edge_agent.camera_config import CameraConfig
from edge_agent.capture.camera_state import CameraSettings
from edge_agent.capture.mask import Polygon
from edge_agent.capture.motion import MotionSettings
from edge_agent.capture.source import Decoding, SourceSpec, Stream
from edge_agent.config import AgentConfig, BestWithin, EdgeLinkConfig, GateConfig, WebhookConfig
from edge_agent.idle import IdleSettings, IdleStep
from edge_agent.publish.webhook import WebhookSettings
from edge_agent.publish.zones import ObjectFilter, ObjectSettings, Zone
from edge_agent.tier_choice import QoeSettings
from edge_agent.track.tracker_settings import TrackerSettings
from fovea.core.deciding import DecideSettings
from fovea.core.features import FeatureSettings
from fovea.core.gate import RuleGateSettings
from fovea.core.labels import label_named
from fovea.core.qoe import Priorities
from fovea.core.regions import RegionSettings
from fovea.core.routing import Route
from fovea.link.encoding import PixelEncoding
from fovea.link.upstream import UpstreamSettings
from fovea.process.config_parts import read_pems
from fovea.process.secret_file import read_secret

_FRAMES_TO_LOSE = 5
"""A track outlasts so many frames of a slow camera."""


def source_spec(config: CameraConfig) -> SourceSpec:
    """Raises NotFound and Malformed for a password file."""
    return SourceSpec(
        url=config.url,
        username=config.username,
        password=_password(f"password_file of camera {config.name}", config.password, config.password_file),
        sub_url=config.sub_url,
        stream=Stream(config.stream),
        open_timeout_s=config.open_timeout_s,
        read_timeout_s=config.read_timeout_s,
        decoding=Decoding(config.decoding),
        start=config.start,
        limit=config.limit,
        is_looped=config.loop,
    )


def camera_settings(config: CameraConfig) -> CameraSettings:
    masks = tuple(Polygon(_corners(corners)) for corners in config.masks)
    return CameraSettings(
        fps=config.fps if config.realtime else None, masks=masks, is_realtime=config.realtime
    )


def motion_settings(config: CameraConfig) -> MotionSettings | None:
    """None where every frame is looked at."""
    if not config.motion.enabled:
        return None
    return MotionSettings(least_share=config.motion.min_share, forced_every_s=config.motion.force_every_s)


def tracker_settings(config: CameraConfig) -> TrackerSettings:
    """The usual, with more patience where frames are far apart, be it only while nothing moves."""
    usual = TrackerSettings()
    if config.fps is None or not config.realtime:
        return usual
    fps = config.fps
    if config.idle is not None:
        fps = max(fps * config.idle.deep_fps_share, min(config.idle.least_fps, fps))
    frames_s = _FRAMES_TO_LOSE / fps
    return replace(
        usual,
        coast_s=max(usual.coast_s, 2 / fps),
        vanish_s=max(usual.vanish_s, 2 / fps),
        lost_after_s=max(usual.lost_after_s, frames_s),
        history_s=max(usual.history_s, frames_s),
    )


def idle_settings(config: CameraConfig, models: int) -> IdleSettings | None:
    """None for a camera that is never idle; `models`: how many there are to look with."""
    idle = config.idle
    if idle is None:
        return None
    steps = (
        IdleStep(idle.after_s, idle.fps_share),
        IdleStep(idle.deep_after_s, idle.deep_fps_share, min(1, models - 1)),
    )
    return IdleSettings(steps, idle.least_fps, models)


def qoe_settings(config: AgentConfig, own_quality: float) -> QoeSettings | None:
    """None where the gate's word alone counts. `own_quality`: 0..1, AP of the camera's model. Raises Malformed for a
    label that can be none."""
    qoe = config.qoe
    if not qoe.enabled:
        return None
    labels = {label_named(name).id: told for name, told in qoe.labels.items()}
    cameras = {camera.name: camera.qoe for camera in config.cameras}
    return QoeSettings(
        weights=qoe.weights.weights(),
        by_camera={name: told.weights.weights() for name, told in cameras.items() if told.weights},
        by_label={label: told.weights.weights() for label, told in labels.items() if told.weights},
        priorities=Priorities(
            qoe.usual_priority,
            {name: told.priority for name, told in cameras.items() if told.priority is not None},
            {label: told.priority for label, told in labels.items() if told.priority is not None},
        ),
        own_quality=own_quality,
        hold_s=agent_settings(config).hold_s,
    )


def object_settings(config: CameraConfig) -> ObjectSettings:
    filters = config.filters
    return ObjectSettings(
        ObjectFilter(_labels(filters.labels), filters.min_score, filters.min_area, filters.max_area),
        tuple(Zone(zone.name, _corners(zone.corners), _labels(zone.labels)) for zone in config.zones),
    )


def rule_gate_settings(config: GateConfig) -> RuleGateSettings:
    return RuleGateSettings(
        config.uncertain_boxes, config.weak_mass, config.vanished_tracks, config.unexplained_motion
    )


def feature_settings(config: GateConfig) -> FeatureSettings:
    return FeatureSettings(sure_from=config.sure_from)


def decide_settings(config: AgentConfig) -> DecideSettings:
    return DecideSettings(config.gate.ask_from, config.audit_share, _route(config))


def agent_settings(config: AgentConfig) -> AgentSettings:
    usual = AgentSettings()
    return AgentSettings(
        ask_timeout_s=usual.ask_timeout_s if config.edge is None else config.edge.timeout_ms / 1000,
        hold_s=config.answer.best_within_ms / 1000 if isinstance(config.answer, BestWithin) else None,
        sample_share=0.0 if config.spool is None else config.spool.sample_share,
        tell_from=config.tell_from,
        ask_from=config.gate.ask_from,
        route=_route(config),
    )


def upstream_settings(config: EdgeLinkConfig) -> UpstreamSettings:
    """Raises NotFound and Malformed for certificates."""
    return UpstreamSettings(
        encoding=PixelEncoding(config.encoding),
        jpeg_quality=config.jpeg_quality,
        tls=None if config.tls is None else read_pems(config.tls, "edge.tls"),
    )


def region_settings(config: EdgeLinkConfig) -> RegionSettings | None:
    """None where whole frames are always asked about."""
    return RegionSettings() if config.regions == "auto" else None


def webhook_settings(config: WebhookConfig) -> WebhookSettings:
    """Raises NotFound and Malformed for a token file, Malformed for the address."""
    return WebhookSettings(
        url=config.url,
        token=_password("webhook.token_file", None, config.token_file),
        token_header=config.token_header,
        timeout_s=config.timeout_s,
        max_events=config.max_events,
    )


def _route(config: AgentConfig) -> Route:
    return Route.EDGE if config.edge is None else Route(config.edge.tier)


def _password(name: str, given: SecretStr | None, file: str | None) -> str | None:
    if file is not None:
        return read_secret(name, Path(file))
    return None if given is None else given.get_secret_value()


def _corners(corners: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((x, y) for x, y in corners)


def _labels(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
