"""The names behind class ids, of every model that ever answered here."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from fovea.core.labels import COCO_NAMES, Label


class LabelNames:
    """COCO names are known from the start; the labels of each model are learned when it comes or answers.

    An id that nobody named reads `class-<id>`. Safe to use from several threads.
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self._names = dict(enumerate(COCO_NAMES))
        self._lock = threading.Lock()
        self.learn(labels)

    def learn(self, labels: Iterable[Label]) -> None:
        """Adds labels; a name that is known already stays."""
        with self._lock:
            for label in labels:
                self._names.setdefault(label.id, label.name)

    def name_of(self, class_id: int) -> str:
        return self._names.get(class_id) or f"class-{class_id}"
