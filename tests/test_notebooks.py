"""The notebooks run, and show what stands in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.notebooks import NOTEBOOKS, Kernel, cells, shown

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def test_there_are_two_notebooks() -> None:
    assert [one.stem for one in NOTEBOOKS] == ["live-join", "start-here"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.stem)
def test_a_notebook_shows_what_stands_in_it(notebook: Path) -> None:
    kernel = Kernel()
    for cell in cells(notebook):
        source = "".join(cell["source"])
        outputs = json.loads(json.dumps(kernel.run(source)))
        assert shown({"outputs": outputs}) == shown(cell), source


def test_notebooks_show_something_and_nothing_of_one_machine() -> None:
    for notebook in NOTEBOOKS:
        texts = [shown(cell) for cell in cells(notebook)]
        assert sum(map(bool, texts)) >= 4
        assert not any("/tmp" in text or "0x" in text for text in texts)  # noqa: S108 - it is looked for


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.stem)
def test_the_links_of_a_notebook_lead_somewhere(notebook: Path) -> None:
    for link in LINK.findall(notebook.read_text(encoding="utf-8")):
        assert (notebook.parent / link).exists(), link


def test_a_kernel_shows_what_is_printed_and_the_last_value() -> None:
    kernel = Kernel()
    assert kernel.run("x = 1") == []
    assert shown({"outputs": kernel.run("print('a')\nx + 1")}) == "a\n2"
