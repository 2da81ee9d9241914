"""The configuration of the cloud: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from cloud.cases.near import NearRule
from cloud.cases.retention import Retention
from cloud.cases.store import KeepRules, StoreAddress
from cloud.database import checked_database, database_from
from cloud.golden.golden_set import GoldenSettings
from cloud.golden.sites import Sites
from cloud.learn.learning_config import LearningConfig
from cloud.rollout_config import ReleasesConfig, RolloutsConfig
from fovea.core.errors import Malformed, NotFound
from fovea.core.merging import MergeSettings
from fovea.mqtt.config import BrokerConfig
from fovea.process.config_parts import BundleName, FilePath, Part, resolved_bundle
from fovea.runtime.config_file import read_config
from fovea.runtime.images import ImageLimits
from fovea.serving.serving_config import ServingConfig


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected the name of a time zone, such as UTC or Europe/Berlin") from error
    return name


class RetentionConfig(Part):
    """How much is kept and how long. What is golden, under review or in a data set stays whatever this says."""

    max_bytes: Annotated[int | None, Field(ge=0)] = 20_000_000_000
    """of pictures; beyond, the oldest cases go. null: no limit"""
    max_age_days: Annotated[float | None, Field(ge=0)] = 365.0
    """older cases go. null: no limit"""
    keep_audits_days: Annotated[float, Field(ge=0)] = 90.0
    """random audits stay at least so long: they are the sample by which agreement is measured"""
    every_s: Annotated[float, Field(ge=1, le=86_400)] = 600.0
    """seconds from one look at it to the next"""

    def retention(self) -> Retention:
        return Retention(self.max_bytes, self.max_age_days, self.keep_audits_days)


class NearConfig(Part):
    """Which frames of a camera are counted instead of kept, because a case shows the same: the same boxes of the same
    models in a picture that looks the same. Random audits are always kept."""

    max_bits: Annotated[int, Field(ge=0, le=16)] = NearRule().max_bits
    """in how many of 64 bits the hashes of the two pictures may differ; other scenes differ in 20 and more"""
    within_s: Annotated[float, Field(gt=0)] = NearRule().within_s
    """how far apart in time they may be"""

    def rule(self) -> NearRule:
        return NearRule(self.max_bits, self.within_s)


class StoreConfig(Part):
    """Where cases are kept."""

    folder: FilePath = "cases"
    """holds cases.sqlite and images/, unless those are elsewhere"""
    database: Annotated[str | None, Field(repr=False)] = None
    """URL of a database instead: sqlite:////FOLDER/FILE or postgresql+DRIVER://USER:PASSWORD@HOST/NAME"""
    images: Annotated[str | None, Field(repr=False, min_length=1)] = None
    """folder, or URL of a bucket (s3://BUCKET/PREFIX), for pictures instead"""
    max_waiting: Annotated[int, Field(ge=1, le=100_000)] = 256
    """frames that were asked about and wait to be kept, at most; more are answered and not kept"""
    max_waiting_bytes: Annotated[int, Field(ge=1_000_000)] = 256_000_000
    """memory of those frames at most"""
    threads: Annotated[int, Field(ge=1, le=64)] = 2
    """threads that take in cases from spools"""
    flush_s: Annotated[float, Field(ge=0, le=600)] = 10.0
    """how long it takes at most, when it is told to stop, to keep what waits"""
    near_duplicates: NearConfig | None = NearConfig()
    """which frames are counted instead of kept. null: every frame is kept"""
    retention: RetentionConfig = RetentionConfig()
    """how much is kept and how long"""
    time_zone: Annotated[str, AfterValidator(_time_zone)] = "UTC"
    """where the cameras are, such as Europe/Berlin: cases are counted as of the day, the dusk or the night"""

    @model_validator(mode="after")
    def _check_database(self) -> Self:
        if self.database is not None:
            try:
                checked_database(self.database)
            except Malformed as error:
                raise ValueError(str(error)) from error
        return self

    def address(self) -> StoreAddress:
        """Where that is."""
        usual = StoreAddress.in_folder(Path(self.folder))
        return StoreAddress(self.database or usual.database, self.images or usual.images)

    def rules(self, limits: ImageLimits) -> KeepRules:
        """How cases are taken in."""
        near = self.near_duplicates.rule() if self.near_duplicates else None
        return KeepRules(limits, near, ZoneInfo(self.time_zone))


class MergeConfig(Part):
    """How far each tier is trusted, relative to the others, when their answers are merged."""

    agent: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().agent
    """the camera"""
    edge: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().edge
    """the edge server"""
    cloud: Annotated[float, Field(gt=0, le=1000)] = MergeSettings().cloud
    """this cloud"""

    def settings(self) -> MergeSettings:
        return MergeSettings(agent=self.agent, edge=self.edge, cloud=self.cloud)


class GoldenConfig(Part):
    """Frames of each site that people label, by which new models are judged."""

    frames: Annotated[int, Field(ge=1, le=100_000)] = GoldenSettings().frames
    """how many are picked for each site"""
    enough: Annotated[int, Field(ge=1, le=100_000)] = GoldenSettings().enough
    """how many of a site have to be labelled before a new model may do more there than run in the shadow"""

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        try:
            self.settings()
        except Malformed as error:
            raise ValueError(str(error)) from error
        return self

    def settings(self) -> GoldenSettings:
        return GoldenSettings(self.frames, self.enough)


def _sites(sites: dict[str, list[str]]) -> dict[str, list[str]]:
    try:
        Sites.of(sites)
    except Malformed as error:
        raise ValueError(str(error)) from error
    return sites


class CloudConfig(ServingConfig):
    """Everything a cloud is told. Relative paths are relative to the folder of the file."""

    bundle: BundleName = "zoo:street-cloud"
    """the model: a .fovea file, or zoo:NAME for a bundled one"""
    bundles: Annotated[list[BundleName], Field(min_length=2, max_length=16)] | None = None
    """several models instead of one: each looks at every frame, and their boxes are fused"""
    views: Literal["bundle", "one", "two"] = "bundle"
    """two: frame and mirror image, merged; one: the frame alone; bundle: as the bundle says"""
    store: StoreConfig = StoreConfig()
    """where cases are kept"""
    merge: MergeConfig = MergeConfig()
    """how far each tier is trusted when their answers are merged"""
    sites: Annotated[dict[str, list[str]], AfterValidator(_sites)] = Field(default_factory=dict)
    """groups of cameras that stand together, by name, as patterns of camera names: {yard: ["yard-*"]}; every other
    camera is of the site `default`"""
    golden: GoldenConfig = GoldenConfig()
    """frames that people label, by which new models are judged"""
    learning: LearningConfig = LearningConfig()
    """rounds that make better camera models from the cases"""
    mqtt: BrokerConfig | None = None
    """the broker by which devices report; nobody listens when it is left out"""
    releases: ReleasesConfig | None = None
    """the signed repository of models and orders; there is none here when it is left out"""
    rollouts: RolloutsConfig | None = None
    """new models on their way to the devices; needs mqtt and releases"""

    @model_validator(mode="after")
    def _check_loop(self) -> Self:
        if self.rollouts is not None and (self.releases is None or self.mqtt is None):
            raise ValueError(
                "rollouts: expected releases, which devices obey, and mqtt, by which they report"
            )
        triggers = self.learning.triggers
        if triggers is None:
            return self
        if triggers.rollout_to and self.rollouts is None:
            raise ValueError("learning.triggers.rollout_to: expected rollouts beside it")
        try:
            Sites.of(self.sites).checked(triggers.site)
        except NotFound as error:
            raise ValueError(f"learning.triggers: {error}") from error
        return self

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.bundles is not None and "bundle" in self.model_fields_set:
            raise ValueError("bundle, bundles: expected one of them, got both")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """The bundles that look."""
        return tuple(self.bundles) if self.bundles else (self.bundle,)

    def resolved(self, folder: Path) -> CloudConfig:
        """The same with paths that do not depend on the current folder."""
        store = {"folder": str(folder / self.store.folder)}
        if self.store.database is not None:
            store["database"] = database_from(self.store.database, folder)
        if self.store.images is not None and "://" not in self.store.images:
            store["images"] = str(folder / self.store.images)
        return self.model_copy(
            update={
                "bundle": resolved_bundle(self.bundle, folder),
                "bundles": self.bundles and [resolved_bundle(name, folder) for name in self.bundles],
                "tls": self.tls and self.tls.resolved(folder),
                "store": self.store.model_copy(update=store),
                "mqtt": self.mqtt and self.mqtt.resolved(folder),
                "releases": self.releases and self.releases.resolved(folder),
                "learning": self.learning.resolved(folder),
            }
        )


def load_config(path: Path) -> CloudConfig:
    """Raises NotFound, and Malformed with every mistake, its line and what was allowed."""
    return read_config(path, CloudConfig).resolved(path.absolute().parent)
