"""The generated messages are those of the .proto files, and a difference does not go unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protos import generate
from protos.generate import GENERATED, PROTOS, find_drift


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the .proto files and, in gen, what was generated from them."""
    for path in PROTOS.glob("*.proto"):
        shutil.copy(path, tmp_path)
    shutil.copytree(GENERATED, tmp_path / "gen", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_what_is_committed_is_what_would_be_generated() -> None:
    assert find_drift() == []


def test_a_changed_field_an_edited_module_and_a_lost_stub_are_all_told(copy: Path) -> None:
    proto = copy / "detect.proto"
    proto.write_text(proto.read_text().replace("bool degraded = 4;", "bool is_degraded = 4;"))
    assert find_drift(copy, copy / "gen") == ["detect_pb2.py differs", "detect_pb2.pyi differs"]
    (copy / "gen" / "detect_pb2.pyi").unlink()
    (copy / "gen" / "old_pb2.py").write_text("")
    assert find_drift(copy, copy / "gen") == [
        "detect_pb2.pyi is missing",
        "old_pb2.py has no .proto file",
        "detect_pb2.py differs",
    ]


def test_a_file_that_does_not_compile_is_an_error_and_nothing_is_written(
    copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copy / "detect.proto").write_text("message {")
    with pytest.raises(ValueError, match=r"protoc does not accept .*detect\.proto"):
        generate.generate(copy / "out", copy)
    assert "detect.proto" in capfd.readouterr().err


def test_the_check_fails_as_a_command_only_when_something_differs(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"], copy, copy / "gen") == 0
    (copy / "gen" / "detect_pb2.py").write_text("edited")
    assert generate.main(["--check"], copy, copy / "gen") == 1
    assert "detect_pb2.py differs: run `make proto`" in capsys.readouterr().err
    assert generate.main([], copy, copy / "gen") == 0
    assert find_drift(copy, copy / "gen") == []
