"""From a configuration to the parts of an edge server: the only place that names concrete classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_server.case_relay import CaseRelay
from edge_server.config import CloudConfig, EdgeConfig, SpoolConfig
from edge_server.escalation import Escalation, EscalationSettings
from edge_server.metrics import EscalationMetrics, SpoolMetrics
from edge_server.second_gate import FittedSecondGate, GateOfModel, LookJudge, SecondGate, SecondGateSettings
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.gate import RuleGate, RuleGateSettings
from fovea.core.latency import EwmaPredictor
from fovea.core.learned_gate import gate_from_json
from fovea.core.merging import MergeSettings
from fovea.core.routing import Route, Tier
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader, UploaderSettings
from fovea.link.forecaster import Forecaster
from fovea.link.link import Link
from fovea.link.spool_index import SpoolLimits
from fovea.link.upstream import Upstream, UpstreamSettings
from fovea.process.clock import SystemClock
from fovea.process.config_parts import bundle_path, read_pems
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import BatchMode
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.serving.answerer import MergedAnswer
from fovea.serving.run_server import ServingParts
from fovea.serving.serving_config import fitted, server_settings
from fovea.serving.serving_metrics import ServingMetrics

if TYPE_CHECKING:
    from fovea.update.device import DeviceDisk

NAME = "edge_server"

_UPLOADER_STOPS_IN_S = 0.5


def build(config: EdgeConfig) -> ServingParts:
    """Loads the model, runs it and measures it; with a cloud it begins to look for it. Raises NotFound and Malformed
    (files), Incompatible (this machine has no such device or cannot run this model), DetectorFailed, and Unavailable
    when another process has the spool."""
    settings = server_settings(config, Tier.EDGE)
    settings = replace(settings, limits=replace(settings.limits, takes_mosaics=True))
    tls = None if config.cloud is None else config.cloud.tls
    upstream = UpstreamSettings(tls=None if tls is None else read_pems(tls, "cloud.tls"))
    bundle, detector, disk = _running(config)
    try:
        settings, latency = fitted(settings, detector, detector.manifest.input.batch is not BatchMode.FIXED)
        metrics = ServingMetrics(detector.ref, detector.device)
        parts = ServingParts(NAME, detector, detector.device, settings, latency, metrics)
        gates = None if config.cloud is None else GateOfModel(bundle.ref, _gate(bundle, config.cloud))
        if config.cloud is None or gates is None:
            parts = replace(parts, answerer=MergedAnswer(Tier.EDGE, config.merge.settings()))
        else:
            side = _cloud_side(config.cloud, bundle, gates, config.merge.settings(), upstream, metrics)
            parts = _with_cloud(parts, side)
        return parts if disk is None else _updating(config, parts, disk, gates)
    except BaseException:
        detector.close()
        raise


def _with_cloud(parts: ServingParts, side: _CloudSide) -> ServingParts:
    return replace(
        parts,
        answerer=side.answerer,
        case_desk=side.relay,
        beside=side.beside,
        facts=side.facts,
        trouble=lambda: None if side.relay is None else side.relay.trouble,
    )


def _running(config: EdgeConfig) -> tuple[Bundle, OnnxDetector, DeviceDisk | None]:
    """The model to begin with, made ready: that of the configuration, or, where others come by themselves, the one
    that was running last. What updates need is loaded only where they are wanted: it takes memory."""
    bundle = Bundle.open(bundle_path(config.bundle))
    if config.updates is None:
        return bundle, _opened(config, bundle), None
    from fovea.update.device import DeviceDisk

    disk = DeviceDisk(config.updates)
    return *disk.start_from(bundle, partial(_opened, config)), disk


def _opened(config: EdgeConfig, bundle: Bundle) -> OnnxDetector:
    return OnnxDetector.open(bundle, config.device, config.threads)


def _updating(
    config: EdgeConfig, parts: ServingParts, disk: DeviceDisk, gates: GateOfModel | None
) -> ServingParts:
    """The same, with updates beside."""
    from edge_server.updates import EdgeHost, EdgeUpdates, WatchedSlot

    wishes = config.updates
    assert wishes is not None

    def before_switch(bundle: Bundle) -> None:
        if gates is not None and config.cloud is not None:
            gates.add(bundle.ref, _gate(bundle, config.cloud))

    slot = WatchedSlot(parts.detector)
    host = EdgeHost(slot, partial(_opened, config), before_switch, parts.metrics.model_changed, disk.starts)
    teller = None
    if wishes.mqtt is not None:
        from edge_server.model_teller import ModelTeller

        teller = ModelTeller(wishes.mqtt.settings(), wishes.device)
    updates = EdgeUpdates(wishes, disk, host, SystemClock(), config.threads, teller)
    return replace(
        parts,
        detector=slot,
        beside=_both(parts.beside, updates),
        facts=lambda: {**parts.facts(), **updates.facts()},
    )


@contextmanager
def _both(first: AbstractContextManager[object], second: AbstractContextManager[object]) -> Iterator[None]:
    with first, second:
        yield


@dataclass(frozen=True, slots=True, eq=False)
class _CloudSide:
    """What an edge with a cloud has more than one without; `beside` runs and ends it."""

    answerer: Escalation
    relay: CaseRelay | None
    beside: AbstractContextManager[object]
    facts: Callable[[], Mapping[str, object]]


def _cloud_side(
    config: CloudConfig,
    bundle: Bundle,
    gate: LookJudge,
    merging: MergeSettings,
    upstream: UpstreamSettings,
    metrics: ServingMetrics,
) -> _CloudSide:
    spool = None if config.spool is None else _spool(config.spool)
    link = Upstream(config.address, upstream)
    counts = EscalationMetrics(metrics.registry, link)
    forecaster = Forecaster(bundle.find_latency() or EwmaPredictor())
    escalation = _escalation(config, gate, merging, link, counts, forecaster)

    def facts() -> Mapping[str, object]:
        return {
            "cloud": link.state.status.value,
            "escalations": counts.totals(),
            "forecasts": forecaster.figures(),
        }

    if spool is None or config.spool is None:
        return _CloudSide(escalation, None, escalation, facts)
    uploader = CaseUploader(
        spool,
        link.deliver,
        UploaderSettings(bytes_per_s=config.spool.upload_bytes_per_s),
        is_busy=lambda: escalation.in_flight > 0,
    )
    link.listen(uploader.link_changed)
    SpoolMetrics(metrics.registry, spool, uploader)
    writers = ThreadPoolExecutor(1, thread_name_prefix="spool")
    return _CloudSide(
        escalation,
        CaseRelay(spool, writers),
        _relaying(escalation, spool, uploader, writers),
        lambda: {**facts(), "spool": {"waiting": spool.counts.waiting, **asdict(uploader.counts)}},
    )


@contextmanager
def _relaying(
    escalation: Escalation, spool: CaseSpool, uploader: CaseUploader, writers: ThreadPoolExecutor
) -> Iterator[None]:
    """On the way out the link is closed first, which ends an upload under way; its case stays in the spool."""
    try:
        with escalation:
            uploader.start()
            yield
    finally:
        uploader.stop(_UPLOADER_STOPS_IN_S)
        writers.shutdown()
        spool.close()


def _gate(bundle: Bundle, config: CloudConfig) -> LookJudge:
    """The gate that was fitted for the model, or the hand-set rules for a model without one."""
    fitted = bundle.find_gate()
    if fitted is not None:
        return FittedSecondGate(gate_from_json(fitted))
    gate = config.gate
    rules = RuleGate(RuleGateSettings(uncertain_boxes=gate.uncertain_boxes, weak_mass=gate.weak_mass))
    return SecondGate(rules, SecondGateSettings(gate.contradictions))


def _escalation(
    config: CloudConfig,
    gate: LookJudge,
    merging: MergeSettings,
    link: Link,
    counts: EscalationMetrics,
    forecaster: Forecaster,
) -> Escalation:
    budget = config.budget
    return Escalation(
        link,
        gate,
        Budget(budget.asks_per_s, budget.bytes_per_s, budget.burst_s),
        EscalationSettings(
            config.timeout_ms / 1000,
            config.margin_ms / 1000,
            config.least_ms / 1000,
            config.max_in_flight,
            DecideSettings(config.gate.ask_from, config.audit_share, Route.CLOUD),
        ),
        merging,
        counts,
        forecaster=forecaster,
    )


def _spool(config: SpoolConfig) -> CaseSpool:
    limits = SpoolLimits(config.max_bytes, config.max_cases, config.min_free_bytes)
    return CaseSpool.open(Path(config.folder), limits)
