"""Expressions that depend on more than the row: on the clock, the session, or another query.

Spark considers ``current_timestamp()`` deterministic, because all rows of a micro-batch see one value. The library
evaluates a row again in later micro-batches, so such an expression is not a function of its row.

Spark offers no public view of an expression's tree, only texts, in which a string or a column may look like a call.
So two texts are compared. The analysed one gives suspects. Spark's optimizer then replaces every real one by its
present value, or by what computes it. Whatever remains only looked like one.

A text such as ``'today'`` can also be the value of an expression, as in ``cast(concat('to', 'day') as date)``. Spark
replaces such casts, too, but no word shows them. Where its optimizer evaluates nothing else, a time that only the
optimized expression has gives them away.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tablestream.connectors.settings import changed

#: The functions for which a streaming query has the time of the micro-batch, which a replay repeats.
RECORDED = frozenset({"current_timestamp()", "current_date()", "localtimestamp()"})

_CLOCK = "current_timestamp|current_date|localtimestamp|now|current_time|current_timezone"
_SESSION = "current_user|session_user|user|current_catalog|current_schema|current_path|version"
#: What Spark calls subqueries; there is a function ``exists``, too.
_SUBQUERY = "scalarsubquery|listquery|exists"
_SUBQUERIES = frozenset(f"{one}()" for one in _SUBQUERY.split("|"))
_CALL = re.compile(rf"\b(?:{_CLOCK}|{_SESSION}|{_SUBQUERY})(?=\()")
#: Mode, padding and no initialisation vector: then `aes_encrypt` takes a random one, except in the mode ECB.
_CIPHER, _RANDOM = "aes_encrypt", re.compile(r"(?<!, ecb), \w+, , ")
#: Texts that become a time when Spark casts them; after ``lambda`` it is a variable's name.
_SPECIAL = re.compile(r"(?<!lambda )\b(?:now|today|tomorrow|yesterday)\b(?!\()")
#: The same in a literal: the SQL parser replaces it, so a plan that is built again has another time.
_LITERAL = re.compile(r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*['\"]\s*(now|today|tomorrow|yesterday)\b")
_PARSED_LITERAL = re.compile(r"\b(?:date|timestamp(?:_ntz|_ltz)?) '")
#: A call whose arguments have no call; its name and its arguments.
_INNERMOST = re.compile(r"(\w+)\(([^()]+)\)")
_CAST_TO = re.compile(r" as [\w<>:, ]+$")
_WORD = re.compile(r"[^\W\d]\w*")
#: How Spark shows a date, or a timestamp, in a plan.
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?\b")
_COMPUTED = "a constant text, such as 'today', that Spark casts to a time"
#: Spark's name of the node that keeps its optimizer from evaluating the expression over no rows.
_BARRIER = "CollectMetrics"
_ANALYSED, _OPTIMISED = "== Analyzed Logical Plan ==", "== Optimized Logical Plan =="
_EXCLUDED = "spark.sql.optimizer.excludedRules"
#: The rules with which Spark's optimizer makes times of other constants.
_EVALUATING = tuple(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("ConstantFolding", "UnwrapCastInBinaryComparison")
)


def volatile_parts(frame: DataFrame, column: Column, text: str) -> set[str]:
    """Return the parts of an expression that may give another value when the same row is evaluated again.

    `frame`: has the columns that the expression may use. `column`, `text`: the expression, and its analysed text.
    Returns: in the user's words, such as ``current_timestamp()``, ``'today'`` or ``a subquery``.

    Most expressions have no suspects, and only cost a search in their text.
    """
    text = text.lower()
    literals = _LITERAL.findall(str(column).lower()) if _PARSED_LITERAL.search(text) else []
    found = {f"'{word}'" for word in literals}
    suspects = _suspects(text)
    if suspects:
        found |= suspects - _suspects(_explained(frame, column)[1].lower())
    if not found and (suspects or _may_compute_text(text, frame.columns)):
        spark = frame.sparkSession
        excluded = spark.conf.get(_EXCLUDED, None)
        rules = ",".join([*([excluded] if excluded else []), *_EVALUATING])
        # A query that another thread starts meanwhile would have the same results.
        with changed(spark, {_EXCLUDED: rules}):
            before, after = _explained(frame, column)
        if set(_TIME.findall(after)).difference(_TIME.findall(before)):
            found.add(_COMPUTED)
    return {"a subquery" if one in _SUBQUERIES else one for one in found}


def _suspects(text: str) -> set[str]:
    found = {f"{one}()" for one in _CALL.findall(text)} | {f"'{word}'" for word in _SPECIAL.findall(text)}
    if f"{_CIPHER}(" in text and _RANDOM.search(text):
        found.add(f"{_CIPHER}()")
    return found


def _may_compute_text(text: str, columns: Collection[str]) -> bool:
    """Whether a call in an analysed text, in small letters, may have arguments that are no columns."""
    calls = _INNERMOST.findall(text)
    names = {name.lower() for name in columns} if calls else set()
    for name, arguments in calls:
        words = _WORD.findall(_CAST_TO.sub("", arguments) if name == "cast" else arguments)
        if not words or not names.issuperset(words):
            return True
    return False


def _explained(frame: DataFrame, column: Column) -> tuple[str, str]:
    """The expression as Spark analyses it, and as its optimizer leaves it; nothing runs.

    Both are empty if Spark cannot say: then every suspect counts.
    """
    spark = frame.sparkSession
    # A streaming frame cannot be explained in SQL. Without its rows, it also lacks the hidden column `_metadata`.
    rows = spark.createDataFrame([], frame.schema) if frame.isStreaming else frame
    try:
        one = rows.observe("rows", F.count(F.lit(1))).select(column.alias("x"))
        lines = spark.sql("EXPLAIN EXTENDED SELECT * FROM {one}", one=one).collect()
    except AnalysisException:
        return "", ""
    explained = "\n".join(row[0] for row in lines)  # one row, or one a line where the optimizer fails
    analysed, _, optimised = explained.partition(_ANALYSED)[2].partition(_OPTIMISED)
    return analysed.partition(_BARRIER)[0], optimised.partition(_BARRIER)[0]
