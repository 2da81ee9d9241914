"""Every published result as a line of JSON in a file, for demonstrations and tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.messages import result_message
from edge_agent.publish.publishing import NullPublisher
from edge_agent.track.tracking import Tracking
from fovea.core.errors import Malformed
from fovea.core.result import FrameResult

_log = logging.getLogger(__name__)


class ResultsFile(NullPublisher):
    """A Publisher that appends the message of each result, the same that goes to the broker, as one line.

    A file that cannot be written (a full disk) stops nothing: its lines are counted, and it is said once.
    """

    def __init__(self, path: Path, device: str, names: LabelNames) -> None:
        """Raises Malformed when the file cannot be opened."""
        self._path = path
        self._device = device
        self._names = names
        self._lock = threading.Lock()
        self._counts = {"file_results": 0, "file_dropped": 0}
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise Malformed(f"results_file: cannot write {path}: {error.strerror}") from error

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        line = result_message(self._device, camera, result, tracking, self._names, None) + b"\n"
        with self._lock:
            try:
                self._file.write(line)
                self._counts["file_results"] += 1
            except (OSError, ValueError) as error:  # ValueError: closed
                if not self._counts["file_dropped"]:
                    _log.error("results cannot be written to %s any more: %s", self._path, error)
                self._counts["file_dropped"] += 1

    @property
    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)

    def stop(self, timeout_s: float) -> None:
        with self._lock:
            self._file.close()
