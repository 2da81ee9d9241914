"""The error tree is complete, and each error has exactly one family."""

from __future__ import annotations

import inspect
import pickle

import pytest

from fovea.core import errors
from fovea.core.errors import BrokenError, Cancelled, FoveaError, Overloaded, RejectedError, RetryableError

FAMILIES = (RetryableError, RejectedError, BrokenError, Cancelled)
ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
LEAVES = [error for error in ALL if error is not FoveaError]


@pytest.mark.parametrize("error", LEAVES)
def test_every_error_belongs_to_exactly_one_family(error: type[FoveaError]) -> None:
    assert [family for family in FAMILIES if issubclass(error, family)].__len__() == 1


@pytest.mark.parametrize("error", ALL)
def test_every_error_stands_in_the_drawing_at_the_top_and_says_what_it_means(error: type[FoveaError]) -> None:
    assert f" {error.__name__} " in f" {errors.__doc__} ".replace("\n", " ")
    assert error.__doc__


def test_the_drawing_names_no_error_that_does_not_exist() -> None:
    drawn = {word for word in (errors.__doc__ or "").split() if word.isidentifier() and word != word.lower()}
    assert drawn - {"Every"} == {error.__name__ for error in ALL}


def test_overload_carries_its_delay_also_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(Overloaded("full", retry_after_s=0.25)))
    assert (str(error), error.retry_after_s) == ("full", 0.25)
    assert Overloaded("full").retry_after_s is None
