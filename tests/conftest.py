"""What holds for every test: quiet vendors, and property tests that do not mind a busy machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Before anything imports ONNX Runtime by itself (a test may, the product goes through fovea.runtime.ort).
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
