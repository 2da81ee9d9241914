"""From a configuration to the parts of an edge server: the only place that names concrete classes."""

from __future__ import annotations

from edge_server.config import EdgeConfig
from fovea.core.routing import Tier
from fovea.process.config_parts import bundle_path
from fovea.runtime.manifest import BatchMode
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.serving.run_server import ServingParts
from fovea.serving.serving_config import fitted, server_settings
from fovea.serving.serving_metrics import ServingMetrics

NAME = "edge_server"


def build(config: EdgeConfig) -> ServingParts:
    """Loads the model, runs it and measures it. Raises NotFound and Malformed (files), Incompatible (this machine
    has no such device or cannot run this model), DetectorFailed."""
    settings = server_settings(config, Tier.EDGE)
    detector = OnnxDetector.open(bundle_path(config.bundle), config.device, config.threads)
    try:
        settings, latency = fitted(settings, detector, detector.manifest.input.batch is not BatchMode.FIXED)
    except BaseException:
        detector.close()
        raise
    metrics = ServingMetrics(detector.ref, detector.device)
    return ServingParts(NAME, detector, detector.device, settings, latency, metrics)
