"""Aggregate functions of SQL as those of `tablestream.functions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from tablestream import functions as tf
from tablestream.connectors.sink import quoted
from tablestream.functions import AggregateFunction
from tablestream.spark.columns import sql_type
from tablestream.sql.parse import is_subquery, span
from tablestream.sql.scope import Scope
from tablestream.sql.text import DIALECT

#: Functions of one column.
_OF_ONE: dict[type[exp.Expr], Callable[[str], AggregateFunction]] = {
    exp.Sum: tf.sum,
    exp.Avg: tf.avg,
    exp.Min: tf.min,
    exp.Max: tf.max,
    exp.First: tf.first,
    exp.FirstValue: tf.first,
    exp.AnyValue: tf.first,
    exp.Last: tf.last,
    exp.LastValue: tf.last,
    exp.ArrayAgg: tf.collect_list,
    exp.ArrayUniqueAgg: tf.collect_set,
    exp.Stddev: tf.stddev,
    exp.StddevSamp: tf.stddev_samp,
    exp.StddevPop: tf.stddev_pop,
    exp.Variance: tf.variance,
    exp.VariancePop: tf.var_pop,
    exp.LogicalAnd: tf.bool_and,
    exp.LogicalOr: tf.bool_or,
    exp.Median: tf.median,
    exp.Mode: tf.mode,
    exp.ApproxDistinct: tf.count_distinct,  # no estimate is nearer
    exp.BitwiseAndAgg: tf.bit_and,
    exp.BitwiseOrAgg: tf.bit_or,
    exp.BitwiseXorAgg: tf.bit_xor,
}
#: Functions that some versions of the parser do not know, by their names.
_BY_NAME: dict[str, Callable[[str], AggregateFunction]] = {
    "mean": tf.avg,
    "std": tf.stddev,
    "every": tf.bool_and,
    "some": tf.bool_or,
    "any": tf.bool_or,
    "skewness": tf.skewness,
    "kurtosis": tf.kurtosis,
}
#: Functions of two columns, by the parser's names.
_OF_TWO: dict[str, Callable[[str, str], AggregateFunction]] = {
    "arg_max": tf.max_by,
    "arg_min": tf.min_by,
    "covar_pop": tf.covar_pop,
    "covar_samp": tf.covar_samp,
    "corr": tf.corr,
    "regr_count": tf.regr_count,
    "regr_avgx": tf.regr_avgx,
    "regr_avgy": tf.regr_avgy,
    "regr_slope": tf.regr_slope,
    "regr_intercept": tf.regr_intercept,
    "regr_r2": tf.regr_r2,
    "regr_sxx": tf.regr_sxx,
    "regr_sxy": tf.regr_sxy,
    "regr_syy": tf.regr_syy,
}
#: Further aggregates of Spark that the parser does not know.
_OTHERS = {"bitmap_construct_agg", "try_sum", "try_avg", "histogram_numeric", "count_min_sketch", "product"}
_OTHERS |= {"bitmap_or_agg", "hll_sketch_agg"}
#: What stands behind a function.
_AROUND = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
#: Functions whose result is the same with DISTINCT.
_SAME_DISTINCT = (tf.min, tf.max, tf.bool_and, tf.bool_or, tf.collect_set, tf.bit_and, tf.bit_or)
#: Functions of distinct values, which are computed from the set of them.
_OF_SETS: dict[type[exp.Expr], Callable[[str], AggregateFunction]] = {exp.Sum: tf.sum, exp.Avg: tf.avg}
#: Functions that take no notice of null.
_WITH_NULLS = (exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue)


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of an expression, without those of its subqueries and those that windows compute."""
    if is_subquery(node):
        return
    if isinstance(node, exp.Window):
        function = node.this
        while isinstance(function, _AROUND):
            function = function.this
        order = node.args.get("order")
        for part in (*function.iter_expressions(), *(node.args.get("partition_by") or [])):
            yield from aggregates_in(part)
        for part in order.expressions if order is not None else ():
            yield from aggregates_in(part)
        return
    if is_aggregate(node):
        yield node
        return
    for child in node.iter_expressions():
        yield from aggregates_in(child)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression is an aggregate, with what stands behind it."""
    if isinstance(node, _AROUND):
        return is_aggregate(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in {*_BY_NAME, *_OF_TWO, *_OTHERS}
    return isinstance(node, exp.AggFunc) and not isinstance(
        node, exp.RowNumber | exp.Grouping | exp.GroupingId
    )


@dataclass(frozen=True)
class Aggregates:
    """Makes aggregates over rows.

    Attributes
    ----------
    scope
        The rows.
    """

    scope: Scope

    def function(self, node: exp.Expr, condition: str = "") -> AggregateFunction:
        """Return the library's function for one of SQL, of the rows for which a condition holds."""
        if isinstance(node, exp.Filter):
            own, node = self.scope.sql(node.expression.this), node.this
            condition = f"({condition}) AND ({own})" if condition else own
        if isinstance(node, exp.Count):
            return self._count(node, condition)
        if isinstance(node, exp.CountIf):
            return tf.count(self._where(f"CASE WHEN {self.scope.sql(node.this)} THEN 1 END", condition))
        if _name(node) in _OF_TWO:
            return self._of_two(node, condition)
        within = node.this if isinstance(node, exp.WithinGroup) else node
        if isinstance(within, exp.PercentileCont) or type(within) is exp.Quantile:  # not an approximate one
            return self._percentile(node, within, condition)
        if isinstance(node, exp.GroupConcat):
            return self._joined_texts(node, condition)
        return self._of_one(node, condition)

    def of_set(self, node: exp.Expr, name: str) -> str | None:
        """Return the SQL of ``sum(DISTINCT ...)`` or ``avg(DISTINCT ...)`` over its set; None: it is something else."""
        function = node.this if isinstance(node, exp.Filter) else node
        made = _OF_SETS.get(type(function))
        if made is None or not isinstance(function.this, exp.Distinct):
            return None
        value, column = self.scope.plain(function.this.expressions[0]), quoted(name)
        frame = self.scope.rows.table.group_by().agg(total=tf.sum(value), made=made(value)).schema
        total, kind = (sql_type(frame[one].dataType) for one in ("total", "made"))
        text = f"aggregate({column}, CAST(0 AS {total}), (sum, one) -> CAST(sum + one AS {total}))"
        if isinstance(function, exp.Avg):
            text = f"CAST({text} / size({column}) AS {kind})"
        return f"CASE WHEN size({column}) > 0 THEN {text} END"

    def _percentile(self, node: exp.Expr, within: exp.Expr, condition: str) -> AggregateFunction:
        if within is node:
            if _arguments(node, self.scope.context.text) not in {2, None}:
                raise self._unknown(node)
            value, part = node.this, "quantile"
        else:
            (order,) = node.expression.expressions
            if order.args.get("desc"):
                raise self._unknown(node)
            value, part = order.this, "this"
        return tf.percentile(self._where(self.scope.plain(value), condition), self._number(within, part))

    def _of_two(self, node: exp.Expr, condition: str) -> AggregateFunction:
        given = (
            node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.args.get("expression")]
        )
        if len(given) != 2 or any(one is None or isinstance(one, exp.Distinct) for one in given):
            raise self._unknown(node)
        value, other = map(self.scope.plain, given)
        return _OF_TWO[_name(node)](value, self._where(other, condition))

    def _of_one(self, node: exp.Expr, condition: str) -> AggregateFunction:
        made = _BY_NAME.get(_name(node)) or _OF_ONE.get(type(node))
        argument = next(iter(node.expressions), None) if isinstance(node, exp.Anonymous) else node.this
        if (
            made is None
            or argument is None
            or (condition and isinstance(node, _WITH_NULLS))
            or len(node.expressions) > 1
        ):
            raise self._unknown(node)
        if isinstance(argument, exp.Distinct):
            made = tf.collect_set if type(node) in _OF_SETS else made
            if made not in _SAME_DISTINCT or len(argument.expressions) != 1:
                raise self.scope.context.refuse(
                    node,
                    "SELECT",
                    f"{type(node).__name__.upper()}(DISTINCT ...) is not maintained.",
                    "Aggregate a subquery with SELECT DISTINCT.",
                )
            argument = argument.expressions[0]
        return made(self._where(self.scope.plain(argument), condition))

    def _where(self, argument: str, condition: str) -> str:
        """An argument that is null where a condition does not hold."""
        if not condition:
            return argument
        known = {one.column for one in self.scope.rows.visible}
        shown = quoted(argument) if argument in known else argument
        return f"CASE WHEN {condition} THEN {shown} END"

    def _count(self, node: exp.Count, condition: str) -> AggregateFunction:
        given, further = node.this, node.expressions
        if given is None:
            raise self._unknown(node)
        if isinstance(given, exp.Star | exp.Literal) and not further:
            return tf.count(f"CASE WHEN {condition} THEN 1 END") if condition else tf.count()
        is_distinct = isinstance(given, exp.Distinct)
        arguments = given.expressions if is_distinct else [given, *further]
        made = tf.count_distinct if is_distinct else tf.count
        if len(arguments) == 1:
            return made(self._where(self.scope.plain(arguments[0]), condition))
        texts = self.scope.sqls(arguments)
        there = " AND ".join(f"({one}) IS NOT NULL" for one in texts)
        named = ", ".join(f"{one} AS value_{number}" for number, one in enumerate(texts, 1))
        whole = f"CASE WHEN {there} THEN {f'struct({named})' if is_distinct else '1'} END"
        return made(self._where(whole, condition))

    def _joined_texts(self, node: exp.GroupConcat, condition: str) -> AggregateFunction:
        given, separator = node.this, node.args.get("separator")
        order = given.expressions if isinstance(given, exp.Order) else []
        value = given.this if isinstance(given, exp.Order) else given
        if len(order) > 1 or isinstance(value, exp.Distinct):
            raise self._unknown(node)
        if separator is not None and not isinstance(separator, exp.Literal):
            raise self._unknown(node)
        delimiter = separator.name if separator is not None else ""
        if not order:
            return tf.string_agg(self._where(self.scope.plain(value), condition), delimiter)
        by, down = self.scope.plain(order[0].this), bool(order[0].args.get("desc"))
        text = self._where(self.scope.plain(value), condition)
        return tf.string_agg(text, delimiter, order_by=by, descending=down)

    def _number(self, node: exp.Expr, part: str) -> float:
        given = node.args.get(part)
        if not isinstance(given, exp.Literal):
            raise self._unknown(node)
        return float(given.name)

    def _unknown(self, node: exp.Expr) -> Exception:
        return self.scope.context.refuse(
            node,
            "SELECT",
            f"The aggregate {word_of(node)} is not maintained in this form.",
            "Use one of tablestream.functions, which have the names of Spark's.",
        )


def word_of(node: exp.Expr) -> str:
    """The name of a function, as an error says it."""
    return (node.name if isinstance(node, exp.Anonymous) else node.sql("spark").split("(")[0]).lower()


def _name(node: exp.Expr) -> str:
    """The name of a function; empty: it is none."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    return node.sql_name().lower() if isinstance(node, exp.AggFunc) else ""


def _arguments(node: exp.Expr, text: str) -> int | None:
    """How many arguments a call has in the text: the parser drops those that it does not know. None: not known."""
    place = span(node)
    if place is None:
        return None
    depth, commas = 0, 0
    for token in DIALECT.tokenize(text[place[0] : place[1]]):
        depth += (token.text == "(") - (token.text == ")")
        commas += token.text == "," and depth == 1
    return commas + 1
