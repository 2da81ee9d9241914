"""Ties a child process to its starter: the kernel ends it when the starter ends.

Run as a script it becomes another program:

    python -I tied_process.py PARENT_PID PROGRAM [ARGUMENT ...]

The tie is PR_SET_PDEATHSIG of Linux, which an exec keeps. It holds even when the parent is killed with SIGKILL and
has no chance to stop anybody. Elsewhere than on Linux there is no such tie, and the program runs without it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(argv: Sequence[str]) -> list[str]:
    """The command that runs the program `argv` tied to this process; `argv[0]` is the path of the program."""
    return [sys.executable, "-I", __file__, str(os.getpid()), *argv]


def main() -> None:
    """Ties this process to its parent and becomes the program; ends at once where the parent is gone already."""
    parent_pid = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the tie held
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
