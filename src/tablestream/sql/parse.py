"""SQL text to trees. Each expression knows where it stands in the text, so that Spark gets what the user wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import zip_longest
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from tablestream.base.calling import user_line
from tablestream.sql.refusals import Reason, refused
from tablestream.sql.text import DIALECT

_SPAN = "span"
#: What the parser says of its own classes.
_GOT = re.compile(r" but got <Token.*")
_MISSING = re.compile(r"Required keyword: .*<class '.*\.(\w+)'>")
#: The parser's rules for expressions, from the weakest binding to the strongest.
_RULES = (
    "assignment",
    "disjunction",
    "conjunction",
    "equality",
    "comparison",
    "range",
    "bitwise",
    "term",
    "factor",
    "unary",
    "column",
    "field",
    "lambda",
    "ordered",
    "table",
    "join",
    "pivot_aggregation",
    "limit",
)


#: Comparisons, each with the one that says the same of its sides exchanged.
TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.NEQ: exp.NEQ,
}
#: Comparisons, each with the one that holds where it does not.
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {exp.EQ: exp.NEQ, exp.LT: exp.GTE, exp.GT: exp.LTE}
_NEGATED |= {one: other for other, one in _NEGATED.items()}


class UnknownPlaceError(Exception):
    """An expression is a part of another one, and only that one knows where it stands."""


def _noted(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of the parser that notes where the text of its result begins and ends."""

    @wraps(rule)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, exp.Expr)), None)
        begin = self._curr.start if given is None else given.meta.get(_SPAN, (None,))[0]
        node = rule(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and begin is not None and self._prev is not None:
            node.meta[_SPAN] = (begin, self._prev.end + 1)
        return node

    return noted


def _argument(self: Any, *args: Any, **kwargs: Any) -> Any:
    """An argument of a function: also ``TABLE t``, as table functions of Flink take it."""
    if self._curr.token_type == TokenType.TABLE and self._next.token_type != TokenType.L_PAREN:
        self._advance()
        return self._parse_table_parts()
    return DIALECT.parser_class._parse_lambda(self, *args, **kwargs)  # noqa: SLF001 - the rule that this extends


def _piped(self: Any, query: exp.Query) -> None:  # noqa: ARG001 - the parser's arguments
    """Refuse ``|>``: sqlglot puts its steps into the query before, so ``|> WHERE`` would see other columns."""
    self.raise_error("|> is not read, write clauses of SELECT", self._curr)


_Parser: type = type(
    "_Parser",
    (DIALECT.parser_class,),
    {f"_parse_{rule}": _noted(getattr(DIALECT.parser_class, f"_parse_{rule}")) for rule in _RULES}
    | {"_parse_lambda": _noted(_argument), "_parse_pipe_syntax_query": _piped},
)


def parsed(text: str) -> list[exp.Expr]:
    """Parse statements.

    Raises
    ------
    SqlRefusedError
        The text is no SQL.
    """
    try:
        found = trees(DIALECT.tokenize(text), text)
    except SqlglotError as error:
        said = (getattr(error, "errors", None) or [{}])[0]
        line, column = said.get("line") or 1, said.get("col") or 1
        column -= max(len(said.get("highlight") or "") - 1, 0)  # the parser says where a word ends
        what = what_is_wrong(error)
        near = f" near {said['highlight']!r}" if said.get("highlight") else ""
        reason = Reason(line, column, "text", f"It cannot be parsed{near}: {what}.", "Write Spark's SQL.")
        raise refused([reason], user_line()) from error
    return [one for one in found if not isinstance(one, exp.Semicolon)]


def what_is_wrong(error: SqlglotError) -> str:
    """Return what the parser says, without its own classes and without a full stop."""
    said = (getattr(error, "errors", None) or [{}])[0].get("description") or str(error).splitlines()[0]
    return _MISSING.sub(r"something is missing in \1", _GOT.sub("", said)).rstrip(".")


def trees(tokens: Sequence[Token], text: str) -> list[exp.Expr]:
    """Parse the tokens of a text, or of a part of it. Raises sqlglot's `ParseError`."""
    found: list[exp.Expr | None] = _Parser(dialect=DIALECT).parse(_with_names(tokens), text)
    return [_in_few_words(_as_meant(one)) for one in found if one is not None]


def _in_few_words(tree: exp.Expr) -> exp.Expr:
    """A tree with fewer kinds of parts.

    It has ``LIMIT`` for ``FETCH``, ``IN`` for ``= ANY``, ``NOT (a >= ANY ...)`` for ``a < ALL (...)``, and
    ``SELECT * FROM VALUES ...`` for ``VALUES`` that are no part of ``FROM``.
    """
    for values in [*tree.find_all(exp.Values)]:
        around = within = values.parent
        while isinstance(within, exp.Subquery | exp.Table):  # parentheses
            within = within.parent
        if not isinstance(within, exp.From | exp.Join | exp.Lateral | exp.In):
            made = placed(exp.select("*"), span(values))
            tree = made if around is None else tree
            values.replace(made)
            made.set("from_", exp.From(this=values))
    for fetch in [*tree.find_all(exp.Fetch)]:
        count, options = fetch.args.get("count"), fetch.args.get("limit_options")
        limit = exp.Limit(expression=count or exp.Literal.number(1), limit_options=options)
        fetch.replace(placed(limit, span(fetch)))
    for node in [*tree.find_all(*_NEGATED)]:
        given, place = node.expression, span(node)
        if isinstance(given, exp.Any | exp.All) and is_subquery(given.this):
            is_all, kind = isinstance(given, exp.All), type(node)
            kind = _NEGATED[kind] if is_all else kind
            made = kind(this=node.this, expression=exp.Any(this=given.this))
            made = exp.In(this=node.this, query=given.this) if kind is exp.EQ else made
            node.replace(placed(exp.Not(this=placed(made, place)) if is_all else made, place))
    return tree


def _as_meant(tree: exp.Expr) -> exp.Expr:
    """A tree whose frames have their words in capitals, and where ``any(x)`` is a function if it is an aggregate."""
    for frame in tree.find_all(exp.WindowSpec):
        for part in ("kind", "start_side", "end_side"):
            frame.set(part, (frame.args.get(part) or "").upper() or None)
    for some in [*tree.find_all(exp.Any)]:
        if isinstance(some.this, exp.Paren) and not isinstance(some.parent, exp.Like | exp.ILike):
            some.replace(placed(exp.Anonymous(this="any", expressions=[some.this.this]), span(some)))
    return tree


def _with_names(given: Sequence[Token]) -> list[Token]:
    """The tokens; some words are names that the parser takes for others.

    ``window`` is one, as of the function and its column, unless ``WINDOW w AS`` begins a clause; so is the aggregate of
    ``any(DISTINCT x)``.
    """
    found = list[Token]()
    for one, second in zip_longest(given, given[2:]):
        kind, after = one.token_type, second and second.token_type
        if kind == TokenType.WINDOW and after != TokenType.ALIAS:
            kind = TokenType.VAR
        elif kind in {TokenType.ANY, TokenType.SOME} and after == TokenType.DISTINCT:
            kind = TokenType.IDENTIFIER
        found.append(Token(kind, one.text, one.line, one.col, one.start, one.end, one.comments))
    return found


def is_subquery(node: exp.Expr) -> bool:
    """Whether an expression is a query, or ``EXISTS`` of one: ``exists`` of an array and a lambda is a function."""
    return isinstance(node, exp.Query) or (isinstance(node, exp.Exists) and isinstance(node.this, exp.Query))


def more_parts(node: exp.Expr, known: Sequence[str]) -> list[str]:
    """Return the words for what an expression says beyond its known parts, such as the ``limit`` of a subquery."""
    return [
        (part.removesuffix("s") if isinstance(given, list) else part).strip("_")
        for part, given in node.args.items()
        if given and part not in known
    ]


def is_bare(node: exp.Expr) -> bool:
    """Whether an expression is a query in parentheses, and nothing is said of them."""
    return isinstance(node, exp.Subquery) and not more_parts(node, ("this",))


def without_parentheses(node: exp.Expr) -> exp.Expr:
    """Return a query without the parentheses of which nothing is said."""
    while is_bare(node):
        node = node.this
    return node


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Return where the text of an expression begins and ends, if it is known."""
    if isinstance(node, exp.Column) and all("start" in one.meta for one in node.parts):
        return int(node.parts[0].meta["start"]), int(node.parts[-1].meta["end"]) + 1
    if isinstance(node, exp.Identifier) and "start" in node.meta:
        return int(node.meta["start"]), int(node.meta["end"]) + 1
    return node.meta.get(_SPAN)


def wrapped(node: exp.Expr) -> exp.Struct:
    """Return a struct with a value. It is never null: ``=`` of two of them is ``<=>`` of the values."""
    return exp.Struct(expressions=[node.copy()])


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return the value in a struct of `wrapped`; anything else as it is."""
    is_wrapped = isinstance(node, exp.Struct) and span(node) is None
    return node.expressions[0] if is_wrapped else node


def placed(node: exp.Expr, place: tuple[int, int] | None) -> exp.Expr:
    """Return an expression that stands in the text in place of another one."""
    node.meta[_SPAN] = place
    return node


def not_false(condition: exp.Expr) -> exp.Coalesce:
    """Return that a condition holds or is null."""
    return exp.Coalesce(this=condition, expressions=[exp.true()])


def cast(node: exp.Expr, kind: str) -> exp.Cast:
    """Return a value in another type, which is Spark's DDL."""
    return exp.Cast(this=node.copy(), to=exp.Var(this=kind))


def with_type(node: exp.Expr) -> exp.Expr:
    """Return a value; ``NULL`` as a text, because no column has no type."""
    return cast(node, "STRING") if isinstance(node, exp.Null) else node


def beginning(node: exp.Expr) -> int:
    """Return where an expression begins: the first place that is known of it or its parts."""
    return min((begin for begin, _ in _spans(node)), default=0)


def ending(node: exp.Expr) -> int:
    """Return where an expression ends: the last place that is known of it or its parts."""
    return max((end for _, end in _spans(node)), default=0)


def _spans(node: exp.Expr) -> Iterator[tuple[int, int]]:
    return (found for one in node.walk() if (found := span(one)) is not None)


def spliced(node: exp.Expr, text: str, replaced: Callable[[exp.Expr], str | None]) -> str:
    """Return an expression as SQL on one line: the user's text, with parts of it replaced."""
    own = replaced(node)
    if own is not None:
        return own
    whole, parts = span(node), list[tuple[int, int, str]]()
    if whole is None and isinstance(node, exp.EQ | exp.NullSafeEQ):  # of USING, or of rows
        sides = ((one, spliced(one, text, replaced)) for one in (node.left, node.right))
        sign = " = " if isinstance(node, exp.EQ) else " <=> "
        return sign.join(side if isinstance(one, exp.Column) else f"({side})" for one, side in sides)
    if whole is None and isinstance(node, exp.Struct):  # of `wrapped`
        return f"named_struct('value', {spliced(node.expressions[0], text, replaced)})"
    if whole is None and isinstance(node, exp.Cast):  # of `cast`
        return f"CAST({spliced(node.this, text, replaced)} AS {node.args['to'].name})"
    if whole is None and isinstance(node, exp.Coalesce):  # of `not_false`
        return f"coalesce({spliced(node.this, text, replaced)}, true)"
    known = whole is not None and _replacements(node, replaced, parts)
    if whole is None or not known:
        raise UnknownPlaceError(node)
    said, at = list[str](), whole[0]
    for begin, end, new in sorted(parts):
        if (
            whole[0] <= begin and end <= whole[1]
        ):  # not in the clause WINDOW, for a function that names its window
            said += [_on_one_line(text[at:begin]), new]
            at = end
    said.append(_on_one_line(text[at : whole[1]]))
    return "".join(said).strip()


def _replacements(
    node: exp.Expr, replaced: Callable[[exp.Expr], str | None], parts: list[tuple[int, int, str]]
) -> bool:
    """Add the parts to replace; return whether the place of each is known."""
    for child in node.iter_expressions():
        new = replaced(child)
        if new is None:
            if not _replacements(child, replaced, parts):
                return False
            continue
        found = span(child) or _between(child)
        if found is None:
            return False
        parts.append((*found, new))
    return True


def _between(node: exp.Expr) -> tuple[int, int] | None:
    """Where the text of ``a + b`` in ``a + b + c`` is: the parser notes where the whole of them is."""
    if not isinstance(node, exp.Binary):
        return None
    left, right = span(node.left) or _between(node.left), span(node.right)
    return None if left is None or right is None else (left[0], right[1])


def _on_one_line(text: str) -> str:
    """SQL without comments and line breaks; spaces at either end stay as one."""
    tokens = DIALECT.tokenize(text) if text.strip() else []
    if not tokens:
        return " " if text else ""
    said, at = list[str](), 0
    for token in tokens:  # a number such as 1L is several tokens at one place
        said += [" " if token.start > at else "", text[max(token.start, at) : token.end + 1]]
        at = max(at, token.end + 1)
    return "".join([*said, " " if at < len(text) else ""])
