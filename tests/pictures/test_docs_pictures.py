"""The pictures in the documentation are what the library draws.

To draw them anew after a change that was meant: ``UPDATE_GOLDEN=1 pytest tests/pictures/test_docs_pictures.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest

import tablestream as ts
from tablestream.pictures.diagram import Diagram
from tests.pictures.plans import metrics, plan
from tests.pictures.test_timeline import CHANGES

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"


def texts(svg: str) -> list[str]:
    """The texts of an image, without the signs that writers of SVG choose."""
    elements = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - this project wrote it
    return [" ".join("".join(one.itertext()).split()) for one in elements]


def test_the_plan_with_figures() -> None:
    drawn = plan("left_join")
    dropped = {("positions", "null-key"): 2, ("positions_tickers/subscribe", "null-foreign-key"): 3}
    svg = Diagram.of(drawn, [metrics(drawn, dropped, number) for number in range(3)]).svg
    file = PICTURES / "figures.svg"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(svg, encoding="utf-8")
    assert svg == file.read_text(encoding="utf-8")


def test_the_timeline(tmp_path: Path) -> None:
    """Another release of Matplotlib may draw other lines: the texts are compared."""
    matplotlib = pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "timeline"}):
        shown = ts.timeline(pl.DataFrame(CHANGES), key={"id": 1}, value="price")
        shown.figure.savefig(tmp_path / "timeline.svg", metadata={"Date": None})
    svg = (tmp_path / "timeline.svg").read_text(encoding="utf-8")
    file = PICTURES / "timeline.svg"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    assert texts(svg) == texts(file.read_text(encoding="utf-8"))
    assert "id = 1: 4 changes, 1 correction" in texts(svg)
