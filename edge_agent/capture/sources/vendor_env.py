"""What OpenCV has to be told through the environment before it opens its first video."""

from __future__ import annotations

import os
from threading import Lock

import cv2

_USUAL = {
    # Without it OpenCV holds one lock for the whole process while it connects: a camera that accepts a connection and
    # never answers then keeps every other camera out for its open timeout (measured: 3 such cameras, 3 timeouts).
    "OPENCV_FFMPEG_IS_THREAD_SAFE": "1",
    # FFmpeg complains to stderr of every damaged packet; what matters reaches us as an error or a counted drop.
    "OPENCV_FFMPEG_LOGLEVEL": "-8",
}
_LOG_LEVEL = "OPENCV_LOG_LEVEL"
_lock = Lock()


def prepare_opencv() -> None:
    """Sets what is not set yet; what the user has set stays. To be called before a video is opened."""
    with _lock:
        if _LOG_LEVEL not in os.environ:
            # To OpenCV timeouts are warnings, and so is the lock below; its own variable is read at import.
            cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)
        for name, value in _USUAL.items():
            if name not in os.environ:
                os.environ[name] = value
