"""A desk for cases of cameras that have no way to the cloud: kept on the disk of the edge, and sent on from there."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Protocol

from fovea.core.errors import Overloaded
from fovea.core.hard_case import HardCase
from protos.calls import DeliveryReceipt

_RETRY_AFTER_S = 30.0


class Spool(Protocol):
    """Where cases wait on disk (see `fovea.link.case_spool`)."""

    def put(self, case: HardCase) -> bool:
        """True when the case is safe on disk."""
        ...


class CaseRelay:
    """A CaseDesk that puts cases into a spool; somebody else empties it (see `fovea.link.case_uploader`)."""

    def __init__(self, spool: Spool, writers: Executor) -> None:
        """`writers` wait for the disk, so that the loop never does."""
        self._spool = spool
        self._writers = writers
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why the last case was not kept; None when it was. From any thread."""
        return self._trouble

    async def deliver(self, case: HardCase) -> DeliveryReceipt:
        """A receipt when the case is safe on disk here. Every delivery counts as new: whether the cloud knows the
        case is found out when it is sent on. Raises Overloaded when the spool does not take it."""
        is_kept = await asyncio.get_running_loop().run_in_executor(self._writers, self._spool.put, case)
        self._trouble = None if is_kept else "cases are not kept: no room on disk, or it cannot be written"
        if not is_kept:
            raise Overloaded(f"no room on disk for the case {case.id[:12]}", _RETRY_AFTER_S)
        return DeliveryReceipt(case.id, is_new=True)
