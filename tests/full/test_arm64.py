"""The agent on an ARM64 board: Debian's Python 3.13 and the locked wheels for aarch64, on an emulated processor.

What is proved is that the set is complete, starts, and computes what it computes on this machine. How fast a board is
and whether its camera works is not: that needs the board.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from fovea.core.arrays import ImageArray
from fovea.core.frame import size_of
from fovea.core.letterbox import Letterbox
from fovea.runtime.bundle import Bundle
from fovea.runtime.golden import make_golden
from fovea.runtime.images import decode_image, encode_png
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.preprocess import resize
from fovea.zoo import names, path_of
from tests.agent_package import (
    AGENT_LOCK,
    ROOT,
    arm64_wheels,
    build_wheel,
    pip_environment,
    run,
    skip_without_package_index,
)

pytestmark = pytest.mark.timeout(1800)

MODEL = "street-student-int8"
TOOLS = ("mmdebstrap", "proot", "qemu-aarch64-static")
DEBIAN_PACKAGES = "base-files,libc-bin,libstdc++6,python3"
PROCESSORS = {"Raspberry Pi 4": "cortex-a72", "Raspberry Pi 5": "cortex-a76"}
NO_MIRROR = re.compile(
    r"Could not (resolve|connect)|Temporary failure resolving|Connection (timed out|refused|failed)"
)
LOOKER = Path(__file__).with_name("what_it_saw.py")


@dataclass(frozen=True, slots=True)
class Arm64Board:
    """Debian for ARM64 in `folder/root`, the agent's set in `folder/agent`; its programs run under emulation.

    `folder` has the same path on both sides: the emulator asks this machine, not the board, whether a file can be
    read.
    """

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def agent(self) -> Path:
        return self.folder / "agent"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def python(self, *arguments: str | Path, processor: str = "cortex-a72") -> str:
        """The output of Python on the board; it must succeed and leave nothing in $HOME.

        Neither CI nor ORT_DISABLE_TELEMETRY is set: the agent has to keep its runtime quiet by itself. The processor
        is named because the emulator's default one authenticates pointers, which makes Python many times slower.
        """
        emulator = ["proot", "-q", "qemu-aarch64-static", "-r", str(self.root), "-w", str(self.home)]
        folders = ["-b", "/proc", "-b", "/dev", "-b", str(self.folder)]
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(self.agent),
            "QEMU_CPU": processor,
        }
        said = run([*emulator, *folders, "/usr/bin/python3", *arguments], env, self.folder, timeout_s=1500)
        assert list(self.home.rglob("*")) == []
        return said

    def fovea(self, *arguments: str | Path) -> str:
        return self.python(self.agent / "bin" / "fovea", *arguments)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arm64Board]:
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; deploy/image/install_arm64_tools.sh installs them")
    board = Arm64Board(tmp_path_factory.mktemp("arm64"))
    board.home.mkdir()
    skip_without_package_index(board.folder)
    unpack_debian(board.root)
    install_agent_set(board)
    yield board
    shutil.rmtree(board.folder)


def unpack_debian(root: Path) -> None:
    """Unpacks Debian 13 for ARM64 without running any of its programs. Skips where no mirror of Debian answers."""
    command = [
        "mmdebstrap",
        "--mode=chrootless",
        "--variant=extract",
        "--architectures=arm64",
        "--skip=check/qemu",
    ]
    unpacked = subprocess.run(
        [*command, f"--include={DEBIAN_PACKAGES}", "trixie", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if unpacked.returncode != 0 and NO_MIRROR.search(unpacked.stderr):
        pytest.skip(
            f"needs a mirror of Debian, and none answers here: {unpacked.stderr.strip().splitlines()[-1]}"
        )
    assert unpacked.returncode == 0, unpacked.stderr


def install_agent_set(board: Arm64Board) -> None:
    """The agent's lock and the product's wheel: one set, wheels only, every file hashed."""
    wheel = build_wheel(board.folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = board.folder / "agent-set.txt"
    wanted.write_text(f"{AGENT_LOCK.read_text()}\nfovea @ {wheel.as_uri()} --hash=sha256:{digest}\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", board.agent]
    run([*pip, *arm64_wheels("3.13"), "-r", wanted], pip_environment(board.folder / "no-tools"), board.folder)


@pytest.fixture
def bundle() -> Bundle:
    if MODEL not in names():
        pytest.skip("this tree has no bundled models")
    return Bundle.open(path_of(MODEL))


def frames_of_two_sizes(bundle: Bundle) -> list[ImageArray]:
    """Three golden frames of the bundle, at the size that the network takes and at twice and a half that size."""
    golden = [decode_image(data) for name, data in sorted(bundle.parts.items()) if name.endswith(".png")][:3]
    fitting = [
        resize(each, Letterbox.fit(size_of(each), bundle.manifest.input.size).resized) for each in golden
    ]
    return [*fitting, *(cv2.resize(each, None, fx=2.5, fy=2.5) for each in fitting)]


def difference(key: str, here: NDArray[np.generic], there: NDArray[np.generic]) -> str | None:
    """What is wrong with a stage (`FRAME/STAGE`) as the board computed it; None where nothing is.

    What goes into the network is equal to the last bit. Of what comes out one value in a thousand may be off: the
    first and last layers work in floating point, and a last bit may carry a value over to the next quantized step.
    """
    if here.shape != there.shape:
        return f"{key}: {here.shape} here, {there.shape} there"
    off = np.abs(here.astype(np.float64) - there.astype(np.float64))
    print(f"{key}: {np.count_nonzero(off)} of {off.size} values differ, by at most {off.max():.3g}")
    share = float(np.mean(off > 1e-5 * np.abs(here).max()))
    most = 0.0 if key.endswith(("/pixels", "/tensor")) else 1e-3
    return None if share <= most else f"{key}: {share:.2%} of the values differ, by at most {off.max():.3g}"


def test_the_agent_set_starts_on_an_arm64_board(board: Arm64Board) -> None:
    code = "import platform; print(platform.machine(), platform.python_version())"
    assert board.python("-c", code).startswith("aarch64 3.13.")
    assert "check" in board.fovea("agent", "--help")


def test_the_board_runs_the_bundled_model_and_answers_its_golden_frames(
    board: Arm64Board, bundle: Bundle
) -> None:
    installed = board.agent / path_of(MODEL).relative_to(ROOT)

    said = board.fovea("agent", "check", installed, "--frames", "5", "--timeout-s", "1200")

    assert str(bundle.ref) in said
    assert "aarch64" in said
    assert "answered as expected" in said


def test_frames_of_any_size_are_answered_on_the_board_as_here(board: Arm64Board, bundle: Bundle) -> None:
    detector = OnnxDetector.open(bundle, device="cpu")
    without = dict.fromkeys(name for name in bundle.parts if name.startswith("golden/"))
    golden = make_golden(detector, frames_of_two_sizes(bundle), bundle.manifest.answer_min_score)
    remade = bundle.with_parts({**without, **golden}).write(board.folder)

    said = board.fovea("agent", "check", remade, "--frames", "5", "--timeout-s", "1200")

    assert "6 answered as expected" in said


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS.keys())
def test_the_board_computes_what_this_machine_computes(
    board: Arm64Board, bundle: Bundle, processor: str
) -> None:
    frames = board.folder / processor
    frames.mkdir()
    for index, pixels in enumerate(frames_of_two_sizes(bundle)):
        (frames / f"{index}.png").write_bytes(encode_png(pixels))
    looker, model = shutil.copy(LOOKER, frames), bundle.write(frames)
    here, there = frames / "here.npz", frames / "there.npz"

    env = {"PATH": "/usr/bin:/bin", "HOME": str(board.home), "PYTHONPATH": str(ROOT)}
    run([sys.executable, looker, model, frames, here], env, board.folder)
    board.python(looker, model, frames, there, processor=processor)

    seen_here, seen_there = dict(np.load(here)), dict(np.load(there))
    assert set(seen_there) == set(seen_here)
    found = [difference(key, array, seen_there[key]) for key, array in seen_here.items()]
    assert [each for each in found if each is not None] == []
