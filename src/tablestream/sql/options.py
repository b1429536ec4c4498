"""Options of statements: arguments of the functions that read and write, by their signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tablestream.connectors.avro.format import avro, confluent_avro
from tablestream.sql.problems import Problem, nearest
from tablestream.sql.statements import Call, Declared, Given

#: What a statement may say more shortly.
_SHORT = {"deletes": "apply_as_deletes"}
#: The functions that make a value.
_CALLS: Mapping[str, Callable[..., Any]] = {"avro": avro, "confluent_avro": confluent_avro}
#: How the annotation of an argument says that it may, and that it must be a mapping.
_WITH_ENTRIES = re.compile(r"\b(Mapping|Units)\b")
_ENTRIES_ONLY = re.compile(r"Mapping\[.*\]( \| None)?")
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Step:
    """A function that a statement calls.

    Attributes
    ----------
    fixed
        The arguments that are no options: the statement itself says them.
    derived
        Options that the statement itself says if they are not given.
    """

    function: Callable[..., Any]
    fixed: Collection[str]
    derived: Collection[str] = ()

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments that may be options."""
        known = inspect.signature(self.function).parameters.values()
        return {one.name: one for one in known if one.name not in self.fixed}

    @property
    def required(self) -> list[str]:
        """The options that have no default."""
        return [
            name
            for name, one in self.parameters.items()
            if one.default is one.empty and name not in self.derived
        ]


@dataclass(frozen=True)
class Options:
    """The options of a statement, for the functions that it calls."""

    declared: Declared
    steps: tuple[Step, ...]

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the options, as far as their names and forms tell."""
        before = list[str]()
        for given in self.declared.options:
            problem = self._problem(given, before)
            if problem is not None:
                yield problem
            before.append(_full(given))
        given_names = {_argument(one) for one in self.declared.options}
        missing = [name for step in self.steps for name in step.required if name not in given_names]
        if missing:
            yield Problem(
                self.declared.at,
                f"{self._subject} lacks {' and '.join(map(_shown, missing))}.",
                f"Write it as in {_example(missing[0])}.",
            )

    def of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the arguments of a function."""
        found = dict[str, Any]()
        for given in self.declared.options:
            step = self._step(given)
            if step is None or step.function is not function:
                continue
            argument, _, key = _full(given).partition(".")
            value = _made(given.value, step.parameters[argument])
            if key:
                found.setdefault(argument, {})[key] = value
            else:
                found[argument] = value
        return found

    @property
    def _subject(self) -> str:
        it = self.declared
        return f"The {it.kind.lower()} {it.name}{f' of {it.system}' if it.system else ''}"

    def _problem(self, given: Given, before: Collection[str]) -> Problem | None:
        """What is wrong with an option behind others."""
        step, name, argument = self._step(given), _full(given), _argument(given)
        if step is None:
            return self._unknown(given)
        if name in before or argument in before or (name == argument and argument in map(_first, before)):
            return Problem(given.at, f"{given.name} is given twice.", "Keep one.")
        kinds = str(step.parameters[argument].annotation)
        if name != argument and not _WITH_ENTRIES.search(kinds):
            return Problem(given.at, f"{argument} has no entries.", f"Write {argument} with one value.")
        if name == argument and given.value is not None and _ENTRIES_ONLY.fullmatch(kinds):
            return Problem(
                given.at, f"{argument} has entries.", f"Write each, as in {argument}.name 'value'."
            )
        return _wrong_call(given.value) if isinstance(given.value, Call) else None

    def _step(self, given: Given) -> Step | None:
        name = _argument(given)
        return next((one for one in self.steps if name in one.parameters), None)

    def _unknown(self, given: Given) -> Problem:
        known = [name for step in self.steps for name in step.parameters]
        hint = nearest(given.name, [*known, *(short for short, name in _SHORT.items() if name in known)])
        if not hint:
            hint = f"It has {', '.join(known)}."
            hint += f" An option of Spark's is options.{given.name}." if "options" in known else ""
        return Problem(given.at, f"{self._subject} has no option {given.name}.", hint)


def _full(given: Given) -> str:
    """The name of an option with the argument's own name, in lower case as arguments are."""
    argument, dot, key = given.name.partition(".")
    argument = argument.lower()
    return f"{_SHORT.get(argument, argument)}{dot}{key}"


def _argument(given: Given) -> str:
    return _first(_full(given))


def _first(name: str) -> str:
    return name.partition(".")[0]


def _wrong_call(call: Call) -> Problem | None:
    """What is wrong with a call, as far as its name and its arguments' names tell."""
    known = _CALLS.get(call.function)
    if known is None:
        hint = f"There are {' and '.join(_CALLS)}; a list is in parentheses alone."
        message = f"No option is made by {call.function}(...)."
        return Problem(call.at, message, nearest(call.function, _CALLS) or hint)
    try:
        inspect.signature(known).bind(*call.arguments, **call.named)
    except TypeError as error:
        names = ", ".join(inspect.signature(known).parameters)
        return Problem(call.at, f"{call.function}(...): {error}.", f"It takes {names}.")
    return None


def _shown(name: str) -> str:
    return "a LOCATION" if name == "path" else f"the option {name}"


def _example(name: str) -> str:
    return "LOCATION 'out/results'" if name == "path" else f"OPTIONS ({name} '...')"


def _made(value: Any, parameter: inspect.Parameter) -> Any:
    """Return the value of an option as the argument takes it. In Spark an option may be a text where it is a number."""
    kinds = str(parameter.annotation)
    if isinstance(value, str) and re.search(r"\bbool\b", kinds) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, str) and re.search(r"\bint\b", kinds) and value.isdecimal():
        return int(value)
    return _CALLS[value.function](*value.arguments, **value.named) if isinstance(value, Call) else value
