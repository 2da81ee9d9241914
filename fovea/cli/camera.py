"""`fovea camera ...`: try a camera, add it to a configuration, list those that are in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.core.errors import Malformed

if TYPE_CHECKING:
    from edge_agent.capture.source import SourceSpec

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Try cameras, and add them to a configuration."
)

Url = Annotated[
    str, typer.Argument(help="rtsp://, http://, a device number, a video, a picture, a folder, sim://.")
]
Username = Annotated[str, typer.Option(help="For cameras that ask who is there.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help="A file with the password; asked for if left out and a username is given.")
]
Config = Annotated[Path, typer.Option("--config", "-c", help="The configuration of an agent.")]


@app.command()
def test(
    url: Url,
    username: Username = "",
    password_file: PasswordFile = None,
    save: Annotated[Path, typer.Option(help="Where the first frame goes: .jpg or .png.")] = Path(
        "first-frame.jpg"
    ),
    timeout: Annotated[float, typer.Option(min=0.5, max=600, help="Seconds to wait for it.")] = 10.0,
    measure: Annotated[float, typer.Option(min=0, max=600, help="Seconds to count frames for.")] = 2.0,
) -> None:
    """Say what is found at an address, and save its first frame."""
    from edge_agent.capture.camera_trial import try_source
    from edge_agent.capture.source import described, shown_url
    from fovea.process.clock import SystemClock
    from fovea.runtime.atomic_file import write_atomically
    from fovea.runtime.images import encode_jpeg, encode_png

    if save.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise Malformed(f"the first frame is saved as .jpg or .png, not {save.name!r}")
    spec = source_spec(url, username, password_file, timeout)
    with Console(stderr=True).status(f"looking at {escape(shown_url(spec))}"):
        trial = try_source(spec, SystemClock(), measure)
    is_png = save.suffix.lower() == ".png"
    save.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(save, encode_png(trial.pixels) if is_png else encode_jpeg(trial.pixels, 92))
    rate = "" if trial.measured_fps is None else f"; measured {trial.measured_fps:.1f} frames/s"
    console = Console()
    for line in (
        f"{shown_url(spec)}: {described(trial.facts)}{rate}",
        f"first frame after {trial.first_frame_s:.2f} s, saved as {save}",
    ):
        console.print(escape(line), highlight=False, soft_wrap=True)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Its name in topics, metrics and events.")],
    url: Url,
    config: Config,
    username: Username = "",
    password_file: PasswordFile = None,
    fps: Annotated[float, typer.Option(min=0.01, max=240, help="Frames per second looked at.")] = 5.0,
) -> None:
    """Append a camera to a configuration; comments in it stay, and it changes only if it is sound then."""
    from edge_agent.capture.config_edit import add_camera
    from edge_agent.capture.sources.url import SourceKind

    spec = source_spec(url, username, password_file, 10.0)
    is_path = spec.kind is SourceKind.FILE and not spec.url.startswith("file://")
    # Paths in a configuration are relative to it; those on a command line are not.
    entry: dict[str, object] = {"name": name, "url": str(Path(spec.url).absolute()) if is_path else spec.url}
    entry["fps"] = fps
    own_file: Path | None = None
    if spec.username is not None:
        entry["username"] = spec.username
        if spec.password is not None:
            if password_file is None:
                own_file = _password_file_for(name, config)
                _keep_secret(own_file, spec.password)
            entry["password_file"] = str((password_file or own_file or Path()).absolute())
    try:
        add_camera(config, entry)
    except BaseException:
        if own_file is not None:
            own_file.unlink(missing_ok=True)
        raise
    line = f"{name} added to {config}" + (f"; its password lies in {own_file}" if own_file else "")
    Console().print(escape(line), highlight=False, soft_wrap=True)


@app.command("list")
def list_command(config: Config) -> None:
    """Show the cameras of a configuration."""
    from edge_agent.capture.sources.url import hide_secrets
    from edge_agent.config import load_config

    table = Table("name", "address", "frames/s", "login", "masks", "zones")
    for camera in load_config(config).cameras:
        url = camera.sub_url if camera.stream == "sub" and camera.sub_url else camera.url
        table.add_row(
            escape(camera.name),
            escape(hide_secrets(url)),
            "all" if camera.fps is None else f"{camera.fps:g}",
            escape(camera.username or ""),
            str(len(camera.masks)),
            str(len(camera.zones)),
        )
    Console().print(table)


def source_spec(url: str, username: str, password_file: Path | None, timeout_s: float) -> SourceSpec:
    """The source that the options of a command name; asks for the password where only a username is given."""
    from edge_agent.capture.source import SourceSpec
    from fovea.process.secret_file import read_secret

    password: str | None = None
    if password_file is not None:
        if not username:
            raise Malformed("expected --username with --password-file")
        password = read_secret("--password-file", password_file)
    elif username:
        password = typer.prompt("Password", hide_input=True, err=True, default="", show_default=False) or None
    return SourceSpec(url, username or None, password, open_timeout_s=timeout_s, read_timeout_s=timeout_s)


def _password_file_for(name: str, config: Path) -> Path:
    """A file that nobody has yet, beside the configuration."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name)[:60] or "camera"
    number = 1
    while True:
        path = config.absolute().parent / f"{plain}{'' if number == 1 else f'-{number}'}.password"
        if not path.exists():
            return path
        number += 1


def _keep_secret(path: Path, password: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Malformed(f"cannot write the password to {path}: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(password + "\n")
