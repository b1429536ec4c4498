"""What a query's progress shows of a plan: counts of drops, measures of operators, and examples of drops."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from tablestream.connectors import sink
from tablestream.operators.reasons import FAILED, MALFORMED, NULL_KEY, NULL_TIME, OUT_OF_ORDER, reason_of
from tablestream.planner.physical_plan import PhysicalPlan
from tablestream.runtime.drops import ACCEPTED
from tablestream.runtime.measures import DROPS, FIGURES, MEASURED, MEASURES, OBSERVED, SHARDS, measured
from tablestream.runtime.rounds import METRICS, NOTICES, copied_name
from tablestream.spark import blobs


def observations(plan: PhysicalPlan, failing: Collection[str] = (), *, told: bool) -> dict[str, list[Column]]:
    """Return the aggregates of blobs that a query's progress shows, by name.

    `failing`: the tables that may have rows for which an expression fails, and that do not end the query. `told`:
    whether they include examples of drops, because nobody reads the notices themselves.
    """
    found = {OBSERVED: _observed(plan, failing), MEASURED: _measured(plan)}
    if told:
        found[DROPS] = _told(plan, failing)
    return found


def _reasons(plan: PhysicalPlan, failing: Collection[str]) -> list[tuple[str, str]]:
    """All operators and reasons that are counted."""
    reasons = [
        (plan.names[source], reason) for source in plan.sources for reason in (NULL_KEY, NULL_TIME, MALFORMED)
    ]
    between = [reader for one in plan.between for reader in one.readers]
    reasons += [(reader.counted_by, OUT_OF_ORDER) for reader in between if reader.counted_by is not None]
    operators = [placed for work in plan.rounds for placed in work.operators]
    reasons += [(placed.name, reason) for placed in operators for reason in placed.operator.reasons]
    return list(dict.fromkeys([*reasons, *((name, FAILED) for name in failing)]))


def _observed(plan: PhysicalPlan, failing: Collection[str]) -> list[Column]:
    """The number of output changes, and of drops per operator and reason."""
    names = [blobs.counter_name(*place) for place in _reasons(plan, failing)]
    operators = [placed for work in plan.rounds for placed in work.operators]
    names += [copied_name(placed.name) for placed in operators if placed.copied]
    changes = [ending.port.number for ending in plan.endings if not ending.rejected]
    here = f"{blobs.PORT} IN ({', '.join(map(str, changes)) or 'NULL'})"
    return [_sum("changes", here), *map(_reported, names)]


def _measured(plan: PhysicalPlan) -> list[Column]:
    """The operators' measures by name, and the number of shards.

    Each round has one aggregate. One for each measure made a plan of 200 operators spend most of its time on them.
    """
    number = F.lit(plan.options.shards)
    shards = F.coalesce(F.max(number), number).cast("bigint")
    operators = {work.number: measured([work]) for work in plan.rounds}
    names = [
        blobs.counter_name(one, measure)
        for some in operators.values()
        for one in some
        for measure in MEASURES
    ]
    figures = "CAST(map() AS MAP<STRING, BIGINT>)"
    if names:
        listed = f"split(decode(X'{chr(0).join(names).encode().hex()}', 'UTF-8'), chr(0))"
        sums = [_sums(number, len(some) * len(MEASURES)) for number, some in operators.items()]
        figures = f"map_from_arrays({listed}, concat({', '.join(sums)}))"
    return [shards.alias(SHARDS), F.expr(f"{figures} AS {FIGURES}")]


def _sums(number: int, figures: int) -> str:
    """The sums over the shards of what the operators of a round measured, an array."""
    mine = f"{blobs.PORT} = {METRICS} AND {blobs.ROWS} = {number} AND startswith({blobs.BLOB}, X'00')"
    text = f"CAST(substring({blobs.BLOB}, 2) AS STRING)"
    told = f"collect_list(CASE WHEN {mine} THEN CAST(split({text}, ',') AS ARRAY<BIGINT>) END)"
    return (
        f"aggregate({told}, array_repeat(0L, {figures}), (sums, one) -> zip_with(sums, one, (a, b) -> a + b))"
    )


def _told(plan: PhysicalPlan, failing: Collection[str]) -> list[Column]:
    """An example of the drops per operator and reason, and how many records each source passed on."""
    told = [place for place in _reasons(plan, failing) if reason_of(place[1]).kind != "counted"]
    passed = [blobs.counter_name(plan.names[source], ACCEPTED) for source in plan.sources]
    return [*(_example(blobs.counter_name(*place)) for place in told), *map(_accepted, passed)]


def _example(name: str) -> Column:
    """One of the examples that tasks have sent under a name."""
    head = f"{name}\0".encode()
    mine = f"{blobs.PORT} = {NOTICES} AND startswith({blobs.BLOB}, X'{head.hex()}')"
    text = f"decode(substring({blobs.BLOB}, {len(head) + 1}), 'UTF-8')"
    return F.expr(f"max(CASE WHEN {mine} THEN {text} END) AS {sink.quoted(name)}")


def _accepted(name: str) -> Column:
    """The sum of the counts that tasks have sent under a name; null if there was no such task."""
    mine = f"{blobs.PORT} = {NOTICES} AND {blobs.BLOB} = X'{name.encode().hex()}00'"
    return F.expr(f"sum(CASE WHEN {mine} THEN {blobs.ROWS} END) AS {sink.quoted(name)}")


def _reported(name: str) -> Column:
    """The sum of the counts that shards report under a name."""
    return _sum(name, f"{blobs.PORT} = {METRICS} AND {blobs.BLOB} = X'{name.encode().hex()}'")


def _sum(name: str, mine: str) -> Column:
    """The sum of ``rows`` where a SQL condition holds. As SQL a counter takes one call of the JVM instead of twenty."""
    return F.expr(f"coalesce(sum(CASE WHEN {mine} THEN {blobs.ROWS} END), 0L) AS {sink.quoted(name)}")
