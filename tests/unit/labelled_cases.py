"""A cloud's stores in a folder, with cases in them, for tests of labels, reviews and golden frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud.cases.store import CaseStore, StoreAddress
from cloud.cases.stored_case import StoredCase
from cloud.labels.review import Reviews
from cloud.labels.store import LabelStore
from fovea.core.hard_case import HardCase
from tests.fakes import FakeClock


class Stores:
    """Both stores of one folder; `clock` is the one that labels are written by."""

    def __init__(self, folder: Path) -> None:
        address = StoreAddress.in_folder(folder)
        self.clock = FakeClock()
        self.cases = CaseStore.open(address, now=self.clock.now)
        engine = LabelStore.open(address.database).engine
        self.labels = LabelStore(engine, self.clock.now)
        self.reviews = Reviews(self.cases, self.labels)

    def add(self, *cases: HardCase) -> list[str]:
        return [self.cases.add(case).case_id for case in cases]

    def case(self, case_id: str) -> StoredCase:
        return self.cases.get(case_id)

    def close(self) -> None:
        self.labels.close()
        self.cases.close()


@contextmanager
def stores_in(folder: Path) -> Iterator[Stores]:
    stores = Stores(folder)
    try:
        yield stores
    finally:
        stores.close()
