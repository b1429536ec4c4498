"""Record the public API, ``python -m scripts.public_api --record``, or compare the sources with a record.

``tests/golden/api.txt`` has every public name with its signature, as Python without bodies. Inherited members stand in
the class that users name. Griffe reads the sources without importing them, and tells which differences between two
records break callers. Without an option, the sources are compared with the record of the work tree;
``--against v1.2.0`` compares them with the record of a tag.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parent.parent
RECORD = Path("tests", "golden", "api.txt")
HEAD = '"""The public API. `make api-record` writes this file from the sources."""'
#: Classes that users create. The initialisers of the others are called by the library only.
CREATED = {"Driver", "MetricsListener", "OpenTelemetryExporter"}
ADVICE = """\
The public API is not the recorded one. Is it changed on purpose? Run `make api-record`, and write a line in
CHANGELOG.md. The page docs/compatibility.md says which versions may break callers."""


def public_api(sources: Path = ROOT / "src", package: str = "tablestream") -> str:
    """Return the public API of a package as Python without bodies.

    Parameters
    ----------
    sources
        The directory that has the package.
    package
        Its name.
    """
    root = _real(griffe.load(package, search_paths=[sources], resolve_aliases=True))
    named = dict(_names(root, root))
    modules = {name: dict(_names(root, one)) for name, one in named.items() if one.is_module}
    parts = [_text(name, one) for name, one in named.items() if name not in modules]
    for name, inside in modules.items():
        texts = "\n\n".join(_text(*one) for one in inside.items())
        parts.append(f"class {name}:  # a module\n{_indented(texts)}")
    public = [*named.values(), *(one for inside in modules.values() for one in inside.values())]
    aliases = [f"{name} = {value}" for name, value in sorted(_aliases(root, public).items())]
    return "\n\n".join([HEAD, *parts, "\n".join(aliases)]).rstrip() + "\n"


def _real(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the object itself, where Griffe has found a name that was imported or inherited."""
    return found.final_target if isinstance(found, griffe.Alias) else found


def _names(root: griffe.Object, module: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the public names of a module in their order: those that it exports, or else those that it defines."""
    if module.exports is None:
        own = [(name, one) for name, one in module.members.items() if not name.startswith("_")]
        kinds = griffe.Class, griffe.Function
        yield from sorted((name, one) for name, one in own if isinstance(one, kinds))
        return
    for name in sorted(map(str, module.exports)):
        path = module.imports.get(name, f"{module.path}.{name}")
        yield name, _real(root[path.removeprefix(f"{root.path}.")])


def _text(name: str, found: griffe.Object) -> str:
    """Return a class, a function or an attribute without its body."""
    if isinstance(found, griffe.Class):
        bases = f"({', '.join(map(str, found.bases))})" if found.bases else ""
        members = "\n".join(_text(*member) for member in _members(found))
        return f"class {name}{bases}:\n{_indented(members or '...')}"
    if isinstance(found, griffe.Function):
        kind = "".join(f"@{label}\n" for label in ("classmethod", "staticmethod") if label in found.labels)
        returns = f" -> {found.returns}" if found.returns is not None else ""
        return f"{kind}def {name}({', '.join(_parameters(found.parameters))}){returns}: ..."
    if not isinstance(found, griffe.Attribute):
        raise TypeError(f"{name} is a {found.kind.value}, which the record has no place for.")
    return f"{name}: {found.annotation}" if found.annotation is not None else f"{name} = {found.value}"


def _members(found: griffe.Class) -> list[tuple[str, griffe.Object]]:
    """Return the public members of a class, with those of its bases in the package."""
    created = {"__init__"} if found.name in CREATED else set()
    members = [(name, _real(one)) for name, one in found.all_members.items()]
    return sorted((name, one) for name, one in members if name in created or not name.startswith("_"))


def _parameters(parameters: Iterable[griffe.Parameter]) -> Iterator[str]:
    """Yield the parameters of a signature, with its ``/`` and ``*``."""
    kinds, before = griffe.ParameterKind, None
    stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}
    for one in parameters:
        if before is kinds.positional_only and one.kind is not before:
            yield "/"
        if one.kind is kinds.keyword_only and before not in {kinds.keyword_only, kinds.var_positional}:
            yield "*"
        star = stars.get(one.kind, "") if one.kind is not None else ""
        annotation = f": {one.annotation}" if one.annotation is not None else ""
        yield f"{star}{one.name}{annotation}" + ("" if one.default is None or star else f" = {one.default}")
        before = one.kind
    if before is kinds.positional_only:
        yield "/"


def _aliases(root: griffe.Object, public: Iterable[griffe.Object]) -> dict[str, str]:
    """Return the package's type aliases that signatures name, such as the ways to join, and those that these name."""
    found: dict[str, str] = {}
    waiting = [one for each in public for one in _expressions(each)]
    while waiting:
        for part in waiting.pop().iterate(flat=True):
            path = part.canonical_path if isinstance(part, griffe.ExprName) else ""
            inside = path.removeprefix(f"{root.path}.")
            target = _real(root[inside]) if inside != path else None
            if isinstance(target, griffe.Attribute) and target.name not in found:
                found[target.name] = str(target.value)
                waiting += [target.value] if isinstance(target.value, griffe.Expr) else []
    return found


def _expressions(found: griffe.Object) -> Iterator[griffe.Expr]:
    """Yield the annotations of an object and of its public members."""
    annotations: list[str | griffe.Expr | None] = []
    if isinstance(found, griffe.Function):
        annotations = [found.returns, *(one.annotation for one in found.parameters)]
    elif isinstance(found, griffe.Attribute):
        annotations = [found.annotation]
    elif isinstance(found, griffe.Class):
        for _, one in _members(found):
            yield from _expressions(one)
    yield from (one for one in annotations if isinstance(one, griffe.Expr))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def breaks(old: str, new: str) -> list[str]:
    """Say which differences between two records break callers, as far as Griffe knows: it does not judge types.

    Examples
    --------
    >>> breaks("def f(a, b=1): ...", "def f(a, c=1): ...")
    ['`f(b)`: *Parameter was removed*']
    >>> breaks("def f(a): ...", "def f(a, b=1): ...")
    []
    """
    before, after = (griffe.visit("api", Path("api.py"), text) for text in (old, new))
    found = griffe.find_breaking_changes(before, after)
    return [one.explain(griffe.ExplanationStyle.MARKDOWN).removeprefix("- ") for one in found]


def difference(old: str, new: str) -> str:
    """Return what differs between two records: the lines, and the breaks; empty if nothing does."""
    if old == new:
        return ""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", n=0, lineterm="")
    return "\n".join([*lines, "", *(f"breaks callers: {one}" for one in breaks(old, new))])


def recorded(tag: str | None = None) -> str:
    """Return the record of the work tree, or of a tag."""
    if tag is None:
        return (ROOT / RECORD).read_text(encoding="utf-8")
    shown = subprocess.run(
        ["git", "show", f"{tag}:{RECORD}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        sys.exit(f"There is no record of {tag}: {shown.stderr.strip()}")
    return shown.stdout


def main() -> None:
    """Write the record, or say what differs from one."""
    parser = argparse.ArgumentParser(
        description="Record the public API, or compare the sources with a record."
    )
    parser.add_argument("--record", action="store_true", help="write the record from the sources")
    parser.add_argument("--against", metavar="TAG", help="compare with the record of a tag of git")
    options = parser.parse_args()
    now = public_api()
    if options.record:
        (ROOT / RECORD).write_text(now, encoding="utf-8")
    elif differing := difference(recorded(options.against), now):
        sys.exit(f"{differing}\n\n{ADVICE}")


if __name__ == "__main__":
    main()
