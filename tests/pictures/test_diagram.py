"""What users hold: the diagram of a table, a stream or a query, files of it, and what notebooks show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import tablestream as ts
from tablestream.errors import ArgumentError
from tablestream.pictures.diagram import Diagram
from tests.pictures.drawn import Drawn
from tests.pictures.plans import metrics, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(spark: SparkSession, name: str, **options: object) -> ts.Table:
    value = "amount" if name == "other" else "other"
    frame = ts.testing.frame(spark, f"{name} int, {value} int, at timestamp")
    return ts.table(frame, name, timestamp="at", except_columns="at", name=f"{name}s", **options)  # type: ignore[arg-type]


def test_a_diagram_is_its_texts(tmp_path: Path) -> None:
    diagram = Diagram.of(plan("star"))
    assert str(diagram) == diagram.mermaid
    assert diagram.mermaid.startswith("---\n")
    assert diagram._repr_mimebundle_() == {"image/svg+xml": diagram.svg, "text/plain": diagram.mermaid}
    for name, text in (("a.svg", diagram.svg), ("b.MMD", diagram.mermaid), ("c.mermaid", diagram.mermaid)):
        diagram.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    with pytest.raises(AttributeError):
        diagram.svg = ""  # type: ignore[misc]


@pytest.mark.parametrize("name", ["plan.png", "plan", ".svg"])
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match="does not say in which format") as refused:
        Diagram.of(plan("star")).save(tmp_path / name)
    assert ".svg, .mmd, .mermaid" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_diagram_with_metrics_has_their_figures() -> None:
    drawn = plan("left_join")
    diagram = Diagram.of(drawn, metrics(drawn))
    for text in (diagram.mermaid, diagram.svg):
        assert "100 rows in, 10 out" in text
        assert "1.5 s" in text


def test_pictures_are_imported_when_they_are_used() -> None:
    program = (
        "import sys, tablestream as ts\n"
        "loaded = [one for one in sys.modules if one.startswith(('tablestream.pictures', 'matplotlib'))]\n"
        "print(loaded, ts.Diagram.__name__, ts.timeline.__name__, ts.Timeline.__name__, 'matplotlib' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == "[] Diagram timeline Timeline False\n"
    with pytest.raises(AttributeError, match="has no attribute 'pictogram'"):
        ts.pictogram  # type: ignore[attr-defined]  # noqa: B018


def test_the_diagram_of_a_table_takes_the_options_of_explain(spark: SparkSession) -> None:
    joined = table(spark, "id").join(table(spark, "other"), on="other", name="joined")
    assert "2 rounds, 16 shards" in joined.diagram().mermaid
    shown = joined.diagram(
        before=True, emit="final", tombstones="minimal", compat="kafka-streams", shards=4
    ).mermaid
    assert "3 rounds, 4 shards, compat kafka-streams" in shown
    assert "final change per key and micro-batch, with the row before, minimal tombstones" in shown
    assert Drawn(joined.diagram().svg).faults() == []
    with pytest.raises(ArgumentError, match="emit='some' is not known"):
        joined.diagram(emit="some")  # type: ignore[arg-type]


def test_the_diagram_of_a_query_has_all_its_outputs(spark: SparkSession) -> None:
    joined = table(spark, "id").join(table(spark, "other"), on="other", name="joined")
    outputs = [
        joined.to(ts.to_memory("a")),
        joined.rejected().to(ts.to_memory("b")),
        joined.to_stream().to(ts.to_memory("c")),
    ]
    diagram = ts.diagram(*outputs, shards=3)
    assert diagram.mermaid.count(":::output") == 3
    assert "dropped records" in diagram.mermaid
    (title,) = [line for line in diagram.mermaid.splitlines() if line.startswith("title: ")]
    (first, *_) = ts.plan_text(*outputs, shards=3).splitlines()
    assert title == f'title: "{first.removeprefix("Plan: ")}"'
    with pytest.raises(ArgumentError, match="A query needs an output"):
        ts.diagram()
    with pytest.raises(ArgumentError, match="A Table is not an output"):
        ts.diagram(joined)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="metrics= has no micro-batch"):
        ts.diagram(*outputs, metrics=[])


def test_notebooks_show_the_columns_the_key_and_the_plan(spark: SparkSession) -> None:
    one = table(spark, "id").group_by("other").count(name="a <b> count")
    for shown in (
        one,
        one.to_stream(name="a <b> stream"),
        ts.global_table(ts.testing.frame(spark, "id int"), "id"),
    ):
        html = ET.fromstring(shown._repr_html_())  # noqa: S314 - this project wrote it
        cells = [[cell.text for cell in row] for row in html.iter("tr")]
        expected = [
            [name, kind.dataType.simpleString(), "key" if name in shown.key_columns else None]
            for name, kind in zip(shown.columns, shown.schema, strict=True)
        ]
        assert cells == [["column", "type", None], *expected]
        assert html[0].text == f"{type(shown).__name__} {shown.name}"
        assert [image.tag for image in html[2]] == ["{http://www.w3.org/2000/svg}svg"]
    assert repr(one) == "Table 'a <b> count' [key other: int] [count: bigint]"


def test_a_plan_that_cannot_be_drawn_is_explained(spark: SparkSession) -> None:
    first = table(spark, "id", order_by="other")
    joined = first.join(table(spark, "id"), suffixes=("", "_right"))
    html = joined._repr_html_()
    assert "different orders (ids: " in html
    assert "<svg" not in html
    assert "<td>other_right</td>" in html


def test_notebooks_show_the_changes_of_a_driver(spark: SparkSession) -> None:
    driver = ts.testing.Driver(table(spark, "id"))
    driver.pipe("ids", [{"id": 1, "other": None, "at": "2024-01-02 09:00:00"}])
    html = driver.run()._repr_html_()
    assert html == (
        "<table><tr><th>id</th><th>other</th><th>_change_type</th><th>_timestamp</th></tr>"
        "<tr><td>1</td><td><i>NULL</i></td><td>upsert</td><td>2024-01-02 09:00:00</td></tr></table>"
    )
