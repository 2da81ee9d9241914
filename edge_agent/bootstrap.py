"""From a configuration to the parts of an agent: the only place that names concrete classes."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent import policy_config
from edge_agent import settings_from_config as settings
from edge_agent.agent import Agent, AgentParts, Seat
from edge_agent.built_agent import BuiltAgent, plain_counts, status_of
from edge_agent.camera_config import CameraConfig
from edge_agent.capture.camera import Camera, CameraPhase, CameraState
from edge_agent.capture.motion import MotionGate
from edge_agent.case_keeping import CaseKeeping
from edge_agent.config import AgentConfig, EdgeLinkConfig, MqttConfig, SpoolConfig
from edge_agent.escalation import Ended, Escalation, OnEnd
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
from edge_agent.regime import Regimes, judging_of
from edge_agent.results_file import ResultsFile
from edge_agent.stats import AgentStats
from edge_agent.track.tracker import Tracker
from fovea import __version__
from fovea.core.latency import EwmaPredictor
from fovea.core.ports import Clock, Detector
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader, UploaderSettings
from fovea.link.link import Link, LinkState, LinkStatus, Listener
from fovea.link.spool_index import SpoolLimits
from fovea.link.upstream import Upstream
from fovea.link.upstreams import Upstreams
from fovea.process.clock import SystemClock
from fovea.process.config_parts import bundle_path
from fovea.process.resources import machine_monitor
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector, nms_for_answers

if TYPE_CHECKING:
    from edge_agent.updates.bootstrap import Booted

_log = logging.getLogger(__name__)

_DEVICE = "cpu"
_JPEG_QUALITY = 90


def build(config: AgentConfig, detector: Detector | None = None, clock: Clock | None = None) -> BuiltAgent:
    """Loads the model and makes everything ready; nothing is waited for but the disk. `detector`, which is then the
    agent's own, takes the place of the bundle's, and `clock` that of the machine's.

    Raises NotFound and Malformed (files that the configuration names), Incompatible, DetectorFailed (the model),
    Unavailable and BrokenError (the spool's folder).
    """
    clock = clock or SystemClock()
    boot_id, inbox, outage = secrets.token_hex(6), Inbox(), OutageTeller()
    bundle, own, booted = _running(config, detector)
    monitor = machine_monitor(lambda: inbox.waiting, config.resources_every_ms / 1000, clock.monotonic_s)
    foresight = Foresight(bundle.find_latency() or EwmaPredictor())
    regimes = Regimes(config, foresight, lambda: monitor.state)
    regime = regimes.of(bundle)
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
    ab = policy_config.ab_test(config, bundle.policies(), regime.judging, clock)
    if ab is not None:
        regime = replace(
            regime, judging=replace(regime.judging, decide_now=lambda: ab.decide), purse=ab.purse
        )
    detectors = [own]
    if config.idle_bundle is not None:
        cheaper = Bundle.open(bundle_path(config.idle_bundle))
        detectors.append(_opened(cheaper, config, regime.judging))
        names.learn(cheaper.manifest.label_set)
    spool = None if config.spool is None else _spool(config.spool)
    metrics = PrometheusMetrics(own.ref, _DEVICE)
    stats = AgentStats(cameras, clock)
    observer = Observers([metrics, stats] if booted is None else [metrics, stats, booted.watch])
    on_end: OnEnd = inbox.errand_ended
    host = updates = None
    if booted is not None:
        host = booted.host(regime, regimes, names, monitor, metrics.model_changed, clock)
        on_end = partial(_tell_both, inbox.errand_ended, host.ended)
    keeping = CaseKeeping(spool, _JPEG_QUALITY if config.edge is None else config.edge.jpeg_quality)
    escalation = None
    if config.edge is not None:
        link = _link(config.edge, partial(_tell_link, outage))
        in_flight = config.edge.max_in_flight
        regions = settings.region_settings(config.edge)
        escalation = Escalation(link, keeping, in_flight, clock, on_end, observer, regions)
    agent = Agent(
        {
            camera.name: _seat(
                camera,
                cameras[camera.name],
                detectors,
                ObjectWatch(camera.name, boot_id, names, settings.object_settings(camera)),
                regime.judging,
                clock,
            )
            for camera in config.cameras
        },
        AgentParts(
            inbox,
            escalation,
            keeping,
            regime.purse,
            publisher,
            observer,
            names,
            outage,
            foresight,
            regime.choice,
            ab,
        ),
        regime.settings,
        clock,
        random.Random().random,
    )
    if booted is not None and host is not None:
        from edge_agent.updates.bootstrap import AgentUpdates

        updates = AgentUpdates(config, booted, host, agent, publisher, boot_id, clock)
    uploader = _uploader(config.spool, spool, escalation)
    view = AgentView(
        config.device,
        own,
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
        dict if updates is None else updates.figures,
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
        updates,
    )


def _running(config: AgentConfig, detector: Detector | None) -> tuple[Bundle, Detector, Booted | None]:
    """The model to begin with, made ready: that of the configuration, or, where others come by themselves, the one
    that was running last. What updates need is loaded only where they are wanted: it takes memory."""

    def opened(bundle: Bundle) -> Detector:
        return _opened(
            bundle, config, judging_of(bundle, policy_config.with_policy(config, bundle.policies()))
        )

    bundle = Bundle.open(bundle_path(config.bundle))
    if config.updates is None:
        return bundle, detector or opened(bundle), None
    from edge_agent.updates.bootstrap import Booted

    booted = Booted.from_disk(config.updates, bundle, opened, detector)
    return booted.running, booted.slot, booted


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


def _tell_both(first: OnEnd, second: OnEnd, ended: Ended) -> None:
    first(ended)
    second(ended)


def _tell_camera(publisher: Publisher, inbox: Inbox, state: CameraState) -> None:
    publisher.publish_status(state.camera, status_of(state))
    if state.phase is CameraPhase.LOST:
        inbox.camera_lost(state.camera)


def _tell_link(outage: OutageTeller, state: LinkState) -> None:
    if said := outage.link_changed(state):
        _log.log(logging.INFO if state.status is LinkStatus.UP else logging.WARNING, "%s", said)
