"""Measure the package, ``python -m scripts.measure_code``: lines, modules, importers, circles of imports, functions.

Grimp, which ``make lint`` uses as well, tells who imports whom. An import inside a function makes no circle, because it
runs after the modules are there.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
#: Tokens that no line of code consists of.
EMPTY = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Lines:
    """The lines of a text: those with code, those of docstrings, and the rest (comments and blank lines)."""

    code: int = 0
    docstrings: int = 0
    rest: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.code + other.code, self.docstrings + other.docstrings, self.rest + other.rest)

    @property
    def total(self) -> int:
        """All of them."""
        return self.code + self.docstrings + self.rest


def lines_of(source: str) -> Lines:
    """Count the lines of a module."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, Documented))
    told = {line for node in nodes for line in _docstring(node)}
    tokens = (one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type not in EMPTY)
    code = {line for one in tokens for line in range(one.start[0], one.end[0] + 1)} - told
    return Lines(len(code), len(told), len(source.splitlines()) - len(code) - len(told))


def _docstring(node: Documented) -> Iterable[int]:
    """Return the numbers of the lines of a node's docstring."""
    if ast.get_docstring(node, clean=False) is None:
        return ()
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def lengths(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Yield length in lines, with decorators and docstring, and name of each function of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield (node.end_lineno or first) - first + 1, f"{module}.{node.name}:{node.lineno}"


def modules_of(package: Path) -> dict[str, Path]:
    """Return the files of a package by the names of their modules."""
    names = {
        path: [package.name, *path.relative_to(package).with_suffix("").parts]
        for path in package.rglob("*.py")
    }
    return {
        ".".join(one for one in parts if one != "__init__"): path for path, parts in sorted(names.items())
    }


def graph_of(package: Path, *, for_types: bool = True) -> grimp.ImportGraph:
    """Return who imports whom in a package, with or without imports for types alone."""
    sys.path.insert(0, str(package.parent))
    try:
        return grimp.build_graph(package.name, exclude_type_checking_imports=not for_types, cache_dir=None)
    finally:
        sys.path.remove(str(package.parent))


def single_importers(graph: grimp.ImportGraph) -> dict[str, str]:
    """Return the modules that exactly one other module imports, with that one."""
    importers = {one: graph.find_modules_that_directly_import(one) for one in graph.modules}
    return {one: found.pop() for one, found in sorted(importers.items()) if len(found) == 1}


def circles(graph: grimp.ImportGraph, files: dict[str, Path]) -> list[list[str]]:
    """Return the groups of modules of which each imports, through others, each: by imports outside of functions."""
    inside = {name: set(_inside_functions(path.read_text(encoding="utf-8"))) for name, path in files.items()}
    for one in sorted(graph.modules):
        for other in graph.find_modules_directly_imported_by(one):
            if all(
                detail["line_number"] in inside[one]
                for detail in graph.get_import_details(importer=one, imported=other)
            ):
                graph.remove_import(importer=one, imported=other)
    above = {one: graph.find_upstream_modules(one) for one in graph.modules}
    groups = {frozenset({one, *(other for other in above[one] if one in above[other])}) for one in above}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _inside_functions(source: str) -> Iterator[int]:
    """Yield the lines of the imports inside functions."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, Function):
            found = (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))
            yield from (node.lineno for node in found)


def report(package: Path) -> Iterator[str]:
    """Yield the lines of the report on a package."""
    files = modules_of(package)
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    counted = {name: lines_of(text) for name, text in texts.items()}
    yield from _by_folder(package, files, counted)
    single = single_importers(graph_of(package))
    lines = sum(counted[name].total for name in single)
    yield f"\nmodules with one importer: {len(single)}, with {lines} lines"
    yield from (f"  {counted[name].total:5}  {name} <- {importer}" for name, importer in single.items())
    for title, for_types in (("import circles", False), ("import circles with imports for types", True)):
        found = circles(graph_of(package, for_types=for_types), files)
        yield f"\n{title}: {len(found)}"
        yield from (f"  {len(group)} modules: {', '.join(group)}" for group in found)
    yield from _of_functions(sorted(one for name, text in texts.items() for one in lengths(text, name)))


def _by_folder(package: Path, files: dict[str, Path], counted: dict[str, Lines]) -> Iterator[str]:
    """Yield a line for each folder, and one for all."""
    folders = {name: str(path.parent.relative_to(package)) for name, path in files.items()}
    sums = {folder: Lines() for folder in sorted(set(folders.values()))}
    for name, lines in counted.items():
        sums[folders[name]] += lines
    modules = Counter(folders.values())
    yield f"{'folder':24}{'modules':>9}{'code':>9}{'docs':>9}{'rest':>9}{'lines':>9}"
    everything = sum(sums.values(), Lines())
    for folder, one in [*sums.items(), ("all", everything)]:
        count = len(files) if folder == "all" else modules[folder]
        yield f"{folder:24}{count:9}{one.code:9}{one.docstrings:9}{one.rest:9}{one.total:9}"


def _of_functions(found: list[tuple[int, str]]) -> Iterator[str]:
    """Yield what the lengths of functions are."""
    sizes = [size for size, _ in found]
    yield f"\nfunctions: {len(sizes)}"
    if sizes:
        ninth = sizes[-(-len(sizes) * 9 // 10) - 1]
        longest = f"longest {sizes[-1]} ({found[-1][1]})"
        yield f"  lines: median {statistics.median(sizes):g}, 90th percentile {ninth}, {longest}"


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", nargs="?", type=Path, default=ROOT / "src" / "tablestream")
    print("\n".join(report(parser.parse_args(arguments).package)))


if __name__ == "__main__":
    main()
