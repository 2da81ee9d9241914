"""The child process of the local executor: does one task, politely, and writes down how it ended."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cloud.learn.executor import Task, perform
from cloud.learn.local_executor import ANSWER, NICENESS, TASK
from fovea.runtime.atomic_file import write_atomically

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Do the task in a folder; 0 when it is done, 1 when it failed and said why."""
    parser = argparse.ArgumentParser(prog="cloud.learn.run_task", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(argv).folder
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s")
    os.nice(NICENESS)
    task = Task.from_json((folder / TASK).read_text(encoding="utf-8"))
    try:
        answer = perform(task)
    except Exception as error:
        log.exception("task %s", task.name)
        answer = {"reason": f"{type(error).__name__}: {error}"}
    write_atomically(folder / ANSWER, json.dumps(answer).encode())
    return 0 if "result" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
