"""Whose frame is looked at next: cameras in the order in which they became ready, each once."""

from __future__ import annotations


class Turns:
    """A queue in which a camera stands once at most: after its turn it goes to the end, so none starves, and a camera
    that is fast gains nothing. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, camera: str) -> None:
        """`camera` has a frame; nothing changes when it stands in the queue already."""
        self._waiting.setdefault(camera)

    def next(self) -> str | None:
        """The camera whose turn it is, which leaves the queue; None when nobody waits."""
        if not self._waiting:
            return None
        camera = next(iter(self._waiting))
        del self._waiting[camera]
        return camera
