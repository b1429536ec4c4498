"""Parameters of which `make check` runs only some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def quick_first(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Mark all parameters but the first ones as slow: they test the same rule with other cuts, seeds or modes.

    Parameters
    ----------
    values
        Values of a parameter, or results of ``pytest.param``.
    quick
        How many of them `make check` runs.
    """
    return [value if place < quick else _slow(value) for place, value in enumerate(values)]


def quick_each(values: Iterable[Any], one_in: int = 6) -> list[Any]:
    """Mark most parameters as slow: random plans and recordings test what these have in common.

    Parameters
    ----------
    values
        As for `quick_first`.
    one_in
        One in how many runs in `make check`.
    """
    return [value if place % one_in == 0 else _slow(value) for place, value in enumerate(values)]


def _slow(value: Any) -> Any:
    given = value if isinstance(value, type(pytest.param())) else pytest.param(value)
    return pytest.param(*given.values, marks=(*given.marks, pytest.mark.slow), id=given.id)
