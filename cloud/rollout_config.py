"""The parts of the configuration about releases and rollouts."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cloud.release.static import ServerTls
from cloud.rollout.plan import HarmRules, RolloutPlan
from fovea.core.errors import Malformed
from fovea.core.release import Probation, Stage, check_name
from fovea.process.config_parts import Address, FilePath, Part

StageName = Literal["shadow", "canary", "quarter", "all"]
Seconds = Annotated[float, Field(ge=0)]


class ReleaseTlsConfig(Part):
    """HTTPS for who fetches releases."""

    cert: FilePath
    """the PEM file of the server's certificate chain"""
    key: FilePath
    """the PEM file of its private key"""
    client_ca: FilePath | None = None
    """the PEM file of who signs the devices' certificates, where only those may read; anybody when it is left out"""

    def settings(self) -> ServerTls:
        client_ca = None if self.client_ca is None else Path(self.client_ca)
        return ServerTls(Path(self.cert), Path(self.key), client_ca)


class ReleasesConfig(Part):
    """The signed release repository that this cloud keeps; `fovea release init` makes it."""

    folder: FilePath = "releases"
    """where it lies"""
    keys: FilePath | None = None
    """the folder of online keys; keys/ in the repository's folder when it is left out"""
    passphrase_file: FilePath | None = None
    """a file whose first line opens the online keys, where they are encrypted"""
    listen: Address | None = "127.0.0.1:8443"
    """where devices and mirrors fetch it, host:port. null: somebody else serves its public/ folder"""
    tls: ReleaseTlsConfig | None = None
    """certificates; plain HTTP when it is left out (what is served is signed all the same)"""
    refresh_every_s: Annotated[float, Field(ge=1, le=43_200)] = 3600.0
    """how often what would expire is signed again; the timestamp is believed for a day"""

    @property
    def keys_folder(self) -> Path:
        return Path(self.keys) if self.keys else Path(self.folder) / "keys"

    def resolved(self, folder: Path) -> ReleasesConfig:
        """The same with paths that do not depend on the current folder."""

        def file(path: str | None) -> str | None:
            return path and str(folder / path)

        tls = self.tls
        if tls is not None:
            changed = {"cert": file(tls.cert), "key": file(tls.key), "client_ca": file(tls.client_ca)}
            tls = tls.model_copy(update=changed)
        return self.model_copy(
            update={
                "folder": file(self.folder),
                "keys": file(self.keys),
                "passphrase_file": file(self.passphrase_file),
                "tls": tls,
            }
        )


class StageConfig(Part):
    """What one stage has to show before the next begins; what is left out is as usual."""

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """of the devices; in shadow, of the frames at which the new model looks too (0.2, 0.05, 0.25 and 1)"""
    min_devices: Annotated[int, Field(ge=1)] | None = None
    """so many have to report that they run it (1)"""
    min_frames: Annotated[int, Field(ge=0)] | None = None
    """so many have to be looked at by it since the stage began, all devices together (500)"""
    min_s: Seconds | None = None
    """so long it takes at least, however good the news (600)"""
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    """then it pauses, and a person decides (604800)"""


class PlanConfig(Part):
    """How a new model goes up, and what counts as harm; what is left out is as usual."""

    stages: dict[StageName, StageConfig] = Field(default_factory=dict)
    """by name: shadow, canary, quarter, all"""
    alpha: Annotated[float, Field(gt=0, lt=1)] = HarmRules().alpha
    """the chance, over a whole stage, to see a harm or a gain that is not there"""
    worse_by: Annotated[float, Field(ge=0, lt=1)] = HarmRules().worse_by
    """so much agreement with the tier above may be lost and still counts as no worse"""
    max_failed: Annotated[int, Field(ge=0)] = HarmRules().max_failed
    """so many devices may fail: step back, refuse it, or restart again and again"""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = HarmRules().max_failed_share
    """and such a share of them; it goes back when both are exceeded"""
    latency_ratio: Annotated[float, Field(ge=1)] = HarmRules().latency_ratio
    """of its p95 latency to that of the devices beside it, at most"""
    asked_ratio: Annotated[float, Field(ge=1)] = HarmRules().asked_ratio
    """of its asked rate to that of the devices beside it, at most"""
    asked_slack: Annotated[float, Field(ge=0, le=1)] = HarmRules().asked_slack
    """or so much above it, whichever allows more"""
    silent_after_s: Annotated[float, Field(ge=1)] = HarmRules().silent_after_s
    """a device that has not reported for so long is away, and not waited for"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.plan()
        except Malformed as error:
            raise ValueError(str(error)) from error
        return self

    def plan(self) -> RolloutPlan:
        """As rollouts take it. Raises Malformed for stages that do not fit together."""
        usual = RolloutPlan().stages
        stages = dict(usual)
        for name, told in self.stages.items():
            stages[Stage(name)] = replace(usual[Stage(name)], **told.model_dump(exclude_none=True))
        rules = {each.name: getattr(self, each.name) for each in fields(HarmRules)}
        return RolloutPlan(stages=MappingProxyType(stages), **rules)


class ProbationConfig(Part):
    """How long a device tries a new model before it keeps it; it steps back by itself otherwise."""

    frames: Annotated[int, Field(ge=0)] = 200
    """so many have to be looked at"""
    seconds: Seconds = 60.0
    """so long it takes at least"""
    max_ms_p95: Annotated[float, Field(gt=0)] | None = None
    """of one frame's inference; null: no limit"""

    def probation(self) -> Probation:
        return Probation(self.frames, self.seconds, self.max_ms_p95)


class RolloutsConfig(Part):
    """New models on their way to the devices (`fovea rollout start`), moved by what devices report."""

    tick_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """how often it is looked at what devices have shown"""
    plan: PlanConfig = PlanConfig()
    """of groups of which nothing else is said"""
    groups: dict[str, PlanConfig] = Field(default_factory=dict)
    """of single groups, by name"""
    probation: ProbationConfig = ProbationConfig()
    """on each device"""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        try:
            for group in self.groups:
                check_name("group", group)
        except Malformed as error:
            raise ValueError(str(error)) from error
        return self

    def plan_of(self, group: str) -> RolloutPlan:
        """How a new model goes up in `group`."""
        return self.groups.get(group, self.plan).plan()
