"""Which condition a case shows: the site's own word where it has one, else what was measured."""

from __future__ import annotations

from typing import Final, Protocol

from cloud.cases.stored_case import CaseFilter, StoredCase

CONDITION_TAG: Final = "condition:"
"""A tag that begins so says what nobody can measure: `condition:fog`."""
UNKNOWN: Final = "unknown"


class Counts(Protocol):
    """What is needed of the case store."""

    def count(self, wanted: CaseFilter = ...) -> int: ...


def shown_condition(case: StoredCase) -> str:
    """The condition of a case; UNKNOWN where neither a person nor a measurement says."""
    told = next((tag for tag in case.tags if tag.startswith(CONDITION_TAG)), None)
    return told.removeprefix(CONDITION_TAG) if told else case.condition or UNKNOWN


def filter_of(cases: Counts, condition: str | None) -> CaseFilter:
    """Cases that show a condition: by tag where any has it, else as it was measured. None: all."""
    if condition is None:
        return CaseFilter()
    by_tag = CaseFilter(tag=f"{CONDITION_TAG}{condition}")
    return by_tag if cases.count(by_tag) else CaseFilter(condition=condition)
