"""`fovea release` and `fovea registry`: what a person types, in order, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cloud.release.keys import KeyFolder
from fovea.cli.registry import app as registry_app
from fovea.cli.release import app
from fovea.core.errors import FoveaError, Malformed, NotAllowed, NotFound
from tests.unit.release_site import FAMILY, Device, bundle

SECRET = "correct horse battery"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a bundle and passphrase files."""
    monkeypatch.chdir(tmp_path)
    bundle("1").write(tmp_path)
    bundle("2").write(tmp_path)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return tmp_path


def ran(*words: object, to: object = app, typed: str | None = None) -> Result:
    return CliRunner().invoke(to, [str(word) for word in words], input=typed, env={"COLUMNS": "220"})  # type: ignore[arg-type]


def said(*words: object, to: object = app) -> str:
    result = ran(*words, to=to)
    assert result.exit_code == 0, (result.output, result.exception)
    assert SECRET not in result.output
    return result.output


def refusal(*words: object, to: object = app) -> FoveaError:
    result = ran(*words, to=to)
    assert isinstance(result.exception, FoveaError), result
    assert SECRET not in str(result.exception)
    return result.exception


BRING = ("--offline", "stick", "--offline-passphrase-file", "secret")


def made() -> None:
    said("init", *BRING)
    said("family", FAMILY, *BRING)
    said("add", FAMILY, "street-student-1.fovea")
    said("publish", "yard", "--family", FAMILY, "--model", "street-student@1")


def device(at: Path) -> Device:
    public = at / "releases" / "public"
    return Device(at / "camera", public, (public / "metadata" / "1.root.json").read_bytes())


def test_from_nothing_to_a_group_that_runs_a_model(at: Path) -> None:
    made()
    desired = device(at).desired()
    assert desired is not None and desired.champion.version == "1"
    (at / "policy.json").write_text('{"gate": {"ask_from": 0.6}}')
    said("add", FAMILY, "street-student-2.fovea", "--device-class", "pi", "--arch", "aarch64")
    text = said(
        "publish", "yard", "--model", f"models/{FAMILY}/street-student-2.fovea", "--policy", "policy.json"
    )
    assert "group yard: serial 2, runs street-student@2" in text
    desired = device(at).desired()
    assert desired is not None and desired.policy == {"gate": {"ask_from": 0.6}}
    assert "serial 3, runs street-student@2" in said("publish", "yard")
    assert "serial 900, runs" in said("publish", "yard", "--serial", 900)
    assert "above 900" in str(refusal("publish", "yard", "--serial", 5))
    assert "good until" in said("refresh")


def test_status_shows_roles_models_and_groups(at: Path) -> None:
    made()
    text = said("status")
    for word in ("root", "2 of ", "(here)", f"models/{FAMILY}/street-student-1.fovea", "yard", "idle"):
        assert word in text
    facts = json.loads(said("status", "--json"))
    assert [role["role"] for role in facts["roles"]][:4] == ["root", "timestamp", "snapshot", "targets"]
    assert facts["waiting"] is None and facts["groups"][0]["serial"] == 1


def test_private_keys_are_closed_to_others_and_the_offline_ones_encrypted(at: Path) -> None:
    made()
    keys = [*(at / "releases" / "keys").iterdir(), *(at / "stick").iterdir()]
    assert len(keys) == 8
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (b"ENCRYPTED" in path.read_bytes()) == (path.parent.name == "stick")
    assert not [path for path in (at / "releases" / "public").rglob("*") if b"PRIVATE" in _bytes(path)]


def test_a_wrong_passphrase_is_refused_and_nothing_is_published(at: Path) -> None:
    made()
    (at / "wrong").write_text("nonsense\n")
    error = refusal("rotate-key", "timestamp", "--offline", "stick", "--offline-passphrase-file", "wrong")
    assert isinstance(error, NotAllowed) and "does not open it" in str(error)
    assert device(at).desired() is not None
    assert "published" in said("rotate-key", "timestamp", *BRING)
    assert device(at).desired() is not None


def test_a_key_that_others_can_read_is_not_used(at: Path) -> None:
    made()
    (path,) = (at / "releases" / "keys").glob("timestamp.*.pem")
    path.chmod(0o644)
    error = refusal("refresh")
    assert isinstance(error, NotAllowed) and "others can read it" in str(error)


def test_without_the_stick_a_change_waits_until_somebody_brings_it(at: Path) -> None:
    made()
    text = said("rotate-key", "channels")
    assert "waits for signatures: a new key for channels" in text and "1 of the targets keys" in text
    assert "waits for signatures" in said("status")
    assert "published: a new key for channels" in said("sign", *BRING)
    assert device(at).desired() is not None
    said("rotate-key", "channels")
    assert "forgotten" in said("sign", "--drop")
    assert isinstance(refusal("sign", *BRING), NotFound)


def test_a_root_key_is_replaced_by_its_first_digits(at: Path) -> None:
    made()
    digits = sorted(path.name.split(".")[1] for path in (at / "stick").glob("root.*"))[0][:6]
    assert "published" in said("rotate-key", "root", "--key", digits, *BRING)
    assert device(at).desired() is not None


def test_a_model_in_use_stays_and_an_old_one_goes(at: Path) -> None:
    made()
    said("add", FAMILY, "street-student-2.fovea")
    assert "withdrawn" in said("withdraw", f"models/{FAMILY}/street-student-2.fovea")
    assert "is told to run it" in str(refusal("withdraw", f"models/{FAMILY}/street-student-1.fovea"))
    assert isinstance(refusal("withdraw", "nonsense"), Malformed)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("init",), "expected one --offline FOLDER"),
        (("init", "--offline", "stick"), "nobody can be asked here"),
        (("status",), "no release repository"),
        (("refresh", "--offline", "nowhere"), "no folder of offline keys at nowhere"),
        (("serve", "--cert", "x"), "--cert and --key together"),
        (("serve",), "no release repository"),
        (("init", "--offline", "stick", "--offline-passphrase-file", "nowhere"), "passphrase file nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(at: Path, words: tuple[str, ...], expected: str) -> None:
    assert expected in str(refusal(*words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("publish", "gate"), "told for the first time"),
        (("publish", "yard", "--model", "other@1"), "no model 'other@1' is released in street"),
        (("publish", "yard", "--policy", "street-student-1.fovea"), "expected JSON"),
        (("publish", "yard", "--policy", "nowhere"), "policy nowhere"),
        (("add", "desert", "street-student-1.fovea"), "no family 'desert' here"),
        (("rotate-key", "mirror"), "no role 'mirror'"),
    ],
)
def test_orders_that_make_no_sense_are_refused(at: Path, words: tuple[str, ...], expected: str) -> None:
    made()
    assert expected in str(refusal(*words))
    desired = device(at).desired()
    assert desired is not None and desired.serial == 1


def test_no_secret_shows_in_what_objects_say_of_themselves(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path, lambda _purpose: SECRET.encode())
    folder.make("timestamp")
    assert SECRET not in repr(folder) and SECRET not in str(vars(folder))


def test_the_registry_from_first_model_to_promotion(at: Path) -> None:
    store = ("--store", "kept")

    def run(*words: object) -> str:
        return said(*words, *store, to=registry_app)

    assert "no registry" in str(refusal("list", *store, to=registry_app))
    run("add", FAMILY, "street-student-1.fovea")
    run("add", FAMILY, "street-student-2.fovea")
    run("alias", FAMILY, "champion", "street-student@1")
    run("alias", FAMILY, "candidate", "street-student@2", "--why", "round 1")
    assert "champion is street-student@2" in run("promote", FAMILY)
    text = run("list")
    for word in ("champion", "previous", "not judged", bundle("2").ref.sha256[:12]):
        assert word in text
    assert "candidate (round 1)" in run("show", f"{FAMILY}:champion", "--save", "out")
    assert (at / "out" / "street-student-2.fovea").is_file()
    assert "champion is street-student@1" in run("demote", FAMILY)
    run("alias", FAMILY, "champion", "none")
    facts = [json.loads(line) for line in run("list", "--json").splitlines()]
    assert {each["alias"] for each in facts} == {None}
    assert isinstance(refusal("list", to=registry_app), Malformed)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
