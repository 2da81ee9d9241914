"""From a configuration to an open room for rounds: the only place of them that names concrete classes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cloud.bootstrap import open_models
from cloud.cases.store import CaseStore
from cloud.config import CloudConfig
from cloud.golden.golden_set import GoldenSet
from cloud.golden.sites import Sites
from cloud.labels.store import LabelStore
from cloud.learn.distil import Mode
from cloud.learn.local_executor import LocalExecutor
from cloud.learn.promotion import PromotionSettings
from cloud.learn.round_plan import RoundPlan
from cloud.learn.round_room import Family, RoundRoom, TeacherSource
from cloud.learn.rounds import RoundStore
from cloud.release.registry import Registry, RegistryAddress
from fovea.process.config_parts import bundle_path


@contextmanager
def opened_round_room(config: CloudConfig) -> Iterator[RoundRoom]:
    """The stores that are there, and what a round needs beside. Raises NotFound for no case store, Incompatible,
    Unavailable, StoreCorrupt."""
    learning, address = config.learning, config.store.address()
    with ExitStack() as stack:
        cases = CaseStore.open_existing(address)
        stack.callback(cases.close)
        labels = LabelStore.open(address.database)
        stack.callback(labels.close)
        models = RegistryAddress.in_folder(Path(config.store.folder)).models
        registry = Registry.open(RegistryAddress(address.database, models))
        stack.callback(registry.close)
        rounds = RoundStore.open(address.database)
        stack.callback(rounds.close)
        folder = Path(learning.folder)
        yield RoundRoom(
            cases=cases,
            labels=labels,
            golden=GoldenSet(labels, Sites.of(config.sites), config.golden.settings()),
            registry=registry,
            rounds=rounds,
            teacher=teacher_of(config),
            family=Family(learning.family, bundle_path(learning.student), bundle_path(learning.champion)),
            folder=folder,
            executor_of=lambda jobs: LocalExecutor(jobs, learning.threads),
            wait=time.sleep,
            settings=PromotionSettings(
                min_golden_frames=learning.min_golden_frames, min_new_frames=learning.min_new_frames
            ),
            tracking=folder / "mlflow" if learning.tracking else None,
        )


def teacher_of(config: CloudConfig) -> TeacherSource:
    """The cloud's own model: it labels, and a student is distilled from it where it is one model."""
    bundle = bundle_path(config.bundle) if config.bundles is None else None
    views = "as the bundle says" if config.views == "bundle" else config.views
    return TeacherSource(lambda: open_models(config).detector, bundle, views)


def plan_of(config: CloudConfig, site: str, condition: str | None, why: str) -> RoundPlan:
    """A round as the configuration has it."""
    learning = config.learning
    return RoundPlan(
        site=site,
        condition=condition,
        why=why,
        mode=Mode(learning.mode),
        minutes=learning.minutes,
        new=learning.new_cases,
        replay=learning.replay_cases,
        recipes=learning.recipes,
    )
