"""Importing any module of the product starts, opens, writes and changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.import_probe import FORBIDDEN

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).with_name("import_probe.py")
PACKAGES = ("calibration", "cloud", "edge_agent", "edge_server", "fovea", "protos")

# The only libraries whose own import may have an effect, and which kind; all are imported before our modules are.
VENDOR_EFFECTS = {
    # OpenBLAS starts its threads; numpy silences warnings about its own ABI, and sets a variable while it loads.
    "numpy": {"environment", "thread", "warnings"},
    # OpenCV carries an OpenBLAS of its own; its build with windows points LD_LIBRARY_PATH and Qt at what it carries.
    "cv2": {"environment", "thread"},
    # Its own loggers keep quiet below a warning.
    "sqlalchemy": {"logging"},
    # Asks once whether there is IPv6, and wants its own warnings to be seen.
    "urllib3": {"socket", "warnings"},
    # Its own logger keeps quiet below a warning; it loads the clients of key vaults where they are installed.
    "securesystemslib.signer": {"logging", "warnings"},
}

MISBEHAVING = {
    "keeps_a_thread": (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "thread",
    ),
    "uses_a_thread": ("import threading; t = threading.Thread(target=int); t.start(); t.join()", "thread"),
    "keeps_a_socket": ("import socket; kept = socket.socket()", "descriptor"),
    "uses_a_socket": ("import socket; socket.socket().close()", "socket"),
    "starts_a_process": ("import subprocess; subprocess.run(['true'])", "process"),
    "sets_a_variable": ("import os; os.environ['YOLO_OFFLINE'] = '1'", "environment"),
    "adds_a_handler": ("import logging; logging.basicConfig()", "logging"),
    "sets_the_root_level": ("import logging; logging.getLogger().setLevel(10)", "logging"),
    "writes_at_home": ("from pathlib import Path; (Path.home() / 'settings.json').write_text('{}')", "file"),
    "loads_a_runtime": ("import onnxruntime", "vendor"),
    "handles_a_signal": ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", "signal"),
    "extends_the_path": ("import sys; sys.path.append('elsewhere')", "interpreter"),
    "hides_warnings": ("import warnings; warnings.simplefilter('ignore')", "warnings"),
    "cannot_be_imported": ("import a_library_that_nobody_has", "import failed"),
    "exits": ("raise SystemExit(0)", "import failed"),
}


def module_names() -> list[str]:
    """Every module of the product, packages before what is in them, found without importing anything."""
    return [name for package in PACKAGES for name in _modules_in(ROOT / package, package)]


def _modules_in(folder: Path, package: str) -> list[str]:
    names = [package]
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py" and path.stem != "__init__":
            names.append(f"{package}.{path.stem}")
        elif path.is_dir() and any(path.glob("*.py")):
            names += _modules_in(path, f"{package}.{path.name}")
    return names


def effects_of_imports(names: list[str], home: Path, source: Path = ROOT) -> dict[str, set[tuple[str, str]]]:
    """What each import did beyond importing, all in one process that has nothing but PATH and HOME."""
    run_probe = f"runpy.run_path({str(PROBE)!r}, run_name='__main__')"
    start = f"import runpy, sys; sys.path.insert(0, {str(source)!r}); {run_probe}"
    child = subprocess.run(
        [sys.executable, "-I", "-B", "-c", start],
        input=json.dumps(names),
        env={"HOME": str(home), "PATH": os.defpath},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    assert child.stderr == "", "an import wrote to the standard error output"
    found = json.loads(child.stdout)
    assert list(found) == names
    return {name: {(kind, detail) for kind, detail in effects} for name, effects in found.items()}


def test_importing_every_module_one_after_another_does_nothing_else(tmp_path: Path) -> None:
    modules = module_names()
    assert "fovea.runtime.ort" in modules

    found = effects_of_imports([*VENDOR_EFFECTS, *modules], tmp_path)

    for vendor, allowed in VENDOR_EFFECTS.items():
        assert {effect for effect in found.pop(vendor) if effect[0] not in allowed} == set(), vendor
    report = [
        f"{name}: {kind}: {detail}" for name, effects in found.items() for kind, detail in sorted(effects)
    ]
    assert not report, "\n".join(["imports that did something", *report])
    assert list(tmp_path.rglob("*")) == []


def test_the_watched_libraries_are_installed_here_so_that_loading_one_would_show() -> None:
    from importlib.util import find_spec

    assert [name for name in FORBIDDEN if find_spec(name) is None] == []


@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_module_that_does_something_when_it_is_imported_is_caught(name: str, tmp_path: Path) -> None:
    code, kind = MISBEHAVING[name]
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    home.mkdir()
    (source / f"{name}.py").write_text(code)
    (source / "quiet.py").write_text("import logging, socket\nlogger = logging.getLogger(__name__)\n")

    found = effects_of_imports(["quiet", name], home, source)

    assert found["quiet"] == set()
    assert kind in {kind for kind, _ in found[name]}
