"""What the functions of aggregates refuse."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import tablestream.functions as tf
from tablestream.arguments.place import Place
from tablestream.errors import ArgumentError
from tablestream.handles.grouping import _instead_of, _own_type


class Unsaid(tf.Aggregator):
    """An aggregate that does not say its types."""

    def zero(self) -> Any:
        return None

    def add(self, state: Any, value: Any, /) -> Any:  # noqa: ARG002
        return value

    def finish(self, state: Any, /) -> Any:
        return state


of_any: Any = tf
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a percentage in a text": (lambda: of_any.percentile("x", "0.5"), "percentage='0.5' is not a number between 0"),
    "percentages": (lambda: of_any.percentile("x", [0.5, 0.9]), "several percentiles are several aggregates"),
    "no number": (lambda: of_any.percentile("x", float("nan")), "percentage=nan"),
    "no decimal": (lambda: of_any.percentile("x", Decimal("NaN")), "percentage=Decimal"),
    "a percentage beyond 1": (lambda: of_any.percentile("x", 50), "Give a number from 0 to 1"),
    "a flag": (lambda: of_any.percentile("x", True), "percentage=True"),
    "none of an estimate": (lambda: of_any.approx_percentile("x", None), "percentage=None"),
    "a precision in a text": (lambda: of_any.approx_count_distinct("x", "0.05"), "rsd='0.05'"),
    "no delimiter": (lambda: of_any.string_agg("x", None), "delimiter=None is not a string"),
    "a column as delimiter": (lambda: of_any.string_agg("x", 7), "delimiter=7"),
    "an order without columns": (lambda: of_any.string_agg("x", descending=True), "descending=True orders nothing"),
    "a word as a flag": (lambda: of_any.string_agg("x", order_by="y", descending="no"), "descending='no'"),
    "no order": (lambda: of_any.min_by("x", None), "None is not a column"),
    "columns": (lambda: of_any.max_by("x", ["y", "z"]), "is not a column"),
    "no type": (lambda: _own_type(Unsaid(), "state", "u", Place("", "")), "its state None is not a type"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_argument_of_an_aggregate_is_refused_in_one_sentence(case: str) -> None:
    call, expected = REFUSED[case]
    with pytest.raises(ArgumentError) as raised:
        call()
    assert expected in str(raised.value)


@pytest.mark.parametrize("half", [0.5, Decimal("0.5"), np.float32(0.5)])
def test_any_number_is_a_percentage(half: Any) -> None:
    assert tf.percentile("x", half) == tf.median("x")


@pytest.mark.parametrize("given", [Unsaid, Unsaid()])
def test_an_aggregate_of_no_column_is_told_to_name_one(given: Any) -> None:
    assert _instead_of(given) == "Say of which column: Unsaid().of('price')."


def test_a_text_is_no_type() -> None:
    with pytest.raises(ArgumentError, match="its result '' is not a type"):
        _own_type(type("Blank", (Unsaid,), {"result": ""})(), "result", "u", Place("", ""))
