"""A receipt is given when the case is safe, and never before."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from edge_server.case_relay import CaseRelay
from fovea.core.errors import Overloaded
from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from protos.calls import DeliveryReceipt

CASE = HardCase(b"jpeg", FrameId("gate", "boot", 1), datetime(2030, 1, 1, tzinfo=UTC), (), ("audit",))


class FakeSpool:
    """Keeps when it is let, if there is room."""

    def __init__(self, has_room: bool = True) -> None:
        self.has_room = has_room
        self.let = threading.Event()
        self.kept: list[HardCase] = []

    def put(self, case: HardCase) -> bool:
        assert self.let.wait(10)
        if self.has_room:
            self.kept.append(case)
        return self.has_room


async def test_the_receipt_comes_after_the_disk_and_the_loop_does_not_wait_for_it() -> None:
    spool = FakeSpool()
    with ThreadPoolExecutor(1) as writers:
        receipt = asyncio.create_task(CaseRelay(spool, writers).deliver(CASE))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not receipt.done() and spool.kept == []
        spool.let.set()
        assert await receipt == DeliveryReceipt(CASE.id, is_new=True)
    assert spool.kept == [CASE]


async def test_a_spool_without_room_gives_no_receipt_but_a_time_to_come_back() -> None:
    spool = FakeSpool(has_room=False)
    spool.let.set()
    with ThreadPoolExecutor(1) as writers:
        relay = CaseRelay(spool, writers)
        assert relay.trouble is None
        with pytest.raises(Overloaded, match="no room on disk") as refused:
            await relay.deliver(CASE)
        assert relay.trouble is not None and "cases are not kept" in relay.trouble
        spool.has_room = True
        await relay.deliver(CASE)
        assert relay.trouble is None
    assert refused.value.retry_after_s is not None and refused.value.retry_after_s > 0
