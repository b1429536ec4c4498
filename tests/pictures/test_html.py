"""The HTML that notebooks show: no name or value is taken for HTML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tablestream.pictures.html import html_table, relation_html

NAME = "a <b> & 'c'"


def test_names_and_values_have_no_meaning_for_html() -> None:
    table = ET.fromstring(html_table([NAME], [[NAME], [None]]))  # noqa: S314 - this project wrote it
    assert [["".join(cell.itertext()) for cell in row] for row in table] == [[NAME], [NAME], ["NULL"]]
    shown = ET.fromstring(relation_html(NAME, [(NAME, NAME, True)], "<svg/>"))  # noqa: S314 - the same
    assert [cell.text for cell in shown.iter("td")] == [NAME, NAME, "key"]
    assert shown[0].text == NAME
