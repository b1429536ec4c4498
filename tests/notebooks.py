"""Runs the cells of a notebook in this process, one after the other, and keeps what each of them shows.

``python -m tests.notebooks`` runs the notebooks of ``examples/notebooks`` and writes what they show into them.
"""

from __future__ import annotations

import ast
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """Return what a cell shows as text: what it printed, and then its value."""
    texts = []
    for output in cell["outputs"]:
        text = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        texts.append("".join(text))
    return "".join(texts).rstrip("\n")


class Kernel:
    """Runs cells in one namespace, as a notebook does."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell and return its outputs, in the notebook's format. The value of a last expression is shown."""
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = StringIO(), None
        with redirect_stdout(printed):
            exec(compile(tree, "cell", "exec"), self._names)  # noqa: S102 - the notebook's own lines
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), self._names)  # noqa: S307 - the same
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            lines = printed.getvalue().splitlines(keepends=True)
            outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
        if value is not None:
            data = {"text/plain": repr(value).splitlines(keepends=True)}
            outputs.append(
                {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}
            )
        return outputs


def rewrite(notebook: Path) -> None:
    """Run a notebook, and write its outputs into it."""
    document, kernel = json.loads(notebook.read_text(encoding="utf-8")), Kernel()
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = kernel.run("".join(cell["source"]))
    notebook.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for one in NOTEBOOKS:
        rewrite(one)
