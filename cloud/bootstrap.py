"""From a configuration to the parts of a cloud: the only place that names concrete classes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloud.cases.metrics import CaseMetrics
from cloud.cases.pruner import CasePruner
from cloud.cases.store import CaseStore
from cloud.cases.writer import CaseWriter, WriterLimits
from cloud.config import CloudConfig
from cloud.ingest import KeepingAnswerer, StoreDesk
from cloud.loop_bootstrap import LoopParts, build_loop
from fovea.core.ports import Detector
from fovea.core.routing import Tier
from fovea.process.config_parts import bundle_path
from fovea.runtime.bundle import Bundle
from fovea.runtime.ensemble import EnsembleDetector, EnsembleSettings, Member
from fovea.runtime.images import ImageLimits
from fovea.runtime.manifest import BatchMode, ParentRef, View
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.serving.run_server import ServingParts
from fovea.serving.serving_config import fitted, server_settings
from fovea.serving.serving_metrics import ServingMetrics

NAME = "cloud"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A detector that is ready, where it runs, and whether it takes frames together."""

    detector: Detector
    device: str
    takes_batches: bool


def build(config: CloudConfig, source: Path | None = None) -> ServingParts:
    """Opens the store, loads the models, runs them and measures them; `source` is the file of the configuration, for
    rounds of learning. Raises NotFound and Malformed (files), Incompatible (this machine has no such device or cannot
    run this model, a store of another version), Unavailable and StoreCorrupt (the store), DetectorFailed."""
    settings = server_settings(config, Tier.CLOUD)
    with ExitStack() as undo:
        limits = ImageLimits(config.limits.max_request_bytes, config.limits.max_pixels)
        store = CaseStore.open(config.store.address(), config.store.rules(limits))
        undo.callback(store.close)
        swept = store.sweep()
        if swept:
            _log.warning("%d half-written pictures of an earlier run were removed", swept)
        look = open_models(config)
        undo.callback(look.detector.close)
        settings, latency = fitted(settings, look.detector, look.takes_batches)
        metrics = ServingMetrics(look.detector.ref, look.device)
        loop = build_loop(config, source, store, metrics.registry)
        undo.pop_all()
    counter = CaseMetrics(metrics.registry)
    writer = CaseWriter(
        store, counter, WriterLimits(config.store.max_waiting, config.store.max_waiting_bytes)
    )
    counter.watch_waiting(lambda: writer.waiting)
    pruner = CasePruner(store, config.store.retention.retention(), config.store.retention.every_s)
    threads = ThreadPoolExecutor(config.store.threads, thread_name_prefix="take-case")
    return ServingParts(
        name=NAME,
        detector=look.detector,
        device=look.device,
        settings=settings,
        latency=latency,
        metrics=metrics,
        answerer=KeepingAnswerer(writer, counter, config.merge.settings()),
        case_desk=StoreDesk(store, threads, counter),
        beside=_keeping(store, writer, pruner, threads, config.store.flush_s, loop),
        facts=lambda: {**counter.totals(), "cases_waiting": writer.waiting, **loop.told()},
        trouble=lambda: writer.trouble or pruner.trouble or loop.trouble(),
    )


def open_models(config: CloudConfig) -> Look:
    """The model, or all of them as one. Raises what `OnnxDetector.open` and `EnsembleDetector` raise."""
    bundles = [_with_views(Bundle.open(bundle_path(name)), config.views) for name in config.models]
    opened: list[OnnxDetector] = []
    try:
        for bundle in bundles:
            opened.append(OnnxDetector.open(bundle, config.device, config.threads))
        detector = opened[0] if len(opened) == 1 else _as_one(bundles, opened)
    except BaseException:
        for one in opened:
            one.close()
        raise
    takes_batches = all(one.manifest.input.batch is not BatchMode.FIXED for one in opened)
    return Look(detector, opened[0].device, takes_batches)


def _as_one(bundles: Sequence[Bundle], detectors: Sequence[OnnxDetector]) -> EnsembleDetector:
    members = [
        Member(detector, bundle.calibration(), bundle.manifest.trust)
        for bundle, detector in zip(bundles, detectors, strict=True)
    ]
    least = min(bundle.manifest.answer_min_score for bundle in bundles)
    return EnsembleDetector(members, EnsembleSettings(answer_min_score=least))


def _with_views(bundle: Bundle, views: str) -> Bundle:
    """A bundle that looks once or twice; where that is not what it says, it is a model of its own, with the other as
    its parent."""
    wanted = {"one": (), "two": (View.HFLIP,)}.get(views, bundle.manifest.tta)
    if bundle.manifest.tta == wanted:
        return bundle
    return bundle.with_parts({}, tta=wanted, parent=ParentRef.of(bundle.ref))


@contextmanager
def _keeping(
    store: CaseStore,
    writer: CaseWriter,
    pruner: CasePruner,
    threads: ThreadPoolExecutor,
    flush_s: float,
    loop: LoopParts,
) -> Iterator[None]:
    """The writer works until the last call is answered, and then keeps what waits."""
    writer.start()
    pruner.start()
    try:
        with loop.running():
            yield
    finally:
        threads.shutdown(wait=True)
        pruner.stop()
        lost = writer.stop(flush_s)
        if lost:
            _log.error("%d frames were answered but not kept: that took more than %g s", lost, flush_s)
        store.close()
