"""Something that another thread wants done on the agent's thread, between two frames, and waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TimedOut

from fovea.core.errors import Cancelled, Unavailable


class Chore:
    """Done once, or not at all."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._future: Future[None] = Future()

    def run(self) -> None:
        """Never raises: what the act raises goes to who waits."""
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._act()
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(None)

    def cancel(self) -> None:
        """It will not be done any more, unless it is being done."""
        self._future.cancel()

    def wait(self, timeout_s: float) -> None:
        """Until it is done. Raises what the act raised, Cancelled when the agent ends before, and Unavailable, after
        which it will not be done, when its turn does not come in time."""
        try:
            self._future.result(timeout_s)
        except CancelledError as error:
            raise Cancelled("the agent ends") from error
        except TimedOut as error:
            if self._future.cancel():
                raise Unavailable(f"the frame under way did not end within {timeout_s:g} s") from error
            self._future.result()
