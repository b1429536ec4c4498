"""The records of a source for which its own expressions fail: its key, its time, its value.

What fails is in columns beside those of the source's frame, for `tablestream.spark.failed_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tablestream.errors import PlanError
from tablestream.operators.captured.capture import OF_ROWS
from tablestream.spark.failed_rows import FAILED_KEY, FAILED_RECORD, UNCOMPUTED, UNDECIDED, UNPLACED
from tablestream.spark.failing import Risk, failing, works
from tablestream.topology.nodes import Source

if TYPE_CHECKING:
    from tablestream.spark.analysis import Analysed
    from tablestream.spark.sources import SourceFrame

#: What decides where a record belongs, by the arguments that give it.
_ARGUMENTS = {"__ts": "timestamp", "__time": "order_by", "__sequence": "sequence_by"}
#: Whether a record has a value, and the same where the user's condition for deletes may fail.
_LIVE, _DECIDED = "__live", "__decided"


def risks_of(
    columns: Mapping[str, Column],
    key: Sequence[Analysed],
    value: Sequence[Analysed],
    others: Mapping[str, Analysed | None],
    deletes: Analysed | None,
) -> dict[str, Risk]:
    """Return those of a source's columns that may fail on a record."""
    said = {f"__key_{number}": (f"the key {one.name} = ", one) for number, one in enumerate(key)}
    said |= {name: (f"{_ARGUMENTS[name]}=", one) for name, one in others.items() if one is not None}
    said |= {f"__value_{number}": (f"{one.name} = ", one) for number, one in enumerate(value)}
    said |= {} if deletes is None else {_LIVE: ("apply_as_deletes=", deletes)}
    return {
        name: Risk(f"{what}{one.text}", columns[name], one.type.json())
        for name, (what, one) in said.items()
        if one.text and one.expression.may_fail  # there is no text of what is not deterministic
    }


def watched(given: SourceFrame, records: DataFrame, now: Column, mode: str, source: Source) -> DataFrame:
    """Return the columns of a source, and those that say for which records an expression fails.

    `given`, `source`: the source. `records`, `now`: rows of the user's frame, and when they arrive. `mode`: ``fail``,
    ``null`` or ``reject``.
    """
    if mode == "reject" and given.is_captured:
        raise PlanError(
            f"on_error='reject' cannot leave out records of '{source.name}', which come from a database: others are"
            " completed with their values.",
            hint="Take the columns as they are, and compute others with select of the table.",
            operator=source.name,
            where=source.where,
        )
    columns, labels = dict(given.columns), dict[str, str]()
    if _LIVE in given.risks:
        records = records.withColumn(UNDECIDED, asked([given.risks[_LIVE]]))
        records = records.withColumn(_DECIDED, _decided(given, mode))
        labels[_LIVE], columns[_LIVE] = UNDECIDED, F.col(_DECIDED)
        columns |= given.deciding(columns[_LIVE])
    columns |= given.of_time(now, columns[_LIVE])
    for label, is_mine in ((UNPLACED, _is_placing), (UNCOMPUTED, _is_value)):
        risks = {
            name: replace(one, column=columns[name]) for name, one in given.risks.items() if is_mine(name)
        }
        if risks:
            records = records.withColumn(label, asked(list(risks.values())))
        labels |= dict.fromkeys(risks, label)
        # A record that is dropped for one of them is told with the others.
        shows_others = mode == "null" or (mode == "reject" and label == UNPLACED)
        columns |= {name: _caught(one, label, shows_others=shows_others) for name, one in risks.items()}
    if mode == "reject" and not source.records and UNCOMPUTED in labels.values():
        columns[_LIVE] = columns[_LIVE] & F.col(UNCOMPUTED).isNull()
    return _said(records, columns, list(dict.fromkeys(labels.values())), given, source)


def _said(
    records: DataFrame,
    columns: Mapping[str, Column],
    labels: Sequence[str],
    given: SourceFrame,
    source: Source,
) -> DataFrame:
    """Select the columns, and say which records fail."""
    again = _of_key(given, source) if UNPLACED in labels else {}
    made = {name: one for name, one in columns.items() if name not in again}
    made |= {label: F.col(label) for label in labels}
    frame = records.select(*made.values()).toDF(*made)
    frame = frame.withColumns(again) if again else frame
    fails = F.coalesce(*map(F.col, labels)).isNotNull()
    told = {FAILED_KEY: "__key_json", FAILED_RECORD: "__record"}
    return frame.withColumns({name: F.when(fails, F.col(one)) for name, one in told.items()})


def _decided(given: SourceFrame, mode: str) -> Column:
    """Whether a record has a value, if the user's condition for deletes may fail."""
    failed = F.lit(False) if mode == "reject" else F.lit(True) if given.kept is None else given.kept
    return F.when(F.col(UNDECIDED).isNull(), given.columns[_LIVE]).otherwise(failed)


def _caught(one: Risk, label: str, *, shows_others: bool) -> Column:
    fine = F.when(F.col(label).isNull(), one.column)
    return fine.when(works([one]), one.column) if shows_others else fine


def _is_placing(name: str) -> bool:
    """Whether a column decides where a record belongs: then a record without it is dropped."""
    return name.startswith("__key_") or name in _ARGUMENTS


def _is_value(name: str) -> bool:
    return name.startswith("__value_")


def asked(risks: Sequence[Risk]) -> Column:
    """Return which of some expressions fails on a record, in a branch that is never folded: none is computed before."""
    return F.when(F.expr("spark_partition_id() >= 0"), failing(risks))


def _of_key(given: SourceFrame, source: Source) -> dict[str, Column]:
    """What follows from the key, if a part of it may have become null."""
    from tablestream.spark.sources import as_json, key_fields

    parts = key_fields(source)
    again = {"__key_json": as_json([F.col(part).alias(one.name) for part, one in parts.items()])}
    if parts and not source.records:
        null_key = reduce(or_, [F.col(part).isNull() for part in parts])
        again["__null_key"] = (
            null_key & F.expr(f"__capture.op IN {OF_ROWS}") if given.is_captured else null_key
        )
    return again
