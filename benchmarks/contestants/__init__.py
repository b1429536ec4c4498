"""The contestants, one file each: they join the same logs by foreign key, or group one of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from benchmarks.launch import Task
    from benchmarks.results import Run

CONTESTANTS = {
    "every": ("maintained_join", "every_change", "tablestream, every change"),
    "final": ("maintained_join", "final_changes", 'tablestream, emit="final"'),
    "many-to-many": (
        "maintained_join",
        "many_to_many",
        "tablestream, the same pairs of rows by a join on values that are no key, every change",
    ),
    "plain-python": (
        "plain_python",
        "per_record_state",
        "plain Python transformWithState, a state call per record",
    ),
    "batch-sql": ("batch_sql", "whole_history", "Spark batch SQL over the whole history"),
    "empty": ("empty_query", "pass_through", "empty stateful query of the same shape, small micro-batches"),
    "groups": ("groups", "every_change", "tablestream, groups, every change"),
    "groups-final": ("groups", "final_changes", 'tablestream, groups, emit="final"'),
    "groups-python": ("groups", "python_functions", "tablestream, groups by Python functions, every change"),
    "native-groups": ("groups", "native", "Spark's own streaming aggregation of the same records"),
    "star": ("star", "star", "tablestream, star join of four tables"),
    "chain": ("star", "chain", "tablestream, the same as a chain of four joins"),
    "as-of": ("as_of", "as_of_join", "tablestream, a stream joined with the versions of a table"),
    "wide": ("wide", "build", "tablestream, a plan of 30 outputs with 200 columns each, built and started"),
    "bootstrap": (
        "bootstrap",
        "bootstrap",
        "tablestream, a table that starts from a batch of 2,000,000 rows",
    ),
    "evolve": ("evolve", "evolve", "tablestream, a query of 10,000,000 rows that evolves into another plan"),
    "skew": ("skewed", "one_hot_key", "tablestream, every change, half of the items on one customer"),
    "skew-spread": ("skewed", "one_hot_key_spread", "tablestream, the same with spread=4"),
    "hot-row-even": ("skewed", "even_fan_out", "tablestream, a micro-batch that changes every right row"),
    "hot-row": ("skewed", "fan_out", "tablestream, all left rows on one right row, which changes"),
    "hot-row-spread": ("skewed", "fan_out_spread", "tablestream, the same with spread=4"),
    "files": ("targets", "files", "tablestream, every change, as Parquet files"),
    "delta-log": ("targets", "delta_log", "tablestream, every change, as a Delta log"),
    "delta-table": ("targets", "delta_table", "tablestream, the join as a Delta table"),
    "delta-table-spark": ("targets", "delta_table_by_spark", "tablestream, the same written by Spark"),
    "delta-rs-by-hand": ("merges", "by_delta_rs", "the same table by hand: foreachBatch with delta-rs"),
    "delta-merges": ("merges", "by_hand", "the same table by hand: foreachBatch with MERGE"),
    "kafka": ("kafka", "every_change", "tablestream, every change, from topics to a topic"),
    "kafka-streams": ("kafka_streams", "every_change", "Kafka Streams, the same join of the same topics"),
    "kafka-delta": ("database", "from_kafka", "tablestream, the join as a Delta table, from plain topics"),
    "debezium": ("database", "from_debezium", "tablestream, the same from Debezium's topics"),
    "memory": ("maintained_join", "many_micro_batches", "tablestream, every change, more micro-batches"),
    "nexmark-q3": ("nexmark", "q3", "tablestream, Nexmark q3: local items (reads no bids)"),
    "nexmark-q4": ("nexmark", "q4", "tablestream, Nexmark q4: average of the winning prices by category"),
    "nexmark-q9": ("nexmark", "q9", "tablestream, Nexmark q9: winning bids"),
    "nexmark-q20": ("nexmark", "q20", "tablestream, Nexmark q20: bids with their auctions"),
    "nexmark-q20-stream": (
        "nexmark",
        "q20_stream",
        "tablestream, q20 as a lookup of auctions that are there",
    ),
    "tpch-q3": ("tpch", "q3", "tablestream, TPC-H Q3 under changes: the ten orders that would bring most"),
    "tpch-q5": ("tpch", "q5", "tablestream, TPC-H Q5 under changes: revenue of local suppliers by nation"),
    "tpch-q5-sql": ("tpch", "q5_sql", "tablestream, the same by ts.sql"),
    "views": ("views", "views", "tablestream, TPC-H's 22 queries as the views of one file of SQL"),
    "tpch-q10": ("tpch", "q10", "tablestream, TPC-H Q10 under changes: the twenty customers who return most"),
    "tpcdi-trades": (
        "tpcdi",
        "trades",
        "tablestream, trades with the account, customer and security of their time, corrected",
    ),
    "fan-out": ("fan_out", "fan_out", "tablestream, one right row changes under all left rows"),
    "growth": ("growth", "growth", "tablestream, a left table that grows in equal micro-batches"),
    "changes": (
        "changes",
        "changes",
        "tablestream, ten changes of a query: what becomes of it, and the seconds",
    ),
}
"""Name on the command line: module, function and title."""


def load(name: str) -> Callable[[SparkSession, Task], Run]:
    """Import a contestant's function; a process imports only the contestant that it runs."""
    module, function, _ = CONTESTANTS[name]
    return cast(
        "Callable[[SparkSession, Task], Run]",
        getattr(import_module(f"benchmarks.contestants.{module}"), function),
    )
