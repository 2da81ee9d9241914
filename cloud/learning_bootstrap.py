"""From a configuration to what begins rounds of learning by itself; it knows the training side."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from prometheus_client import CollectorRegistry

from cloud.cases.store import CaseStore
from cloud.config import CloudConfig
from cloud.fleet.metrics import LearningMetrics
from cloud.fleet.promoted import PromotedRollouts
from cloud.fleet.starting import RolloutStarter
from cloud.golden.sites import Sites
from cloud.learn.drift_watch import DriftWatch
from cloud.learn.due_facts import SiteFacts
from cloud.learn.round_process import LoopRun, loop_arguments
from cloud.learn.rounds import RoundStore
from cloud.learn.supervisor import RoundSupervisor
from cloud.learn.triggers_config import TriggersConfig
from cloud.loop_bootstrap import LoopParts, closing, working
from cloud.regular import RegularWork
from cloud.rollout.store import RolloutStore


def add_learning(
    parts: LoopParts,
    config: CloudConfig,
    triggers: TriggersConfig,
    source: Path,
    cases: CaseStore,
    metrics: CollectorRegistry,
    promoting: tuple[RolloutStore, RolloutStarter] | None,
) -> None:
    """Adds what begins rounds, and what rolls out those that were promoted. Raises what the stores raise."""
    rounds = RoundStore.open(config.store.address().database)
    zone, quiet = ZoneInfo(config.store.time_zone), triggers.quiet_hours
    folder = Path(config.learning.folder)
    rollouts = None if promoting is None else promoting[0]
    facts = SiteFacts(
        cases,
        rounds,
        Sites.of(config.sites),
        triggers.site,
        DriftWatch(folder / "drift.json", datetime.now(UTC)),
        lambda: [] if rollouts is None else rollouts.states(),
        triggers.drift,
    )
    supervisor = RoundSupervisor(
        triggers.settings(),
        facts.known,
        lambda why: LoopRun(loop_arguments(source, triggers.site, why), folder / "last_round.log"),
        lambda now: quiet is None or quiet.hold(now.astimezone(zone)),
        lambda: datetime.now(UTC),
    )
    looking = RegularWork("look whether a round is due", supervisor.look, triggers.look_every_s)
    parts.beside += [closing(rounds.close), working(looking), closing(supervisor.stop)]
    parts.facts["learning"] = lambda: {"running": supervisor.running, **supervisor.counts}
    parts.troubles.append(lambda: looking.trouble)
    if promoting is not None and triggers.rollout_to:
        family, groups = config.learning.family, triggers.rollout_to
        promoted = PromotedRollouts(rounds, *promoting, triggers.site, family, groups)
        starting = RegularWork("rollout of what was promoted", promoted.look, triggers.look_every_s)
        parts.beside.append(working(starting))
        parts.troubles.append(lambda: starting.trouble)
    metrics.register(LearningMetrics(lambda: supervisor.counts, lambda: supervisor.running))
