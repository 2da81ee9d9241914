"""Generates protos/gen from protos/*.proto; `--check` writes nothing and fails when they do not go together."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
GENERATED = PROTOS / "gen"
# Where a message file lies for protoc: in the package of what it generates, so that the imports come out right.
_VIRTUAL = "protos/gen"


def generate(into: Path, sources: Path = PROTOS) -> list[Path]:
    """Writes the modules and type stubs for every .proto file of `sources` below `into`; returns their paths.

    Raises ValueError when a file does not compile; protoc has printed why.
    """
    from grpc_tools import protoc  # a tool of developers, absent where the product runs

    names = sorted(path.name for path in sources.glob("*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={_VIRTUAL}={sources}",
        f"--proto_path={Path(protoc.__file__).parent / '_proto'}",
        f"--python_out={into}",
        f"--pyi_out={into}",
        *(f"{_VIRTUAL}/{name}" for name in names),
    ]
    if protoc.main(arguments) != 0:
        raise ValueError(f"protoc does not accept {', '.join(names)}")
    written = sorted((into / _VIRTUAL).glob("*_pb2.py*"))
    for path in written:
        origin = path.name.split("_pb2")[0]
        path.write_text(
            f'"""Generated from protos/{origin}.proto: do not edit."""\n' + path.read_text("utf-8"), "utf-8"
        )
    return written


def find_drift(sources: Path = PROTOS, generated: Path = GENERATED) -> list[str]:
    """What a new generation would change, one line for each file; empty when all is up to date."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {path.name: path.read_bytes() for path in generate(Path(folder), sources)}
    present = {path.name: path.read_bytes() for path in generated.glob("*_pb2.py*")}
    return [
        *(f"{name} is missing" for name in sorted(fresh.keys() - present.keys())),
        *(f"{name} has no .proto file" for name in sorted(present.keys() - fresh.keys())),
        *(
            f"{name} differs"
            for name in sorted(fresh.keys() & present.keys())
            if fresh[name] != present[name]
        ),
    ]


def main(arguments: Sequence[str] | None = None, sources: Path = PROTOS, generated: Path = GENERATED) -> int:
    """The command: 0 when all went well, 1 when `--check` found a difference."""
    parser = argparse.ArgumentParser(prog="python -m protos.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the files are out of date"
    )
    if parser.parse_args(arguments).check:
        drift = find_drift(sources, generated)
        for line in drift:
            print(f"{line}: run `make proto`", file=sys.stderr)
        return 1 if drift else 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder), sources)
        for path in generated.glob("*_pb2.py*"):
            path.unlink()
        for path in fresh:
            (generated / path.name).write_bytes(path.read_bytes())
            print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
