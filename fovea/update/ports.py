"""What the updater needs of the world around it; the simulator of a fleet brings its own for each device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fovea.core.ports import Clock
from fovea.core.release import Agreement, Asked, Health, ShadowReport
from fovea.runtime.bundle import Bundle


class Answer(Protocol):
    """What a web server says, its body not read yet. To be closed by whoever asked."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes in, each piece as soon as it is there. Raises Unavailable when it breaks off or
        nothing comes for too long."""
        ...

    def close(self) -> None: ...


class Web(Protocol):
    """Reads files over HTTP."""

    def get(self, url: str, start_byte: int = 0) -> Answer:
        """A file, from `start_byte` on (then with a Range header). Raises Unavailable when nobody answers."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a device has seen of its models since it booted: the rest of what it reports beside its health."""

    asked: Asked
    agreement: Agreement | None = None
    shadow: ShadowReport | None = None


class Host(Protocol):
    """The process that looks at frames: it runs the models. Called from the updater's thread alone."""

    def switch_to(self, bundle: Bundle) -> None:
        """From the next frame on this model answers; returns when it does. No frame is lost. Raises FoveaError when
        the model cannot be made ready; the one that ran before runs on then."""
        ...

    def shadow(self, bundle: Bundle | None, share: float) -> None:
        """Looks at `share` of the frames with this model as well, its answers are only compared; None ends it.
        Raises FoveaError when the model cannot be made ready."""
        ...

    def apply(self, policy: Mapping[str, Any] | None) -> None:
        """Takes over thresholds and budgets; None: those of its configuration. Raises Malformed and changes nothing
        when it does not know them."""
        ...

    def health(self) -> Health: ...

    def evidence(self) -> Evidence: ...


class Trial(Protocol):
    """Tries a model before it may run; `fovea.update.trial.ChildTrial` is the real one."""

    def try_model(self, path: Path, max_ms: float | None) -> None:
        """Raises RejectedError (Incompatible as a rule) when the model crashes, answers its golden frames otherwise
        than where it was made, or takes longer than `max_ms` for a frame."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time, chance and disk. `pause` waits so many seconds and may raise Cancelled; `draw` is uniform in 0..1."""

    clock: Clock
    draw: Callable[[], float]
    pause: Callable[[float], None]
    free_bytes: Callable[[Path], int]
