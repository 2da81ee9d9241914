"""Ties the measurement to the agent's own pieces and to the running processes: names the concrete classes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fovea.cli.demo_findings import ModelFacts
from fovea.cli.demo_frames import STEP_S
from fovea.cli.demo_measure import ASK_TIMEOUT_S, Ask, Tiers
from fovea.cli.tier_plan import PlannedTiers, TierPlan
from fovea.cli.tiers import LineSink, TierProcesses
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier

_SEED = 7
_BURST_S = 10.0
"""How much unused budget the measurement keeps: a few questions at 2 frames a second."""


@contextmanager
def measured_tiers(
    plan: TierPlan, planned: PlannedTiers, running: TierProcesses, on_line: LineSink
) -> Iterator[Tiers]:
    """The agent's pieces as its configuration says, here; edge and cloud as they run; and an edge with nobody above
    it, started for the while.

    Raises what loading the agent's model raises, and the RetryableErrors when a server does not answer.
    """
    from edge_agent.capture.motion import MotionGate
    from edge_agent.config import load_config
    from edge_agent.frame_walk import FrameWalk, Judging
    from edge_agent.purse import purse_for
    from edge_agent.settings_from_config import (
        decide_settings,
        feature_settings,
        motion_settings,
        rule_gate_settings,
        tracker_settings,
    )
    from edge_agent.track.tracker import Tracker
    from fovea.core.budget import Budget
    from fovea.core.gate import RuleGate
    from fovea.core.learned_gate import gate_from_json
    from fovea.link.remote_detector import RemoteDetector, RemoteSettings
    from fovea.process.clock import SystemClock
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle
    from fovea.runtime.onnx_detector import OnnxDetector

    config = load_config(planned.configs["agent"])
    camera = config.cameras[0].model_copy(update={"fps": 1 / STEP_S})
    bundle = Bundle.open(bundle_path(config.bundle))
    fitted = bundle.find_gate()
    gate = RuleGate(rule_gate_settings(config.gate)) if fitted is None else gate_from_json(fitted)
    judging = Judging(gate, decide_settings(config), feature_settings(config.gate), config.tell_from)
    clock = SystemClock()
    detector = OnnxDetector.open(bundle, "cpu", config.threads)
    motion, tracker = motion_settings(camera), tracker_settings(camera)
    remote = RemoteSettings(timeout_s=ASK_TIMEOUT_S)
    with ExitStack() as open_now:
        open_now.callback(detector.close)
        alone = open_now.enter_context(TierProcesses([planned.edge_alone], on_line))
        alone.start()

        def asking(address: str) -> Ask:
            server = RemoteDetector.connect(address, remote)
            open_now.callback(server.close)
            return server.ask

        def cpu_s() -> dict[Tier, float]:
            used = {**running.cpu_s(), **alone.cpu_s()}
            return {Tier.EDGE: used["edge"] + used["edge-alone"], Tier.CLOUD: used["cloud"]}

        yield Tiers(
            new_walk=lambda: FrameWalk(
                detector, None if motion is None else MotionGate(motion), Tracker(tracker), judging, clock
            ),
            purse=purse_for(gate, Budget(plan.asked_at_most / STEP_S, burst_s=_BURST_S)),
            draw=random.Random(_SEED).random,
            ask_edge=asking(planned.edge_address),
            ask_edge_alone=asking(planned.edge_alone_address),
            ask_cloud=asking(planned.cloud_address),
            cpu_s=cpu_s,
        )


def model_facts(bundles: Mapping[Tier, str]) -> tuple[list[ModelFacts], LabelSet]:
    """What the models of the tiers are, and all labels that they know, each once."""
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle

    facts, labels = [], {}
    for tier, name in bundles.items():
        path = bundle_path(name)
        bundle = Bundle.open(path)
        manifest = bundle.manifest
        labels.update({label.id: label for label in manifest.label_set})
        facts.append(
            ModelFacts(
                tier,
                manifest.name,
                manifest.version,
                bundle.ref.sha256,
                manifest.licence,
                path.stat().st_size / 1e6,
                manifest.parameters,
                len(manifest.labels),
            )
        )
    return facts, LabelSet(tuple(labels.values()))


def machine_facts() -> dict[str, str]:
    """This machine in words."""
    from fovea.bench.result import Machine

    machine = Machine.here()
    return {
        "processor": machine.cpu,
        "cores": str(machine.cores),
        "memory": f"{machine.memory_bytes / 1e9:.1f} GB",
        "system": machine.system,
        "Python": machine.python,
        "ONNX Runtime": machine.onnxruntime,
    }


def log_files(folder: Path) -> LineSink:
    """Takes the lines of processes into NAME.log in `folder`, each process into its own file."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, line: str) -> None:
        with (folder / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return keep
