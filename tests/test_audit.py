"""The audit of the locked packages tells "none are known" from "nothing is known about them"."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import audit
from scripts.licences import normalized

ROOT = Path(__file__).parent.parent
NAME, VERSION = audit.VULNERABLE
KNOWN = {"name": NAME, "version": VERSION, "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.4"]}]}
GOOD = {"name": "polars", "version": "2.1.0", "vulns": []}
BAD = {
    "name": "pillow",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2", "fix_versions": ["1.1"]}, {"id": "PYSEC-3", "fix_versions": []}],
}
SKIPPED = {"name": "numpy", "skip_reason": "Dependency not found"}


def program(directory: Path, code: str) -> Path:
    """Write a program that stands for pip-audit."""
    file = directory / "pip-audit"
    file.write_text(f"#!{sys.executable}\nimport json, sys\n{code}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def audited(stand_in: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run the script with a stand-in for pip-audit, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["audit", *options])
    with pytest.raises(SystemExit) as ended:
        audit.main(stand_in)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([KNOWN, GOOD], 0, "No known vulnerabilities in 1 locked packages."),
        ([KNOWN, GOOD, BAD], 1, "pillow 1.0: PYSEC-2, fixed in 1.1"),
        ([KNOWN, GOOD, BAD], 1, "pillow 1.0: PYSEC-3, fixed in no version"),
        ([KNOWN, GOOD, SKIPPED], 3, "NOT AUDITED: the service has no data on 1 of 2 locked packages: numpy."),
        (
            [KNOWN | {"vulns": []}, GOOD],
            3,
            f"NOT AUDITED: the service has no vulnerabilities, not even those of {NAME}",
        ),
        ([GOOD], 3, "NOT AUDITED: the service has no vulnerabilities"),
        ([{"name": NAME, "skip_reason": "Dependency not found"}, GOOD], 3, "NOT AUDITED"),
        ([KNOWN, BAD, SKIPPED], 1, "NOT AUDITED: the service has no data on 1 of 2"),
    ],
)
def test_success_means_that_every_package_was_looked_up(
    packages: list[dict[str, Any]], code: int, said: str
) -> None:
    found, message = audit.verdict(packages)
    assert found == code
    assert said in message


def test_a_long_list_of_unknown_packages_is_cut() -> None:
    many = [{"name": f"package-{number}", "skip_reason": "Dependency not found"} for number in range(100)]
    _, message = audit.verdict([KNOWN, *many])
    assert (
        "100 of 100 locked packages: package-0, package-1, package-2, package-3, package-4 and others."
        in message
    )


def test_the_package_with_known_vulnerabilities_is_not_locked() -> None:
    pins = audit.LOCKED.read_text(encoding="utf-8").splitlines()
    assert normalized(NAME) not in {normalized(pin.partition("==")[0]) for pin in pins}


def test_the_service_is_asked_about_all_locked_packages_and_a_vulnerable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script ends with the code for the answer, and passes options on."""
    told = tmp_path / "told.json"
    code = f"""
lists = [one.partition("=")[2] for one in sys.argv[1:] if one.startswith("--requirement=")]
json.dump([sys.argv[1:], [open(one).read() for one in lists]], open({str(told)!r}, "w"))
print(json.dumps({{"dependencies": {[KNOWN, GOOD]!r}, "fixes": []}}))
"""
    assert audited(program(tmp_path, code), monkeypatch, "--ignore-vuln", "PYSEC-9") == 0
    options, lists = json.loads(told.read_text(encoding="utf-8"))
    assert options[-2:] == ["--ignore-vuln", "PYSEC-9"]
    assert lists == [audit.LOCKED.read_text(encoding="utf-8"), f"{NAME}=={VERSION}"]
    assert "No known vulnerabilities" in capsys.readouterr().out


def test_a_service_that_is_not_reached_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of pip-audit's messages the last one is shown."""
    failing = program(tmp_path, "sys.exit('Traceback ...\\nConnectionError: no route')")
    assert audited(failing, monkeypatch) == audit.NOT_AUDITED
    said = capsys.readouterr().err
    assert "NOT AUDITED: pip-audit ended without a report.\nConnectionError: no route\n" in said
    assert "Traceback" not in said
