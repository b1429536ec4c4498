"""The pages of errors have each code, and their examples raise just that code, with the message that the pages show."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablestream import errors
from tests.pages import DOCS, Example, Program, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = ("errors/README.md", "errors/building.md", "errors/starting.md", "errors/running.md")
TEXT = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
HEADING = r"^## `(TABLESTREAM_\w+)`$"
_, *PARTS = re.split(HEADING, TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
#: Errors that take a server, or damage.
WITHOUT_EXAMPLE = {
    errors.RecordEncodingError.code,
    errors.DamagedStateError.code,
    errors.DamagedMessagesError.code,
}
STORE = "spark.sql.streaming.stateStore.providerClass"


def message(error: Exception) -> str:
    """Return an error's message, taken out of what Spark wraps around that of a worker."""
    if isinstance(error, errors.QueryFailedError):
        return str(error).partition("\n")[0]
    if isinstance(error, errors.TablestreamError):
        return str(error)
    found = re.search(r"\[TABLESTREAM_\w+\].*", str(error))
    return found.group() if found else repr(error)


def codes() -> set[str]:
    """Return the code of every error but the base class."""
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    found = {one.code for one in classes if issubclass(one, errors.TablestreamError)}
    return found - {errors.TablestreamError.code}


def test_every_code_has_a_section_and_no_other_has() -> None:
    assert set(SECTIONS) == codes()
    assert len(PARTS) == 2 * len(SECTIONS)


@pytest.mark.parametrize("code", sorted(SECTIONS))
def test_every_section_says_what_to_do_and_has_an_example(code: str) -> None:
    assert "\n**Do** " in SECTIONS[code]
    assert len(examples(SECTIONS[code])) == (0 if code in WITHOUT_EXAMPLE else 1)
    assert all(part.shown for part in examples(SECTIONS[code]))


def hintless() -> set[str]:
    """Return the kinds of errors that are raised anywhere without a hint, or with an empty one."""
    kinds = {name for name, one in vars(errors).items() if isinstance(one, type)}
    found = set()
    for file in Path(errors.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds:
                hints = [one.value for one in call.keywords if one.arg in {"hint", None}]
                if not hints or (isinstance(hints[0], ast.Constant) and not hints[0].value):
                    found.add(call.func.id)
    return found


def test_every_error_has_a_hint_but_what_repeats_the_words_of_others() -> None:
    assert hintless() == {"RegistryError", "QueryFailedError"}


def raised(program: Program, example: Example) -> str:
    """Run an example that raises, and return its message as a page shows it."""
    try:
        program.run(example.code)
    except Exception as error:  # noqa: BLE001 - of any class: the message tells which
        return program.shown(message(error))
    return "nothing"


def test_every_example_raises_its_code_with_the_message_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = spark.conf.get(STORE)
    program = Program(spark, tmp_path)
    program.run(examples(TEXT)[0].code)
    differing = []
    for code, section in SECTIONS.items():
        for example in examples(section):
            found = raised(program, example)
            spark.conf.set(STORE, str(store))
            if not found.startswith(f"[{code}]") or found != example.shown:
                differing.append((code, found, example.shown))
    assert differing == []
