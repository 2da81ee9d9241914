"""The cloud's configuration: strict and complete; and the parts that are made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cloud.bootstrap import build, open_models
from cloud.cases.near import NearRule
from cloud.cases.retention import Retention
from cloud.config import CloudConfig, StoreConfig, load_config
from cloud.learn.triggers import TriggerSettings
from cloud.rollout.plan import RolloutPlan
from cloud.rollout_config import ReleasesConfig
from fovea.cli.config import app
from fovea.core.errors import Incompatible, Malformed, NotFound, StoreCorrupt
from fovea.core.merging import MergeSettings
from fovea.core.yolo import Layout
from fovea.runtime.config_file import parse_config
from fovea.runtime.ensemble import EnsembleDetector
from fovea.runtime.images import ImageLimits
from fovea.runtime.manifest import View
from fovea.runtime.onnx_detector import OnnxDetector
from tests.builders import scene, tiny_bundle

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "config" / "cloud.yaml"


def parsed(text: str) -> CloudConfig:
    return parse_config(text, CloudConfig, "cloud.yaml")


def test_the_shipped_example_is_sound_and_says_the_usual_values() -> None:
    shipped = load_config(SHIPPED)
    usual = CloudConfig()
    differing = {name for name in CloudConfig.model_fields if getattr(shipped, name) != getattr(usual, name)}
    assert differing == {"learning", "listen", "metrics", "store"}
    assert shipped.learning == usual.learning.resolved(SHIPPED.parent)
    assert shipped.store.model_copy(update={"folder": "cases"}) == usual.store
    assert shipped.merge.settings() == MergeSettings()


def test_every_key_is_explained_in_the_shipped_example() -> None:
    text = SHIPPED.read_text()
    for name, field in CloudConfig.model_fields.items():
        assert f"{name}:" in text
        assert field.description, name


def test_an_empty_file_is_a_cloud_with_the_bundled_model() -> None:
    assert parsed("").models == ("zoo:street-cloud",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bundle: a.fovea\nbundles: [b.fovea, c.fovea]", "expected one of them, got both"),
        ("bundles: [a.fovea]", "line 1, bundles: List should have at least 2 items"),
        ("views: three", "line 1, views: Input should be 'bundle', 'one' or 'two'"),
        ("store: {folder: ''}", "line 1, store.folder: String should have at least 1 character"),
        ("store: {database: cases.sqlite}", "line 1, store: database: expected sqlite:///FILE or postgresql"),
        ("store: {max_waiting: 0}", "line 1, store.max_waiting"),
        ("merge: {cloud: 0}", "line 1, merge.cloud: Input should be greater than 0"),
        ("store: {databse: x}", "meant database?"),
        ("rollouts: {}", "rollouts: expected releases, which devices obey, and mqtt, by which they report"),
        ("rollouts: {plan: {stages: {canary: {share: 0.5}}}}", "expected shares that rise to 1"),
        ("rollouts: {plan: {stages: {canry: {}}}}", "'shadow', 'canary', 'quarter' or 'all'"),
        ("rollouts: {groups: {My Group: {}}}", "expected lower-case letters"),
        ("mqtt: {password: hush}", "expected a username with the password"),
        ("releases: {listen: here}", "expected host:port"),
        ("learning: {triggers: {site: yard}}", "learning.triggers: site 'yard': there are default"),
        ("learning: {triggers: {rollout_to: [yard]}}", "expected rollouts beside it"),
        ("learning: {triggers: {quiet_hours: {begin: '25:00', end: '06:00'}}}", "quiet_hours.begin"),
    ],
)
def test_mistakes_are_told_with_line_and_what_was_allowed(text: str, told: str) -> None:
    with pytest.raises(Malformed) as refused:
        parsed(text)
    assert told in str(refused.value)


def test_what_is_commented_out_in_the_shipped_example_is_sound_too(tmp_path: Path) -> None:
    text, is_in_part = "", False
    for line in SHIPPED.read_text().splitlines():
        name = line.removeprefix("# ").partition(":")[0]
        is_in_part = name in ("mqtt", "releases", "rollouts", "learning") or (
            is_in_part and line[:4] == "#   "
        )
        if is_in_part and not line.startswith("#   #"):
            text += f"{line.removeprefix('# ')}\n"
    told = parsed(text)
    assert told.mqtt is not None and told.releases is not None and told.rollouts is not None
    assert told.rollouts.plan_of("yard").worse_by == 0.01
    assert told.rollouts.plan_of("barn") == RolloutPlan()
    assert told.learning.triggers is not None and told.learning.triggers.settings() == TriggerSettings()
    away = told.resolved(tmp_path)
    assert away.releases is not None and away.mqtt is not None
    assert away.releases.keys_folder == tmp_path / "../../out/releases/keys"
    assert away.mqtt.password_file == str(tmp_path / "broker.password")


def test_a_cloud_without_parts_of_the_loop_runs_nothing_of_it() -> None:
    cloud = parsed("")
    assert (cloud.mqtt, cloud.releases, cloud.rollouts, cloud.learning.triggers) == (None,) * 4


def test_a_repository_that_is_not_there_is_named_before_anything_runs(tmp_path: Path) -> None:
    model = tiny_bundle().write(tmp_path)
    config = CloudConfig(
        bundle=str(model),
        store=StoreConfig(folder=str(tmp_path / "cases")),
        releases=ReleasesConfig(folder=str(tmp_path / "releases")),
    )
    with pytest.raises(NotFound, match="fovea release init"):
        build(config)


def test_a_password_is_shown_neither_by_the_value_nor_by_a_mistake_in_it() -> None:
    text = "store: {database: 'postgresql+x://me:hunter2@db/c', images: 's3://me:hunter2@b'}"
    assert "hunter2" not in repr(parsed(text))
    with pytest.raises(Malformed) as refused:
        parsed("store: {database: 'postgresql+x://me:hunter2@db:port/c'}")
    assert "hunter2" not in str(refused.value)


def test_paths_are_those_of_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(
        "bundles: [a.fovea, zoo:street-edge]\nstore: {folder: kept, images: pictures}\n"
        "tls: {ca: a, cert: b, key: c}"
    )
    config = load_config(file)
    assert config.models == (str(tmp_path / "a.fovea"), "zoo:street-edge")
    assert config.store.folder == str(tmp_path / "kept")
    assert config.store.images == str(tmp_path / "pictures")
    assert config.tls is not None and config.tls.key == str(tmp_path / "c")
    address = config.store.address()
    assert address.database == f"sqlite:///{tmp_path / 'kept' / 'cases.sqlite'}"
    assert address.images == str(tmp_path / "pictures")


def test_urls_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text("store: {database: 'sqlite:////x/y', images: 's3://bucket/x'}")
    address = load_config(file).store.address()
    assert (address.database, address.images) == ("sqlite:////x/y", "s3://bucket/x")


def test_a_sqlite_file_is_that_of_the_folder_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    for given, meant in [
        ("sqlite:///kept/cases.db", f"sqlite:///{tmp_path / 'kept' / 'cases.db'}"),
        ("sqlite://", "sqlite://"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql+x://me:hunter2@db/c", "postgresql+x://me:hunter2@db/c"),
    ]:
        file.write_text(f"store: {{database: '{given}'}}")
        assert load_config(file).store.address().database == meant


def test_the_command_checks_it_by_its_name_and_prints_its_schema() -> None:
    assert "is a sound cloud configuration" in CliRunner().invoke(app, ["check", str(SHIPPED)]).output
    schema = json.loads(CliRunner().invoke(app, ["schema", "cloud"]).output)
    assert set(schema["properties"]) == set(CloudConfig.model_fields)


@pytest.fixture
def bundles(tmp_path: Path) -> list[str]:
    return [
        str(tiny_bundle(Layout.CUT, name="one").write(tmp_path)),
        str(tiny_bundle(Layout.END_TO_END, name="other", answer_min_score=0.05).write(tmp_path)),
    ]


def test_one_bundle_is_that_detector(bundles: list[str]) -> None:
    look = open_models(CloudConfig(bundle=bundles[0], device="cpu"))
    assert isinstance(look.detector, OnnxDetector)
    assert (look.device, look.takes_batches) == ("cpu", True)
    look.detector.close()


def test_several_bundles_are_one_detector(bundles: list[str]) -> None:
    look = open_models(CloudConfig(bundles=bundles, device="cpu"))
    assert isinstance(look.detector, EnsembleDetector)
    assert look.detector.ref.name == "one+other"
    assert look.takes_batches, "both take several frames"
    assert len(look.detector.detect([scene()])) == 1
    look.detector.close()


def test_two_views_see_more_than_one_and_are_a_model_of_their_own(bundles: list[str]) -> None:
    refs, scores = [], []
    for views in ("bundle", "one", "two"):
        look = open_models(CloudConfig(bundle=bundles[0], device="cpu", views=views))
        assert isinstance(look.detector, OnnxDetector)
        assert look.detector.manifest.tta == ((View.HFLIP,) if views == "two" else ())
        refs.append(look.detector.ref)
        scores.append(look.detector.detect([scene()])[0].candidates.best_scores)
        look.detector.close()
    assert refs[0] == refs[1] != refs[2]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert scores[0].tolist() != scores[2].tolist()


def test_a_model_that_is_not_there_closes_what_was_opened(bundles: list[str], tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no bundle"):
        open_models(CloudConfig(bundles=[bundles[0], str(tmp_path / "none.fovea")], device="cpu"))
    with pytest.raises(Incompatible, match="cuda:7"):
        open_models(CloudConfig(bundles=bundles, device="cuda:7"))


def test_a_store_that_is_broken_is_told_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "cases.sqlite").write_bytes(b"no database" * 100)
    config = parsed(f"store: {{folder: '{tmp_path}'}}\nbundle: none.fovea")
    with pytest.raises(StoreCorrupt):
        build(config)


def test_a_cloud_that_serves_needs_nothing_of_the_training_side(bundles: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import cloud.run, fovea.cli.cases, cloud.cases.export\n"
        "from cloud.bootstrap import build\n"
        "from cloud.config import CloudConfig, StoreConfig\n"
        "config = CloudConfig(bundle=sys.argv[1], device='cpu', store=StoreConfig(folder=sys.argv[2]))\n"
        "build(config).detector.close()\n"
        "heavy = ('torch', 'torchvision', 'ultralytics', 'matplotlib', 'onnx', 'pycocotools', 'calibration')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, bundles[0], str(tmp_path / "kept")],
        cwd=SHIPPED.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_parts_of_a_cloud_answer_take_cases_and_tell_their_counts(
    bundles: list[str], tmp_path: Path
) -> None:
    config = parsed(f"store: {{folder: '{tmp_path / 'kept'}'}}\nbundle: {bundles[0]}\ndevice: cpu")
    parts = build(config)
    assert parts.answerer is not None and parts.case_desk is not None
    with parts.beside:
        facts = parts.facts()
        assert (facts["cases_new"], facts["cases_waiting"], parts.trouble()) == (0, 0, None)
    parts.detector.close()
    assert (tmp_path / "kept" / "cases.sqlite").is_file()


def test_how_cases_are_kept_and_how_long_follows_the_file() -> None:
    usual = CloudConfig().store
    assert usual.rules(ImageLimits()).near == NearRule()
    assert usual.retention.retention().is_limited
    config = parsed(
        "store: {near_duplicates: null, time_zone: Europe/Berlin, "
        "retention: {max_bytes: null, max_age_days: null, keep_audits_days: 7}}"
    ).store
    rules = config.rules(ImageLimits(max_pixels=5))
    assert (rules.near, str(rules.time_zone), rules.limits.max_pixels) == (None, "Europe/Berlin", 5)
    assert config.retention.retention() == Retention(None, None, 7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store: {time_zone: Moon/Tycho}", "name of a time zone"),
        ("store: {time_zone: ../../etc/passwd}", "name of a time zone"),
        ("store: {retention: {max_bytes: -1}}", "max_bytes"),
        ("store: {near_duplicates: {max_bits: 64}}", "max_bits"),
    ],
)
def test_what_makes_no_sense_about_keeping_is_refused(text: str, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        parsed(text)
