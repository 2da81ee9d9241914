"""What holds for the repository itself: sizes, docstrings, pins and locks, and commands that its pages name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from fovea.cli.main import GROUPS

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("agent", "cloud", "demo", "dev", "gpu", "postgres", "ray", "s3", "serve", "train")
BESIDE = ("postgres", "ray", "s3")
MODEL_SUFFIXES = (".fovea", ".onnx", ".pt", ".pth", ".safetensors")
PACKAGES = ("calibration", "cloud", "edge_agent", "edge_server", "fovea", "protos")
FOLDERS = (*PACKAGES, "deploy", "docs", "tests")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Locked:
    """One entry of a lock: the requirement, pinned and maybe with a marker, and its hashes."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.requirement.name


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tracked_files() -> list[Path]:
    """Every file that a clone has."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of the files that belong to it")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def lock(extra: str) -> list[Locked]:
    """The entries of a lock file, in its order."""
    text = read(f"deploy/locks/{extra}.txt").replace("\\\n", " ")
    return [entry(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def entry(line: str) -> Locked:
    """`name==1.2 ; marker --hash=sha256:... --hash=...` as an entry."""
    requirement, *hashes = line.split(" --hash=")
    return Locked(Requirement(requirement.strip()), tuple(each.strip() for each in hashes))


def pins(extra: str) -> list[Requirement]:
    """What pyproject.toml asks for with an extra, with the extras that it names itself in their place."""
    project = pyproject()["project"]
    wanted = [Requirement(text) for text in project["dependencies"]]
    todo = [Requirement(text) for text in project["optional-dependencies"][extra]]
    for requirement in todo:
        if requirement.name == "fovea":
            for other in sorted(requirement.extras):
                todo += [Requirement(text) for text in project["optional-dependencies"][other]]
        else:
            wanted.append(requirement)
    return wanted


def pyproject() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))


def test_no_tracked_file_has_more_than_20_mb() -> None:
    sizes_bytes = {str(path.relative_to(ROOT)): path.stat().st_size for path in tracked_files()}
    assert {name: size for name, size in sizes_bytes.items() if size > 20 * MB} == {}


def test_all_models_of_the_repository_have_less_than_64_mb_and_the_bundled_ones_at_most_40() -> None:
    models = [path for path in tracked_files() if path.suffix in MODEL_SUFFIXES]
    zoo = (ROOT / "fovea" / "zoo" / "models").glob("*")
    assert sum(path.stat().st_size for path in models) < 64 * MB
    assert sum(path.stat().st_size for path in zoo) <= 40 * MB


def test_every_python_file_parses_and_begins_with_a_docstring_that_says_its_job() -> None:
    trees = {path: ast.parse(path.read_bytes(), str(path)) for path in python_files()}
    silent = [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_no_python_package_is_left_without_its_init_file() -> None:
    folders = {path.parent for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES}
    assert [
        str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()
    ] == []


def test_each_extra_has_a_lock_and_each_lock_an_extra() -> None:
    assert set(pyproject()["project"]["optional-dependencies"]) == set(EXTRAS)
    assert {path.stem for path in (ROOT / "deploy" / "locks").glob("*.txt")} == set(EXTRAS)
    script = read("deploy/locks/make_locks.sh")
    named = re.search(r"^for extra in ([a-z0-9 ]+); do$", script, re.MULTILINE)
    assert named is not None
    assert set(named[1].split()) == set(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_dependency_is_pinned_and_its_lock_has_that_very_version(extra: str) -> None:
    locked = {each.name: str(each.requirement.specifier) for each in lock(extra)}
    wanted = pins(extra)
    assert [str(pin) for pin in wanted if not re.fullmatch(r"==[\w.]+", str(pin.specifier))] == []
    assert {
        pin.name: str(pin.specifier) for pin in wanted if locked.get(pin.name) != str(pin.specifier)
    } == {}


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_locked_package_is_exact_and_hashed_and_says_nothing_about_where_it_came_from(
    extra: str,
) -> None:
    entries = lock(extra)
    assert len(entries) > len(pins(extra))
    loose = [
        str(each.requirement) for each in entries if not str(each.requirement.specifier).startswith("==")
    ]
    assert loose == []
    assert [each.name for each in entries if not each.hashes] == []
    hashes = [text for each in entries for text in each.hashes]
    assert [text for text in hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", text)] == []
    text = read(f"deploy/locks/{extra}.txt")
    assert re.findall(r"\w+://\S+|^\s*--(?!hash=)\S+|^\s*-\w\b.*| @ .*", text, re.MULTILINE) == []


@pytest.mark.parametrize("extra", BESIDE)
def test_what_is_installed_beside_another_set_brings_no_second_opencv_or_runtime(extra: str) -> None:
    assert not [each.name for each in lock(extra) if each.name.startswith(("opencv", "onnxruntime"))]


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - set(BESIDE)))
def test_each_lock_has_the_one_opencv_and_the_one_runtime_that_fit_it(extra: str) -> None:
    names = {each.name for each in lock(extra)}
    opencv = "opencv-python-headless" if extra == "agent" else "opencv-python"
    runtime = "onnxruntime-gpu" if extra == "gpu" else "onnxruntime"
    assert {name for name in names if name.startswith("opencv")} == {opencv}
    assert {name for name in names if name.startswith("onnxruntime")} == {runtime}


@pytest.mark.parametrize("extra", ["agent", "cloud", "demo", "gpu", "serve"])
def test_what_only_runs_models_is_locked_without_the_training_side(extra: str) -> None:
    names = {each.name for each in lock(extra)}
    assert names & {"matplotlib", "onnx", "torch", "torchvision", "ultralytics"} == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    text = read(page)
    code = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) - make_targets() == set()
    assert set(re.findall(r"(?:^|[`/ ])fovea ([a-z]+)", code, re.MULTILINE)) - set(GROUPS) == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = read(page)
    linked = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", text)
    assert [name for name in [*linked, *named] if not (ROOT / name).exists()] == []


def test_the_readme_leads_with_the_two_commands_that_show_and_prove_the_product() -> None:
    text = read("README.md")
    assert {"demo", "test"} <= make_targets()
    assert "make demo" in text
    assert "make test" in text
