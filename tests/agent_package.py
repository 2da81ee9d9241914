"""What the tests of the installed agent share: building the wheel, asking pip, and saying when there is no index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGENT_LOCK = ROOT / "deploy" / "locks" / "agent.txt"
WITHOUT_BUILDING = ("--no-deps", "--require-hashes", "--only-binary=:all:")
ARM64_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
PACKAGES = ("calibration", "cloud", "edge_agent", "edge_server", "fovea", "protos")
PROJECT_FILES = ("pyproject.toml", "README.md", "LICENSE")
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "rustc", "cargo", "cmake", "make")


def run(command: Sequence[object], env: Mapping[str, str], folder: Path, timeout_s: float = 600) -> str:
    """The standard output of a command run in `folder`. Unless it ends with 0, the test fails with all it said."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=dict(env), cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def arm64_wheels(python: str) -> list[str]:
    """pip's options for wheels that run on an ARM64 board with glibc 2.28 or newer and this Python, like `3.13`."""
    abis = [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
    platforms = [f"--platform={name}_aarch64" for name in ARM64_PLATFORMS]
    return [*WITHOUT_BUILDING, "--implementation=cp", f"--python-version={python}", *abis, *platforms]


def pip_environment(folder: Path) -> dict[str, str]:
    """The environment of this process, whose settings of pip hold, with a PATH on which there is no compiler."""
    assert [name for name in COMPILERS if shutil.which(name, path=str(folder))] == []
    return {**os.environ, "PATH": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def skip_without_package_index(tmp_path: Path) -> None:
    """Skips the test, saying so, when the smallest package of the agent's lock cannot be fetched."""
    entry = re.search(r"^mdurl==.*(?:\n .*)+", AGENT_LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert entry is not None
    wanted = tmp_path / "one-package.txt"
    wanted.write_text(entry[0] + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--retries", "0", "--timeout", "15"]
    asked = subprocess.run(
        [*pip, "download", "--quiet", "--no-cache-dir", *WITHOUT_BUILDING, "--dest", tmp_path, "-r", wanted],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"needs a package index, and none answers here: {said[-1]}")


def build_wheel(into: Path) -> Path:
    """The product's wheel, built by pip from a copy of the sources and without a compiler."""
    tree, no_tools = into / "sources", into / "no-tools"
    no_tools.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PROJECT_FILES:
        shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip"]
    run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", into, tree], pip_environment(no_tools), into)
    (wheel,) = into.glob("fovea-*.whl")
    return wheel
