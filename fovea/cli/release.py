"""`fovea release ...`: signs models and orders for the fleet, and serves them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.terminal_text import printable
from fovea.core.errors import Malformed, NotFound

if TYPE_CHECKING:
    from cloud.release.keys import KeyFolder, Passphrase
    from cloud.release.repository import Repository, Signing
    from fovea.core.release import DesiredState

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Sign models and orders for the fleet, and serve them as static files.",
)

_USUAL = Path("releases")
_ONLINE = "keys"

Folder = Annotated[Path, typer.Option("--folder", "-f", help="The release repository.")]
Online = Annotated[
    Path | None, typer.Option("--online", help="The folder of online keys; FOLDER/keys if left out.")
]
Offline = Annotated[
    list[Path] | None,
    typer.Option(
        "--offline", help="A folder of offline keys, brought here for this command; several are fine."
    ),
]
OnlineSecret = Annotated[
    Path | None,
    typer.Option("--online-passphrase-file", help="A file whose first line opens the online keys."),
]
OfflineSecret = Annotated[
    Path | None,
    typer.Option(
        "--offline-passphrase-file", help="The same for the offline keys; you are asked if left out."
    ),
]
Family = Annotated[str, typer.Argument(help="The family: models that replace each other, such as street.")]


@app.command()
def init(
    folder: Folder = _USUAL,
    online: Online = None,
    offline: Offline = None,
    online_passphrase_file: OnlineSecret = None,
    offline_passphrase_file: OfflineSecret = None,
    open_keys: Annotated[
        bool, typer.Option("--open-keys", help="Do not encrypt the offline keys. For trials only.")
    ] = False,
) -> None:
    """Make a repository and all its keys: three root keys of which two have to sign, the targets key, and the online
    keys. Then take the offline folder away, and give each root key to another person."""
    if len(offline or []) != 1:
        raise Malformed("release init: expected one --offline FOLDER, best on a stick of its own")
    secrets = offline_passphrase_file, open_keys
    repository = _repository(folder, online, offline, online_passphrase_file, *secrets, is_new=True)
    repository.init()
    typer.echo(f"repository: {folder}, served from {repository.public}")
    typer.echo(f"online keys: {online or folder / _ONLINE}, to stay on this machine")
    typer.echo(
        f"offline keys: {(offline or [])[0]}; take them away, and give each root key to another person"
    )
    typer.echo(f"devices trust {repository.public / 'metadata' / '1.root.json'}: put it into their image")


@app.command()
def family(
    name: Family,
    folder: Folder = _USUAL,
    online: Online = None,
    offline: Offline = None,
    online_passphrase_file: OnlineSecret = None,
    offline_passphrase_file: OfflineSecret = None,
) -> None:
    """Add a family of models with an online key of its own. The targets key has to sign."""
    secrets = online_passphrase_file, offline_passphrase_file
    _tell(_repository(folder, online, offline, *secrets).add_family(name))


@app.command()
def add(
    family: Family,
    bundle: Annotated[Path, typer.Argument(help="A .fovea file.")],
    folder: Folder = _USUAL,
    online: Online = None,
    online_passphrase_file: OnlineSecret = None,
    device_class: Annotated[
        list[str] | None, typer.Option(help="A class of devices that it is for; all if left out.")
    ] = None,
    arch: Annotated[
        list[str] | None, typer.Option(help="A processor it runs on (aarch64, x86_64); any if left out.")
    ] = None,
) -> None:
    """Release a model: devices may fetch it from now on, but none is told to run it (that is `publish`)."""
    from fovea.runtime.bundle import Bundle

    repository = _repository(folder, online, None, online_passphrase_file)
    facts = repository.add_bundle(family, Bundle.open(bundle), tuple(device_class or ()), tuple(arch or ()))
    typer.echo(f"{facts.pin.target}: release {facts.counter} of {family}, {facts.pin.ref}")


@app.command()
def withdraw(
    target: Annotated[str, typer.Argument(help="Its path, as `fovea release status` shows it.")],
    folder: Folder = _USUAL,
    online: Online = None,
    online_passphrase_file: OnlineSecret = None,
) -> None:
    """Take a model back: no device fetches it any more. Its version is never used for other bytes."""
    parts = target.split("/")
    if len(parts) != 3:
        raise Malformed(f"expected models/FAMILY/FILE.fovea, got {target!r:.120}")
    _repository(folder, online, None, online_passphrase_file).withdraw(parts[1], target)
    typer.echo(f"{target}: withdrawn")


@app.command()
def publish(
    group: Annotated[str, typer.Argument(help="The group of devices.")],
    model: Annotated[
        str | None, typer.Option(help="NAME@VERSION or a target's path; the one it runs now if left out.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="The family, for a group that is told for the first time.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A JSON file of settings (thresholds, budgets) for the devices.")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, max=7, help="How long the order holds.")] = 7.0,
    serial: Annotated[
        int | None, typer.Option(min=1, help="A number above all before it; the next one if left out.")
    ] = None,
    folder: Folder = _USUAL,
    online: Online = None,
    online_passphrase_file: OnlineSecret = None,
) -> None:
    """Tell a group which model to run, all at once; `fovea rollout` does it in steps that watch how devices fare."""
    from fovea.cli.release_status import time_text

    repository = _repository(folder, online, None, online_passphrase_file)
    before = repository.desired(group)
    desired = _order(repository, group, before, family, model, policy, timedelta(days=days))
    desired = replace(desired, serial=serial or desired.serial)
    repository.publish(desired)
    typer.echo(
        f"group {group}: serial {desired.serial}, runs {desired.champion.ref} until {time_text(desired.expires_at)}"
    )


@app.command()
def refresh(
    folder: Folder = _USUAL,
    online: Online = None,
    offline: Offline = None,
    online_passphrase_file: OnlineSecret = None,
    offline_passphrase_file: OfflineSecret = None,
) -> None:
    """Sign again what would expire. To be run every hour; with --offline, root and targets are renewed too."""
    from fovea.cli.release_status import time_text

    repository = _repository(folder, online, offline, online_passphrase_file, offline_passphrase_file)
    if offline:
        signing = repository.renew_offline()
        if signing is not None:
            _tell(signing)
    repository.refresh()
    typer.echo(f"{folder}: good until {time_text(repository.live().timestamp.signed.expires)}")


@app.command("rotate-key")
def rotate_key(
    role: Annotated[
        str, typer.Argument(help="root, targets, snapshot, timestamp, channels or models-FAMILY.")
    ],
    key: Annotated[
        str | None, typer.Option(help="First digits of the key to replace; needed for root, which has three.")
    ] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="The old key is gone, and cannot sign once more.")
    ] = False,
    folder: Folder = _USUAL,
    online: Online = None,
    offline: Offline = None,
    online_passphrase_file: OnlineSecret = None,
    offline_passphrase_file: OfflineSecret = None,
) -> None:
    """Replace a key by a new one. Devices follow by themselves. Keys of channels and families need the targets key to
    sign, all others two root keys."""
    secrets = online_passphrase_file, offline_passphrase_file
    _tell(_repository(folder, online, offline, *secrets).rotate(role, key, lost))


@app.command()
def sign(
    folder: Folder = _USUAL,
    online: Online = None,
    offline: Offline = None,
    online_passphrase_file: OnlineSecret = None,
    offline_passphrase_file: OfflineSecret = None,
    drop: Annotated[bool, typer.Option("--drop", help="Forget the change that waits instead.")] = False,
) -> None:
    """Sign the change that waits, with the keys in --offline. It is published when enough people have signed."""
    repository = _repository(folder, online, offline, online_passphrase_file, offline_passphrase_file)
    waiting = repository.waiting()
    if waiting is None:
        raise NotFound("no change waits for signatures")
    if drop:
        repository.drop_waiting()
        typer.echo(f"forgotten: {waiting.why}")
    else:
        _tell(repository.sign())


@app.command()
def status(
    folder: Folder = _USUAL,
    online: Online = None,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False,
) -> None:
    """Say what devices are told, when what expires, which keys are here, and what waits for signatures."""
    from fovea.cli.release_status import facts_of

    repository = _repository(folder, online, None, None)
    facts = facts_of(repository, online or folder / _ONLINE)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    console = Console()
    for name, headings in (
        ("roles", ("role", "version", "expires", "signed by")),
        ("models", ("target", "release", "released", "devices")),
        ("groups", ("group", "serial", "runs", "stage", "expires")),
    ):
        table = Table(*headings, box=SIMPLE, pad_edge=False)
        for row in facts[name]:
            table.add_row(*(escape(printable(str(value))) for value in row.values()))
        console.print(table if facts[name] else f"no {name}\n")
    if facts["waiting"]:
        console.print(f"waits for signatures: {escape(facts['waiting'])}", highlight=False)


@app.command()
def serve(
    folder: Folder = _USUAL,
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0: any free one.")] = "127.0.0.1:8443",
    cert: Annotated[
        Path | None, typer.Option(help="PEM file of the server's certificate, for HTTPS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of its private key.")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of who signs the devices' certificates; others get nothing.")
    ] = None,
) -> None:
    """Serve the repository to devices and mirrors until it is told to stop. Needs no key."""
    from cloud.release.repository import PUBLIC
    from cloud.release.static import ServerTls
    from cloud.release.static import serve as serve_files

    if (cert is None) != (key is None) or (client_ca is not None and cert is None):
        raise Malformed("release serve: expected --cert and --key together (and both with --client-ca)")
    tls = ServerTls(cert, key, client_ca) if cert and key else None
    serve_files(folder / PUBLIC, listen, tls, lambda url: _say(f"serving releases at {url}"))


def _repository(
    folder: Path,
    online: Path | None,
    offline: list[Path] | None,
    online_file: Path | None,
    offline_file: Path | None = None,
    open_keys: bool = False,
    is_new: bool = False,
) -> Repository:
    from cloud.release.keys import KeyFolder, Keys, no_passphrase, passphrase_from
    from cloud.release.repository import Repository

    for path in offline or []:
        if not is_new and not path.is_dir():
            raise NotFound(f"no folder of offline keys at {path}")
    online_secret = passphrase_from(online_file) if online_file else no_passphrase
    offline_secret: Passphrase = no_passphrase if open_keys else _asked(is_new)
    if offline_file:
        offline_secret = passphrase_from(offline_file)
    here = KeyFolder(online or folder / _ONLINE, online_secret)
    brought: list[KeyFolder] = [KeyFolder(path, offline_secret) for path in offline or []]
    return Repository(folder, Keys(here, brought))


def _asked(is_new: bool) -> Passphrase:
    """Asks on the terminal: once for all keys that are made, and once for each that is opened."""
    known: list[bytes] = []

    def ask(purpose: str) -> bytes:
        if is_new and known:
            return known[0]
        if not sys.stdin.isatty():
            raise NotFound(f"{purpose}: expected --offline-passphrase-file, as nobody can be asked here")
        what = "passphrase for all offline keys" if is_new else f"passphrase for {purpose}"
        secret: str = typer.prompt(what, hide_input=True, confirmation_prompt=is_new)
        known.append(secret.encode())
        return known[-1]

    return ask


def _order(
    repository: Repository,
    group: str,
    before: DesiredState | None,
    family: str | None,
    model: str | None,
    policy: Path | None,
    life: timedelta,
) -> DesiredState:
    from fovea.core.release import DesiredState, Probation, Stage

    if before is None and (family is None or model is None):
        raise Malformed(f"group {group}: is told for the first time; expected --family and --model")
    chosen = family or (before.family if before else "")
    pin = before.champion if before and model is None else None
    if pin is None:
        fitting = [
            each.pin
            for each in repository.models(chosen)
            if model in (each.pin.target, f"{each.pin.name}@{each.pin.version}")
        ]
        if not fitting:
            raise NotFound(
                f"no model {model!r:.120} is released in {chosen}; `fovea release status` lists them"
            )
        pin = fitting[0]
    now = datetime.now(UTC)
    return DesiredState(
        group=group,
        family=chosen,
        serial=before.serial + 1 if before else 1,
        issued_at=now,
        expires_at=now + life,
        champion=pin,
        candidate=None,
        stage=Stage.IDLE,
        shadow_share=0.0,
        run_share=0.0,
        salt=before.salt if before else group,
        probation=before.probation if before else Probation(frames=300, seconds=60.0),
        policy=_policy(policy) if policy else (before.policy if before else None),
    )


def _policy(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise NotFound(f"policy {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise Malformed(f"policy {path}: expected JSON ({error})") from error
    if not isinstance(value, dict):
        raise Malformed(f"policy {path}: expected a JSON object, got {type(value).__name__}")
    return value


def _tell(signing: Signing) -> None:
    from fovea.cli.release_status import waiting_text

    if signing.is_published:
        typer.echo(f"published: {signing.why}")
    else:
        typer.echo(f"waits for signatures: {waiting_text(signing)}")
        typer.echo("sign with: fovea release sign --offline FOLDER")


def _say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()
