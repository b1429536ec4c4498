"""Why outputs of a query have rows, or have none: asked of its checkpoint alone."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tablestream as ts
from tablestream import functions as tf
from tablestream.cli import app
from tablestream.errors import ArgumentError
from tests.spark.change_logs import START, ChangeLog, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tablestream.provenance.answer import Why

SCHEMA = "kind string, site string, n int, ticker string, client string, qty int, price double, at bigint"


def logged(seed: int) -> list[dict[str, Any]]:
    """Random changes of three tables: few keys, some that nothing has, nulls, deletes."""
    rng, log = random.Random(seed), []
    for at in range(80):
        kind = rng.choice(("position", "position", "ticker", "client"))
        one: dict[str, Any] = {"kind": kind, "at": START + at}
        if kind == "position":
            one |= {"site": rng.choice("XY"), "n": rng.randrange(4), "client": rng.choice("pq")}
            one |= {"ticker": rng.choice(("A", "B", "ZZZ", None)), "qty": rng.choice((None, 1, 2, 3))}
        elif kind == "ticker":
            one |= {"ticker": rng.choice("AB"), "price": rng.choice((None, 0.5, 1.5, 2.5))}
        else:
            one |= {"client": rng.choice("pq"), "qty": rng.choice((None, 7))}
        log.append(one)
    return log


def left(log: list[dict[str, Any]], kind: str, key: tuple[str, ...], value: str) -> dict[Any, dict[str, Any]]:
    """The rows of a table."""
    rows = {tuple(one[name] for name in key): one for one in log if one["kind"] == kind}
    return {of: one for of, one in rows.items() if one[value] is not None}


class Asked:
    """A query over random changes, and what its tables must have."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.checkpoint, log = spark, path / "checkpoint", logged(4)
        files = ChangeLog(path / "log", SCHEMA)
        files.add(*(log[start:end] for start, end in pairwise((0, 30, 55, 80))))
        self.positions = left(log, "position", ("site", "n"), "qty")
        self.tickers = left(log, "ticker", ("ticker",), "price")
        self.clients = left(log, "client", ("client",), "qty")

        def table(kind: str, key: list[str], gone: str, *columns: str) -> Any:
            frame = files.read(spark).where(f"kind = '{kind}'")
            name = f"{kind}s"
            times: dict[str, Any] = {
                "timestamp": "timestamp_seconds(at)",
                "apply_as_deletes": f"{gone} is null",
            }
            return ts.table(frame, key, name=name, columns=list(columns), **times)

        positions = table("position", ["site", "n"], "qty", "ticker", "client", "qty")
        tickers = table("ticker", ["ticker"], "price", "price")
        clients = table("client", ["client"], "qty", "qty")
        valued = positions.join(
            tickers, on="ticker", name="valued", select=lambda one, other: [one.client, one.qty, other.price]
        )
        wide = positions.join_many(
            ts.lookup(tickers, on="ticker", how="left"), ts.lookup(clients, on="client", suffixes=("", "_client")),
            name="wide",
        )  # fmt: skip
        per_client = valued.group_by("client").agg(qty=tf.sum("qty"), name="per client")
        best = valued.group_by("client").top(2, order_by="qty", descending=True, name="best")
        large = valued.filter("qty * price > 2")
        outputs = (valued, wide, per_client, best)
        requests = [one.to(ts.to_memory(f"why {number}")) for number, one in enumerate(outputs)]
        run(*requests, large.to(ts.to_memory("why 9"), name="large"), checkpoint=self.checkpoint, shards=3)

    def why(self, output: str, key: Any, **options: Any) -> Why:
        return ts.why(self.spark, self.checkpoint, output, key, **options)

    def valued(self) -> dict[Any, tuple[Any, Any]]:
        """The rows of the join, and of the tickers that they name."""
        found = {key: (one, self.tickers.get((one["ticker"],))) for key, one in self.positions.items()}
        return {key: pair for key, pair in found.items() if pair[1] is not None}


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked(spark, tmp_path_factory.mktemp("why"))


def of(answer: Why, table: str) -> list[Any]:
    """The keys of a source's rows."""
    return sorted(tuple(one["key"].values()) for one in answer.rows if one["table"] == table)


def test_a_row_is_followed_back_to_the_rows_of_sources(asked: Asked) -> None:
    valued = asked.valued()
    assert valued
    for key, (one, ticker) in list(valued.items())[:1]:
        answer = asked.why("valued", dict(zip(("site", "n"), key, strict=True)))
        assert answer.there
        assert of(answer, "positions") == [key]
        assert of(answer, "tickers") == [(one["ticker"],)]
        assert answer.finding.row == {"client": one["client"], "qty": one["qty"], "price": ticker["price"]}
        (price,) = [row for row in answer.rows if row["table"] == "tickers"]
        assert price["row"] == {"price": ticker["price"]}
        assert price["timestamp"].timestamp() == ticker["at"]
        assert json.loads(answer.to_json())["made_of"][1]["table"] == "tickers"


def test_of_a_key_without_a_row_it_is_said_what_is_missing(asked: Asked) -> None:
    lacking = [key for key, one in asked.positions.items() if one["ticker"] == "ZZZ"]
    nulls = [key for key, one in asked.positions.items() if one["ticker"] is None]
    assert lacking
    assert nulls
    (site, n), (null_site, null_n) = lacking[0], nulls[0]
    answer = asked.why("valued", {"site": site, "n": n})
    assert answer.there is False
    assert f"positions ({site}, {n}) names tickers ZZZ, which has no row; the join is inner." in str(answer)
    nothing = f"positions ({null_site}, {null_n}) names no row of tickers: ticker is null"
    assert nothing in str(asked.why("valued", {"site": null_site, "n": null_n}))
    assert "positions has no row with this key." in str(asked.why("large", {"site": "Q", "n": 1}))


def test_all_tables_of_a_star_join_are_followed_beside_its_center(asked: Asked) -> None:
    key, (one, _) = next(iter(asked.valued().items()))
    answer = asked.why("wide", dict(zip(("site", "n"), key, strict=True)))
    client = one["client"]
    assert [row.table for row in answer.finding.made_of] == ["positions", "tickers", "clients"]
    assert answer.there is ((client,) in asked.clients)
    if not answer.there:
        assert f"positions {said(key)} names clients {client}, which has no row; the join is inner." in str(
            answer
        )


def test_groups_and_ranks_are_followed_to_their_rows(asked: Asked) -> None:
    valued = asked.valued()
    client = next(one["client"] for one, _ in valued.values())
    members = {key: one["qty"] for key, (one, _) in valued.items() if one["client"] == client}
    answer = asked.why("per client", client)
    assert answer.finding.row == {"qty": sum(members.values())}
    assert of(answer, "positions") == sorted(members)
    first = asked.why("best", {"client": client, "rank": 1})
    assert first.there
    assert set(of(first, "positions")) == {
        key for key, qty in members.items() if qty == max(members.values())
    }


def test_what_an_expression_decides_is_said_not_to_be_known(asked: Asked) -> None:
    key = next(iter(asked.valued()))
    answer = asked.why("large", dict(zip(("site", "n"), key, strict=True)))
    assert answer.there is None
    assert "the state does not tell whether that holds for this row." in str(answer)


@pytest.mark.parametrize("given", [{"limit": 0}, {"limit": "all"}, {"batch_id": -1}, {"batch_id": "last"}])
def test_what_is_no_number_is_refused(spark: SparkSession, given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=rf"{next(iter(given))}=.* is not .*[01] or more"):
        ts.why(spark, "out/checkpoint", "valued", 1, **given)


def test_the_command_prints_the_answer_or_writes_it_as_json(asked: Asked) -> None:
    client = next(one["client"] for one, _ in asked.valued().values())
    words = ["why", str(asked.checkpoint), "per client", json.dumps({"client": client})]
    shown, written = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--json"]))
    assert shown.stdout.startswith(f"per client (groups) client={client}: qty=")
    facts = json.loads(written.stdout)
    assert (facts["table"], facts["there"], facts["key"]) == ("per client", True, {"client": client})
    assert facts["made_of"][0]["made_of"][0]["table"] == "positions"
    refused = CliRunner().invoke(app, [*words[:3], "p", "--json"])
    assert "The key p is not a JSON object." in json.loads(refused.stderr)["message"]


def said(key: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, key))})"


def test_an_unknown_output_and_another_key_are_refused(asked: Asked) -> None:
    with pytest.raises(ArgumentError, match=r"no output or table 'valeud'.*Outputs are: valued, wide"):
        asked.why("valeud", {"site": "X", "n": 1})
    with pytest.raises(ArgumentError, match=r"The key of 'valued' has the columns site, n, not ticker"):
        asked.why("valued", {"ticker": "A"})
    with pytest.raises(ArgumentError, match=r"key column n is not of its type, int"):
        asked.why("valued", {"site": "X", "n": "one"})
