"""What statements declare, and all that can be wrong in them without Spark, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablestream.errors import SqlFileError
from tablestream.sql.program import Program, program_of
from tablestream.sql.statements import Call, SourceTable, View
from tests.pages import BLOCK

ROOT = Path(__file__).parents[2]

T = "CREATE TABLE t (id INT, at TIMESTAMP, PRIMARY KEY (id)) USING json LOCATION 'logs/t';\n"
V = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"


def program(text: str) -> Program:
    return program_of("q.sql", text, {})


def table(text: str) -> SourceTable:
    (found,) = (one for one in program(f"{text};\n{V}").named.values() if isinstance(one, SourceTable))
    return found


def view(text: str) -> View:
    found = program(T + text).named["v"]
    assert isinstance(found, View)
    return found


def mistakes(text: str) -> list[str]:
    with pytest.raises(SqlFileError) as found:
        program(text)
    error = found.value
    lines = [f"{error.reason} {error.hint}"] if error.reason.startswith("q.sql:") else error.hint.splitlines()
    return [one.removeprefix("q.sql:") for one in lines]


@pytest.mark.parametrize(
    ("columns", "schema", "key"),
    [
        ("id INT, name STRING, PRIMARY KEY (id)", "id INT, name STRING", ["id"]),
        ("id INT PRIMARY KEY, name STRING", "id INT, name STRING", ["id"]),
        ("id INT NOT NULL PRIMARY KEY COMMENT 'it', b INT", "id INT NOT NULL COMMENT 'it', b INT", ["id"]),
        ("a INT, b INT, CONSTRAINT c PRIMARY KEY (b, A) NOT ENFORCED", "a INT, b INT", ["b", "a"]),
        ("`a b` INT, `c,d` INT, PRIMARY  KEY (`a b`)", "`a b` INT, `c,d` INT", ["a b"]),
        (
            "id INT, m MAP<INT, ARRAY<INT>>, d DECIMAL(9, 2), s STRUCT<a: INT, b: STRUCT<c: INT>>, PRIMARY KEY (id)",
            "id INT, m MAP<INT, ARRAY<INT>>, d DECIMAL(9, 2), s STRUCT<a: INT, b: STRUCT<c: INT>>",
            ["id"],
        ),
        ("date DATE, /* a, b */ at TIMESTAMP, primary key (date)", "date DATE, at TIMESTAMP", ["date"]),
    ],
)
def test_columns_stay_sparks_text_and_the_primary_key_is_the_key(
    columns: str, schema: str, key: list[str]
) -> None:
    found = table(f"CREATE TABLE t ({columns}) USING json LOCATION 'a'")
    assert found.schema() == schema
    assert list(found.key) == key


def test_options_are_texts_numbers_truth_lists_and_formats() -> None:
    found = table(
        "create table t (id int, primary key (id)) using kafka options (topic ('a', 'b'), bootstrap_servers = 'h:1',"
        " 'options.x-y' -3, options.kafka.security.protocol \"SSL\", deduplicate TRUE, history NULL)"
    )
    assert [(one.name, one.value) for one in found.options] == [
        ("topic", ["a", "b"]),
        ("bootstrap_servers", "h:1"),
        ("options.x-y", -3),
        ("options.kafka.security.protocol", "SSL"),
        ("deduplicate", True),
        ("history", None),
    ]
    found = table(
        "CREATE TABLE t (PRIMARY KEY (id)) USING kafka OPTIONS (topic 'a', bootstrap_servers 'h:1', key 'string',"
        " value confluent_avro('http://r', schema => '{}', register = false))"
    )
    (value,) = (one.value for one in found.options if one.name == "value")
    assert isinstance(value, Call)
    assert (value.function, value.arguments) == ("confluent_avro", ("http://r",))
    assert value.named == {"schema": "{}", "register": False}


def test_a_target_has_a_format_a_location_and_properties() -> None:
    found = view(
        "CREATE MATERIALIZED VIEW v COMMENT 'all; of it' USING delta LOCATION 'out/v' TBLPROPERTIES (mode = 'changes')"
        " AS SELECT * FROM t; -- the end;\n ; ;"
    )
    assert found.format is not None
    assert found.format.name == "delta"
    assert [(one.name, one.value) for one in found.options] == [("path", "out/v"), ("mode", "changes")]


def test_views_read_what_stands_before_them_also_through_common_names_and_in_any_case() -> None:
    found = program(
        T
        + "CREATE VIEW w AS WITH x AS (SELECT * FROM T), t2 AS (SELECT id FROM x) SELECT * FROM t2;\n"
        + "CREATE MATERIALIZED VIEW v AS SELECT * FROM w JOIN t ON w.id = t.id WHERE w.id IN (SELECT id FROM t)"
    )
    assert [sorted(one.reads) for one in found.queries] == [["t"], ["t", "w"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["1:1: q.sql has no result. Write CREATE MATERIALIZED VIEW name AS SELECT ...."]),
        (T, ["1:1: q.sql has no result. Write CREATE MATERIALIZED VIEW name AS SELECT ...."]),
        ("SELECT 1", ["1:1: SELECT begins no statement of a file. Give the query a name: CREATE VIEW "]),
        (
            "WITH a AS (SELECT 1) SELECT * FROM a",
            ["1:1: WITH begins no statement of a file. Give the query "],
        ),
        (
            "INSERT INTO t SELECT 1",
            ["1:1: INSERT begins no statement of a file. Write the query with its target"],
        ),
        (
            "CREATE SINK s FROM t",
            ["1:1: CREATE SINK is no statement of a file. Write the query with its target"],
        ),
        (
            "CREATE SOURCE s (id INT)",
            ["1:1: CREATE SOURCE is no statement of a file. Write CREATE TABLE for "],
        ),
        (
            "CREATE TABLE t (id INT) WITH ('a' = 'b')",
            ["1:25: WITH is no clause of CREATE TABLE. Write USING, "],
        ),
        ("SET x = 1", ["1:1: SET begins no statement of a file. "]),
        ("CREATE INDEX i ON t (a)", ["1:1: CREATE INDEX is no statement of a file. "]),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", ["1:8: OR has no meaning here. Omit it: "]),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", ["1:8: TEMPORARY has no meaning here. "]),
        (T + "CREATE VIEW IF NOT EXISTS v AS SELECT * FROM t", ["2:13: IF NOT EXISTS has no meaning here. "]),
        ("CREATE TABLE a.b (x INT)", ["1:14: The name a has a dot. "]),
        ("CREATE TABLE 'a' (x INT)", ["1:14: 'a' is not the name of the table. "]),
        (T + "CREATE VIEW v (a) AS SELECT * FROM t", ["2:15: A view has no list of columns. "]),
        (T + "CREATE VIEW v", ["2:13: The view v has no query. "]),
        (T + "CREATE VIEW v AS", ["2:13: The view v has no query. "]),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) USING json LOCATON 'a'",
            ["1:48: LOCATON is no clause of CREATE TABLE. Did you mean LOCATION?"],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) USING json PARTITIONED BY (id)",
            ["1:48: PARTITIONED BY is no clause of CREATE TABLE. It takes USING, "],
        ),
        (T + "CREATE VIEW v USING delta AS SELECT * FROM t", ["2:15: USING is no clause of CREATE VIEW. "]),
        ("CREATE TABLE t (id INT PRIMARY KEY) USING json USING csv", ["1:48: USING is given twice. "]),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) USING json LOCATION a",
            ["1:57: a is not a path. Write a path in quotes."],
        ),
        ("CREATE TABLE t (id INT, id INT) USING json", ["1:25: The column id is there twice. "]),
        ("CREATE TABLE t (id INT PRIMARY KEY, PRIMARY KEY (id))", ["1:37: The table has two primary keys. "]),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", ["1:36: The table has two primary keys. "]),
        (
            "CREATE TABLE t (id INT, PRIMARY KEY (idd)) USING json",
            ["1:38: The column idd of the primary key is not declared. Did you mean id?"],
        ),
        (
            "CREATE TABLE t (id INT, PRIMARY KEY (id) USING json",
            ["1:42: A comma or ) is missing before USING. "],
        ),
        ("CREATE TABLE t (id INT USING json", ["1:34: A comma or ) is missing before The end. "]),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) USING json OPTIONS (path logs)",
            ["1:62: logs is not a value. Write a value in quotes."],
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) USING json OPTIONS path 'a'",
            ["1:56: path is not the opening "],
        ),
    ],
)
def test_a_statement_that_cannot_be_read_is_told_with_its_place(text: str, told: list[str]) -> None:
    found = mistakes(text)
    assert [one[: len(begin)] for one, begin in zip(found, told, strict=True)] == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CREATE TABLE u (id INT PRIMARY KEY)", "1:14: u does not say where it is read. Write USING json, "),
        ("CREATE TABLE u (id INT PRIMARY KEY) USING jsn", "1:37: jsn is no source. Did you mean json?"),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING avro",
            "1:37: avro is no source. Records in Avro come from topics",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING json",
            "1:14: The table u of json lacks a LOCATION. Write it as ",
        ),
        (
            "CREATE TABLE u USING json LOCATION 'a'",
            "1:14: u has no columns. Write them in parentheses: json ",
        ),
        ("CREATE TABLE u (id INT) USING json LOCATION 'a'", "1:14: The table u has no primary key. "),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING json LOCATION 'a' OPTIONS (timestmp 'at')",
            "1:70: The table u of json has no option timestmp. Did you mean timestamp?",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING csv LOCATION 'a' OPTIONS (quoteAll true)",
            "1:69: The table u of csv has no option quoteAll. It has path, mode, times, options, ",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING json OPTIONS (path 'a') LOCATION 'b'",
            "1:67: path is given twice. Keep one.",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING json LOCATION 'a' OPTIONS (name 'b')",
            "1:70: The table u of json has no option name. ",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING json LOCATION 'a' OPTIONS (deletes 'x', apply_as_deletes 'y')",
            "1:83: apply_as_deletes is given twice. Keep one.",
        ),
        (
            "CREATE STREAM u (id INT) USING json LOCATION 'a' OPTIONS (history '1 day')",
            "1:59: The stream u of json has no option history. ",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING delta LOCATION 'a'",
            "1:14: u has columns, which delta says itself. Write no more than the PRIMARY KEY (...).",
        ),
        (
            "CREATE STREAM u USING change_feed LOCATION 'a'",
            "1:15: change_feed has tables only. Write CREATE TABLE.",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING debezium OPTIONS (prefix 'shop')",
            "1:14: The table u of debezium lacks the option name. Write it as in OPTIONS (name '...').",
        ),
        (
            "CREATE TABLE u (id INT PRIMARY KEY) USING kafka",
            "1:14: The table u of kafka lacks the option topic and ",
        ),
    ],
)
def test_what_is_wrong_with_a_source_is_told_with_its_place(text: str, told: str) -> None:
    (found,) = mistakes(f"{text};\nCREATE MATERIALIZED VIEW v AS SELECT * FROM u")
    assert found.startswith(told)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (
            "id STRING, n INT, PRIMARY KEY (id)",
            "value 'avro'",
            "value 'avro' is no format for columns. Give 'json', ",
        ),
        (
            "id STRING, n INT, PRIMARY KEY (id)",
            "value avro('{}')",
            "u has columns, which the schema of avro says ",
        ),
        (
            "id STRING, n INT, PRIMARY KEY (id)",
            "value avor('{}')",
            "No option is made by avor(...). Did you mean avro?",
        ),
        (
            "id INT, n INT, PRIMARY KEY (id)",
            "key 'string'",
            "The key of the records is string, which is one column of ",
        ),
        (
            "id STRING, m STRING, PRIMARY KEY (id, m)",
            "key 'string'",
            "The key of the records is string, which is one ",
        ),
        (
            "id STRING, key INT, PRIMARY KEY (id)",
            "key 'string'",
            "Another column is called key, as the key of the ",
        ),
        (
            "PRIMARY KEY (id)",
            "key 'string'",
            "u has no columns. Write them in parentheses, or give the option value.",
        ),
    ],
)
def test_what_is_wrong_with_the_records_of_a_topic_is_told(columns: str, options: str, told: str) -> None:
    found = mistakes(
        f"CREATE TABLE u ({columns}) USING kafka OPTIONS (topic 'a', bootstrap_servers 'h:1', {options});\n"
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM u"
    )
    assert told in [one.split(": ", 1)[1][: len(told)] for one in found]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "CREATE MATERIALIZED VIEW v USING dleta LOCATION 'a' AS SELECT * FROM t",
            "2:28: dleta is no target. Did you ",
        ),
        (
            "CREATE MATERIALIZED VIEW v USING delta AS SELECT * FROM t",
            "2:26: The materialized view v of delta lacks a ",
        ),
        (
            "CREATE MATERIALIZED VIEW v LOCATION 'a' AS SELECT * FROM t",
            "2:28: v does not say where it is written. ",
        ),
        (
            "CREATE MATERIALIZED VIEW v USING parquet LOCATION 'a' OPTIONS (befor true) AS SELECT * FROM t",
            "2:64: The materialized view v of parquet has no option befor. Did you mean before?",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM u", "2:45: Nothing is called u. "),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM tt", "2:45: Nothing is called tt. Did you mean t?"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM v",
            "2:45: v is declared later, at q.sql:2. Move it before this ",
        ),
        ("CREATE MATERIALIZED VIEW T AS SELECT * FROM t", "2:26: T is declared already, at q.sql:1. "),
        ("CREATE MATERIALIZED VIEW v AS SELEC * FROM t", "2:39: The query of v cannot be read: "),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE (a = 1", "2:"),
        ("CREATE MATERIALIZED VIEW v AS DROP TABLE t", "2:31: The query of v is no SELECT. "),
        ("CREATE MATERIALIZED VIEW v AS t", "2:31: The query of v is no SELECT. "),
    ],
)
def test_what_is_wrong_with_a_view_is_told_with_its_place(text: str, told: str) -> None:
    assert mistakes(T + text)[0].startswith(told)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    told = mistakes(
        "CREATE TABLE a (id INT PRIMARY KEY) USING json;\n"
        "CREATE VIEW b AS SELECT FROM WHERE;\n"
        "CREATE MATERIALIZED VIEW c AS SELECT * FROM nothing;\n"
        "DROP TABLE a;\n"
        "CREATE TABLE d (id INT PRIMARY KEY) USING csv LOCATION 'x' OPTIONS (mod 'drop')\n"
    )
    assert [one.partition(":")[0] for one in told] == ["1", "2", "3", "4", "5"]


def test_the_files_that_the_documentation_shows_have_no_mistakes() -> None:
    """The page has the example, without its variables and remarks."""
    page = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    as_of, windows, shown, prices = (code for language, code in BLOCK.findall(page) if language == "sql")
    sources = (
        "CREATE STREAM trades (id INT, symbol STRING, quantity INT, at TIMESTAMP) USING json LOCATION 'trades';"
        "CREATE TABLE quotes (symbol STRING, price INT, PRIMARY KEY (symbol)) USING json LOCATION 'quotes';"
    )
    program(f"{sources} CREATE VIEW a AS {as_of}; CREATE MATERIALIZED VIEW b AS {windows}")
    program(f"{prices}\nCREATE MATERIALIZED VIEW v AS SELECT * FROM prices")
    example = (ROOT / "examples" / "holdings.sql").read_text(encoding="utf-8")
    same = program_of("example", example, {"logs": "logs", "out": "out"})
    assert said(program(shown)) == said(same)


def said(found: Program) -> list[object]:
    """Return what the statements of a file say, without places."""
    facts = list[object]()
    for one in found.named.values():
        rest = [token.text for token in one.query] if isinstance(one, View) else [one.columns, list(one.key)]
        facts.append((one.kind, one.name, one.format and one.format.name, rest))
        facts.append([(given.name, given.value) for given in one.options])
    return facts
