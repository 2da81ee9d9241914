"""The calls of a server that are under way: none is left without an answer, and a stop waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from fovea.core.errors import DetectorFailed, FoveaError, Unavailable

_log = logging.getLogger(__name__)


class CallsUnderWay:
    """Counts the calls of all services of one server, on its event loop."""

    def __init__(self) -> None:
        self._takes_calls = True
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def takes_calls(self) -> bool:
        """False from the moment that the server drains: what comes now has to be refused."""
        return self._takes_calls

    async def drain(self, grace_s: float) -> bool:
        """Takes no calls from now on and waits for those under way. False: some of them took longer."""
        self._takes_calls = False
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            return False
        return True

    async def answered(self, work: Awaitable[bytes]) -> bytes:
        """The reply, or an error of the product whatever went wrong. Lets CancelledError out only for a caller who
        left: one who is still there would never hear back."""
        self._count += 1
        self._idle.clear()
        try:
            return await work
        except FoveaError:
            raise
        except asyncio.CancelledError:
            if _is_cancelling():
                raise
            raise Unavailable("the server is stopping") from None
        except Exception as error:
            _log.exception("a call failed in a way that nobody foresaw")
            raise DetectorFailed("internal error, see the log of the server") from error
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()


def _is_cancelling() -> bool:
    """True when this very task was cancelled, as against something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
