"""The Mermaid of a plan: golden files pin it for plans of several kinds, and it has the same parts as the picture.

To write the files anew after a change that was meant: ``UPDATE_GOLDEN=1 pytest tests/pictures/test_mermaid.py``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tablestream.pictures.diagram import mermaid_of
from tablestream.pictures.figures import Figures
from tablestream.pictures.of_plan import picture_of
from tablestream.pictures.picture import Arrow, Box, Kind, Lane, Line, Picture
from tests.pictures.plans import DRAWN, metrics, plan

GOLDEN = Path(__file__).parent.parent / "golden" / "pictures"
#: A foreign-key join with groups; streams, a versioned table and merged streams; a star; buffers; rejected records.
PINNED = ["groups", "versions", "streams", "star", "suppress", "two_outputs"]


def check(name: str, text: str) -> None:
    """Compare a text with its golden file."""
    file = GOLDEN / f"{name}.mmd"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PINNED)
def test_the_mermaid_of_a_plan(name: str) -> None:
    check(name, mermaid_of(picture_of(plan(name))))


def test_the_mermaid_of_a_query_that_ran() -> None:
    drawn = plan("left_join", "align")
    dropped = {("positions", "null-key"): 3, ("positions_tickers/subscribe", "null-foreign-key"): 5}
    figures = Figures.of([metrics(drawn, dropped), metrics(drawn, dropped, micro_batch=1)])
    check("left_join_figures", mermaid_of(picture_of(drawn, figures)))


@pytest.mark.parametrize(("name", "mode"), DRAWN)
def test_it_has_every_box_and_every_arrow(name: str, mode: str) -> None:
    picture = picture_of(plan(name, mode))
    text = mermaid_of(picture)
    assert re.findall(r"^    (\w+)\[", text, re.MULTILINE) == list(picture.boxes)
    arrows = re.findall(r"^  (\w+) -.*> ?(?:\|.*\|)? ?(\w+)$", text, re.MULTILINE)
    assert arrows == [(one.start, one.end) for one in picture.arrows]


def test_names_have_no_meaning_for_mermaid() -> None:
    name = 'a "b" <c> #d; `e`\n{f}|[g]|'
    box = Box("operator1", Kind.OPERATOR, name, inputs=(name,), lines=(Line(name),))
    source = Box("source1", Kind.SOURCE, name)
    lanes = (Lane("Sources", (source,)), Lane("Round 1", (box,), "shuffle"))
    text = mermaid_of(Picture((name,), lanes, (Arrow("source1", "operator1", 0),)))
    *_, first = (line for line in text.splitlines() if line.startswith("    source1"))
    shown = "a #34;b#34; #60;c#62; #35;d#59; #96;e#96;#10;#123;f#125;#124;#91;g#93;#124;"
    assert first == f'    source1[("<b>{shown}</b>")]:::source'
    assert f'  source1 -->|"{shown}"| operator1' in text.splitlines()
    # The title is a string of YAML.
    assert text.splitlines()[1] == r'title: "a \"b\" <c> #d; `e`\n{f}|[g]|"'
