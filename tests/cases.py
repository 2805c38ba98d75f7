"""A table of cases as one test: for cases that are quick and need no file, folder or process of their own."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import pytest

SampleSize: TypeAlias = Callable[[int, int], int]
"""What the fixture `sample_size` gives: it takes the size of a default run and that of a campaign."""


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Iterable[str] | Callable[[Any], Any] = repr
) -> Callable[..., Any]:
    """Run a test for each of *cases* and fail with every case that is wrong.

    The arguments are those of `pytest.mark.parametrize`. Fixtures are the same for all cases.
    """
    table = list(cases)
    arguments = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    labels = list(map(ids, table) if callable(ids) else ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def every(**fixtures: Any) -> None:
            assert table, "there is no case"
            wrong = []
            for case, label in zip(table, labels, strict=True):
                values = [case] if len(arguments) == 1 else case
                try:
                    test(**fixtures, **dict(zip(arguments, values, strict=True)))
                except (Exception, pytest.fail.Exception) as problem:
                    problem.add_note(f"case: {label}")
                    wrong.append(problem)
            if wrong:
                raise BaseExceptionGroup(f"{len(wrong)} of {len(table)} cases", wrong)

        given = inspect.signature(test)
        rest = [each for name, each in given.parameters.items() if name not in arguments]
        every.__signature__ = given.replace(parameters=rest)  # type: ignore[attr-defined]
        del every.__wrapped__  # type: ignore[attr-defined] # pytest would read the other signature
        return every

    return decorate
