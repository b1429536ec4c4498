"""The checks in a browser find what is wrong with a page, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.look.browser import faults_of, needed_browser

#: A page with one of each fault, and what is found there.
BAD = """<!doctype html><html><head></head><body data-md-color-scheme="default"><article>
<p style="color: #999">pale</p>
<p style="color: #999; opacity: 0">hidden</p>
<p style="width: 800px">wide</p>
<div style="overflow-x: auto"><p style="width: 3000px">wide, and can be scrolled</p></div>
<div style="overflow-x: hidden"><p style="width: 3000px">wide, and cut</p></div>
<img src="nowhere.png" alt="missing">
<img src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='200' height='100'/%3E">
<img src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='20' height='10'/%3E" alt="small">
<script>console.error("said")</script>
<script>Promise.reject("broken")</script>
<script>nothing.at.all</script>
<script src="https://elsewhere.example/x.js"></script>
</article></body></html>"""
FAULTS = [
    "console: said",
    "error: broken",
    "px: shown with 20 x 10 px",
    "error: Uncaught ReferenceError: nothing is not defined",
    "asks another host: https://elsewhere.example/x.js",
    "390 px: the page is 8",
    "390 px: cut by 4",
    "1280 px: cut by 1",
    'px: not loaded: <img class=""> nowhere.png',
    'px: without a text alternative: <img class=""> data:',
    'default: contrast 2.85 (153,153,153,1 on 255,255,255): <p class=""> pale',
]
UNDRAWN = (
    '<!doctype html><html><head></head><body><article><pre class="mermaid">a</pre></article></body></html>'
)
GOOD = "<!doctype html><html><head></head><body><article><p>fine</p></article></body></html>"


@pytest.mark.slow
def test_each_kind_of_fault_is_found(tmp_path: Path) -> None:
    program = needed_browser()
    (tmp_path / "bad.html").write_text(BAD, encoding="utf-8")
    (tmp_path / "good.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "undrawn.html").write_text(UNDRAWN, encoding="utf-8")
    found = faults_of(tmp_path, ["bad.html", "good.html", "undrawn.html"], program)
    assert any("a diagram is not drawn" in one for one in found["undrawn.html"])
    assert found["good.html"] == []
    assert [fault for fault in FAULTS if not any(fault in one for one in found["bad.html"])] == []
    assert not any("hidden" in one or "scrolled" in one for one in found["bad.html"])
