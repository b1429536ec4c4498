"""What becomes of rows for which an expression fails, in the frames of one plan: by the mode of the table concerned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from tablestream.base.data_text import LEFT_OUT
from tablestream.connectors import sink
from tablestream.connectors.json_text import json_sql
from tablestream.connectors.sink import literal
from tablestream.errors import ExpressionError, PlanError
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.spark.failing import (
    HINT,
    SENTENCE,
    Failed,
    Risk,
    View,
    Watched,
    calls_python,
    can_watch,
    data_sql,
)
from tablestream.topology.nodes import Node

#: The most columns of a row that an error shows: those that its expressions name.
_SHOWN = 20
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class PlanWatch:
    """Watches the expressions of a plan."""

    plan: PhysicalPlan
    place: str | None = None
    """Where a row of the frame comes from, as SQL, if it does not go to a packer, and Spark raises itself."""
    redact: bool = False
    """Whether messages leave keys and values out."""

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {name: node for node, name in self.plan.names.items()}

    def of(self, owner: Node | str) -> Watched:
        """What applies to a table, or to the operator of a name."""
        # The views of merged streams are copies, which have no names of their own.
        name = owner if isinstance(owner, str) else self.plan.names.get(owner, owner.name)
        node = self._nodes.get(name)
        mode = self.plan.options.on_error.of(name)
        ports = () if node is None or mode != "reject" else self.plan.rejecting(node)
        return Watched(name, "" if node is None else node.where, mode, ports)

    def raising(self, owner: Watched, column: str, view: View, risks: Sequence[Risk]) -> str | None:
        """What raises where a column says that an expression fails, as SQL, if Spark is to do it."""
        if self.place is None or owner.mode != "fail":
            return None
        message = SENTENCE.format(what="\0", key="\0", place="\0", row="\0").split("\0")
        built = f"({owner.operator}, built at {owner.where})"
        parts = [
            literal(f"[{ExpressionError.code}] {message[0]}"), column, literal(message[1]), self._shown(view.key),
            literal(message[2]), self.place, literal(message[3]), self._shown(_named_in(view, risks)),
            literal(f"{message[4]} {built} {HINT}"),
        ]  # fmt: skip
        return (
            f"CASE WHEN {column} IS NOT NULL THEN CAST(raise_error(concat({', '.join(parts)})) AS STRING) END"
        )

    def _shown(self, columns: Mapping[str, str]) -> str:
        """Columns in a message."""
        return literal(LEFT_OUT) if self.redact else data_sql(_json(columns))

    def refuse_python(self, rows: DataFrame, risks: Sequence[Risk], owner: Watched) -> None:
        """Raise if an expression over some rows calls a Python function, whose errors cannot be caught."""
        try:
            found = calls_python(rows.sparkSession.createDataFrame([], rows.schema), risks)
        except AnalysisException:  # of a hidden column, which only readers of files have
            return
        if found:
            raise PlanError(
                f"on_error={owner.mode!r} cannot catch the errors of Python functions, and '{risks[0].said}' or another"
                " expression of the table calls one.",
                hint="Let the function return None for what it cannot compute: the plan stays the same. Or name other"
                f' tables in on_error, as in on_error={{"other table": {owner.mode!r}}}.',
                operator=owner.operator,
                where=owner.where,
            )

    def said(self, failed: Sequence[Failed]) -> str:
        """The column of a frame that says which rows fail, as SQL; see `tablestream.spark.failed_rows`."""
        lines = (self._line(number, one) for number, one in enumerate(failed))
        return f"nullif(concat_ws('\\n', {', '.join(lines)}), '')"

    def _line(self, number: int, one: Failed) -> str:
        key, row = _json(one.view.key), "'{}'"
        if one.owner.mode == "fail":
            row = _json(_named_in(one.view, one.risks))
        elif one.owner.ports:
            row = _json(one.view.row)
        parts = f"{number} AS owner, {one.column} AS what, {key} AS key, {row} AS row"
        return f"CASE WHEN {one.column} IS NOT NULL THEN to_json(struct({parts})) END"


def usable(plan: PhysicalPlan, rows: DataFrame, *, redact: bool) -> PlanWatch | None:
    """Return what watches a plan's expressions; None where Spark cannot say which fail: then all rows have to fail."""
    if can_watch(rows.sparkSession):
        return PlanWatch(plan, redact=redact)
    on_error = plan.options.on_error
    if {on_error.usual, *dict(on_error.named).values()} != {"fail"}:
        raise PlanError(
            f"on_error= needs to know which expressions fail, and Spark {rows.sparkSession.version} does not tell.",
            hint="Omit on_error=, and write expressions that do not fail, such as try_cast.",
        )
    return None


def _named_in(view: View, risks: Sequence[Risk]) -> dict[str, str]:
    """The columns of a row whose names are in the texts of some expressions."""
    words = {word for one in risks for word in _WORD.findall(one.said)}
    named = {name: text for name, text in view.row.items() if words.issuperset(_WORD.findall(name)[-1:])}
    return dict(list((named or view.row).items())[:_SHOWN])


def _json(columns: Mapping[str, str]) -> str:
    return json_sql(sink.struct_of(sink.aliased(columns))) if columns else "'{}'"
