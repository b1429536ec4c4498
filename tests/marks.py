"""Parameters of which `make check` and `make test` run only some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def quick_first(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Mark all parameters but the first ones: they test the same rule with other cuts, seeds or modes.

    Parameters
    ----------
    values
        Values of a parameter, or results of ``pytest.param``.
    quick
        How many of them run before `make test-all`.
    """
    return [value if place < quick else repeat(value) for place, value in enumerate(values)]


def quick_each(values: Iterable[Any], one_in: int = 6) -> list[Any]:
    """Mark most parameters: random plans and recordings test what these have in common.

    Parameters
    ----------
    values
        As for `quick_first`.
    one_in
        One in how many runs before `make test-all`.
    """
    return [value if place % one_in == 0 else repeat(value) for place, value in enumerate(values)]


def repeat(value: Any) -> Any:
    """Mark a parameter as one that only `make test-all` runs.

    Parameters
    ----------
    value
        The value of a parameter, or the result of ``pytest.param``.
    """
    given = value if isinstance(value, type(pytest.param())) else pytest.param(value)
    return pytest.param(*given.values, marks=(*given.marks, pytest.mark.exhaustive), id=given.id)
