"""From a configuration to the parts of an agent: the only place that names concrete classes."""

from __future__ import annotations

import logging
import math
import random
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from edge_agent import policy_config
from edge_agent import settings_from_config as settings
from edge_agent.agent import Agent, AgentParts, Seat
from edge_agent.built_agent import BuiltAgent, plain_counts, status_of
from edge_agent.camera_config import CameraConfig
from edge_agent.capture.camera import Camera, CameraPhase, CameraState
from edge_agent.capture.motion import MotionGate
from edge_agent.case_keeping import CaseKeeping
from edge_agent.clock import SystemClock
from edge_agent.config import AgentConfig, EdgeLinkConfig, MqttConfig, SpoolConfig
from edge_agent.escalation import Escalation
from edge_agent.figures import AgentView
from edge_agent.foresight import Foresight
from edge_agent.frame_walk import FrameWalk, Judging, MotionSense
from edge_agent.idle import IdleStepper
from edge_agent.idling import Idling, SteppedDetector
from edge_agent.inbox import Inbox
from edge_agent.metrics import PrometheusMetrics
from edge_agent.observing import Observers
from edge_agent.outage import OutageTeller
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import FanOut, Publisher
from edge_agent.publish.zones import ObjectWatch
from edge_agent.purse import Purse, purse_for
from edge_agent.results_file import ResultsFile
from edge_agent.stats import AgentStats
from edge_agent.tier_choice import TierChoice
from edge_agent.track.tracker import Tracker
from fovea import __version__
from fovea.core.budget import Budget
from fovea.core.gate import Gate, RuleGate
from fovea.core.latency import EwmaPredictor
from fovea.core.learned_gate import gate_from_json
from fovea.core.ports import Clock, Detector
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader, UploaderSettings
from fovea.link.link import Link, LinkState, LinkStatus, Listener
from fovea.link.spool_index import SpoolLimits
from fovea.link.upstream import Upstream
from fovea.link.upstreams import Upstreams
from fovea.process.config_parts import bundle_path
from fovea.process.resources import ResourceMonitor, machine_monitor
from fovea.runtime.autotune import quality_of
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector, nms_for_answers

_log = logging.getLogger(__name__)

_DEVICE = "cpu"
_JPEG_QUALITY = 90
_UNKNOWN_QUALITY = 0.5
"""Of a model whose report says nothing."""


def build(config: AgentConfig, detector: Detector | None = None, clock: Clock | None = None) -> BuiltAgent:
    """Loads the model and makes everything ready; nothing is waited for but the disk. `detector`, which is then the
    agent's own, takes the place of the bundle's, and `clock` that of the machine's.

    Raises NotFound and Malformed (files that the configuration names), Incompatible, DetectorFailed (the model),
    Unavailable and BrokenError (the spool's folder).
    """
    clock = clock or SystemClock()
    boot_id, inbox, outage = secrets.token_hex(6), Inbox(), OutageTeller()
    bundle = Bundle.open(bundle_path(config.bundle))
    config = policy_config.with_policy(config, bundle.policies())
    names = LabelNames(bundle.manifest.label_set)
    publisher = FanOut(_publishers(config, names, bundle.manifest.labels))
    cameras = {
        camera.name: Camera(
            camera.name,
            settings.source_spec(camera),
            settings.camera_settings(camera),
            clock,
            boot_id,
            inbox.frame_ready,
            partial(_tell_camera, publisher, inbox),
        )
        for camera in config.cameras
    }
    judging = _judging(bundle, config)
    ab = policy_config.ab_test(config, bundle.policies(), judging, clock)
    if ab is not None:
        judging = replace(judging, decide_now=lambda: ab.decide)
    detector = detector or _opened(bundle, config, judging)
    detectors = [detector]
    if config.idle_bundle is not None:
        cheaper = Bundle.open(bundle_path(config.idle_bundle))
        detectors.append(_opened(cheaper, config, judging))
        names.learn(cheaper.manifest.label_set)
    spool = None if config.spool is None else _spool(config.spool)
    metrics = PrometheusMetrics(detector.ref, _DEVICE)
    stats = AgentStats(cameras, clock)
    observer = Observers([metrics, stats])
    keeping = CaseKeeping(spool, _JPEG_QUALITY if config.edge is None else config.edge.jpeg_quality)
    escalation = None
    if config.edge is not None:
        link = _link(config.edge, partial(_tell_link, outage))
        in_flight = config.edge.max_in_flight
        escalation = Escalation(link, keeping, in_flight, clock, inbox.errand_ended, observer)
    monitor = machine_monitor(lambda: inbox.waiting, config.resources_every_ms / 1000, clock.monotonic_s)
    foresight = Foresight(bundle.find_latency() or EwmaPredictor())
    agent = Agent(
        {
            camera.name: _seat(
                camera,
                cameras[camera.name],
                detectors,
                ObjectWatch(camera.name, boot_id, names, settings.object_settings(camera)),
                judging,
                clock,
            )
            for camera in config.cameras
        },
        AgentParts(
            inbox,
            escalation,
            keeping,
            _purse(config, judging.gate) if ab is None else ab.purse,
            publisher,
            observer,
            names,
            outage,
            foresight,
            _tier_choice(config, bundle, foresight, monitor),
            ab,
        ),
        policy_config.agent_settings(config, bundle.policies()),
        clock,
        random.Random().random,
    )
    uploader = _uploader(config.spool, spool, escalation)
    view = AgentView(
        config.device,
        detector.ref,
        agent,
        cameras,
        stats,
        escalation,
        keeping,
        lambda: {} if spool is None else plain_counts(spool.counts),
        lambda: {} if uploader is None else plain_counts(uploader.counts),
        publisher,
        clock,
        config.stuck_after_s,
        monitor.facts,
        foresight.figures,
        dict if ab is None else ab.figures,
    )
    metrics.watch(view.figures)
    return BuiltAgent(
        tuple(detectors),
        agent,
        cameras,
        keeping,
        escalation,
        spool,
        uploader,
        publisher,
        metrics,
        stats,
        view,
        monitor,
    )


def _opened(bundle: Bundle, config: AgentConfig, judging: Judging) -> Detector:
    nms = nms_for_answers(bundle, judging.features.candidates_from)
    return OnnxDetector.open(bundle, _DEVICE, config.threads, nms)


def _publishers(config: AgentConfig, names: LabelNames, labels: Sequence[str]) -> list[Publisher]:
    """Loads the clients of broker and webhook only where they are wanted: both take memory."""
    publishers: list[Publisher] = []
    if config.results_file is not None:
        publishers.append(ResultsFile(Path(config.results_file), config.device, names))
    if config.webhook is not None:
        from edge_agent.publish.webhook import Webhook

        publishers.append(Webhook(settings.webhook_settings(config.webhook), config.device))
    if config.mqtt is not None:
        publishers.append(_mqtt(config, config.mqtt, names, labels))
    return publishers


def _mqtt(config: AgentConfig, mqtt: MqttConfig, names: LabelNames, labels: Sequence[str]) -> Publisher:
    from edge_agent.publish.home_assistant import AnnouncedCamera, announcements
    from edge_agent.publish.mqtt_publisher import MqttPublisher

    announced = [
        AnnouncedCamera(
            camera.name,
            camera.filters.labels or labels,
            [(zone.name, zone.labels or camera.filters.labels or labels) for zone in camera.zones],
        )
        for camera in config.cameras
    ]
    return MqttPublisher(
        mqtt.settings(),
        config.device,
        [camera.name for camera in config.cameras],
        names,
        announcements(config.device, announced, __version__) if mqtt.home_assistant else None,
    )


def _spool(config: SpoolConfig) -> CaseSpool:
    limits = SpoolLimits(config.max_bytes, config.max_cases, config.min_free_bytes)
    return CaseSpool.open(Path(config.folder), limits)


def _link(config: EdgeLinkConfig, listener: Listener) -> Link:
    wanted = settings.upstream_settings(config)
    links: list[Link] = [Upstream(address, wanted) for address in (config.address, *config.fallbacks)]
    link = links[0] if len(links) == 1 else Upstreams(links)
    link.listen(listener)
    return link


def _judging(bundle: Bundle, config: AgentConfig) -> Judging:
    """With the gate that was fitted for the model, or the hand-set rules for a model without one."""
    features = settings.feature_settings(config.gate)
    gate: Gate = RuleGate(settings.rule_gate_settings(config.gate))
    found = bundle.find_gate()
    if found is not None:
        gate = fitted = gate_from_json(found)
        features = replace(features, class_weights=fitted.class_weights)
    return Judging(
        gate,
        settings.decide_settings(config),
        features,
        tell_from=config.tell_from,
        is_edge_meant=config.edge is not None,
    )


def _purse(config: AgentConfig, gate: Gate) -> Purse:
    budget = Budget(config.budget.asks_per_s, config.budget.bytes_per_s or math.inf, config.budget.burst_s)
    return purse_for(gate, budget)


def _tier_choice(
    config: AgentConfig, bundle: Bundle, foresight: Foresight, monitor: ResourceMonitor
) -> TierChoice | None:
    quality = quality_of(bundle)
    qoe = settings.qoe_settings(config, _UNKNOWN_QUALITY if quality is None else quality)
    return None if qoe is None else TierChoice(qoe, foresight, lambda: monitor.state)


def _seat(
    config: CameraConfig,
    camera: Camera,
    detectors: Sequence[Detector],
    watch: ObjectWatch,
    judging: Judging,
    clock: Clock,
) -> Seat:
    motion, idle = settings.motion_settings(config), settings.idle_settings(config, len(detectors))
    sense: MotionSense | None = None if motion is None else MotionGate(motion)
    idling: Idling | None = None
    detector = detectors[0]
    if sense is not None and idle is not None and config.fps is not None:
        sense = idling = Idling(sense, IdleStepper(config.fps, idle), camera.set_fps)
        detector = SteppedDetector(detectors, idling)
    tracker = Tracker(settings.tracker_settings(config))
    return Seat(camera, FrameWalk(detector, sense, tracker, judging, clock), watch, idling=idling)


def _uploader(
    config: SpoolConfig | None, spool: CaseSpool | None, escalation: Escalation | None
) -> CaseUploader | None:
    if config is None or spool is None or escalation is None:
        return None
    pace = UploaderSettings(bytes_per_s=config.upload_bytes_per_s)
    uploader = CaseUploader(spool, escalation.link.deliver, pace, lambda: escalation.in_flight > 0)
    escalation.link.listen(uploader.link_changed)
    return uploader


def _tell_camera(publisher: Publisher, inbox: Inbox, state: CameraState) -> None:
    publisher.publish_status(state.camera, status_of(state))
    if state.phase is CameraPhase.LOST:
        inbox.camera_lost(state.camera)


def _tell_link(outage: OutageTeller, state: LinkState) -> None:
    if said := outage.link_changed(state):
        _log.log(logging.INFO if state.status is LinkStatus.UP else logging.WARNING, "%s", said)
