"""The manifest: JSON that says what a shard holds, and refuses what it does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tablestream.errors import DamagedStateError, StateError
from tablestream.state import manifest as manifests
from tablestream.state.manifest import Manifest
from tablestream.state.run import ChunkInfo, RunInfo, checksum

CHUNKS = (ChunkInfo(2, 300, "ab" * 16, -(2**63), 5), ChunkInfo(1, 200, "cd" * 16, 5, 2**63 - 1))
FULL = Manifest("f00d", 9, {"left": (RunInfo(3, 3, 1, CHUNKS), RunInfo(8, 1, 0, CHUNKS[1:]))}, {"left": -7})


def test_what_is_written_is_read() -> None:
    assert manifests.decode(manifests.encode(FULL)) == FULL
    assert manifests.decode(manifests.encode(Manifest("f00d"))) == Manifest("f00d")


def parts(manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The head and the content."""
    head, content = manifests.encode(manifest).splitlines()
    return json.loads(head), json.loads(content)


def forged(head: dict[str, Any], content: dict[str, Any]) -> bytes:
    """A manifest with the right checksum, whatever it says."""
    text = json.dumps(content).encode()
    return json.dumps({"checksum": checksum(text), **head}).encode() + b"\n" + text


def test_it_is_json_with_a_version() -> None:
    head, document = parts(FULL)
    assert head["version"] == manifests.FORMAT_VERSION == 2
    assert document["traces"]["left"][0] == [
        3,
        3,
        1,
        [[2, 300, "ab" * 16, -(2**63), 5], [1, 200, "cd" * 16, 5, 2**63 - 1]],
    ]


def test_equal_manifests_give_equal_bytes() -> None:
    one = Manifest("f00d").with_clock("a", 1).with_clock("b", 2)
    other = Manifest("f00d").with_clock("b", 2).with_clock("a", 1)
    assert manifests.encode(one) == manifests.encode(other)


def test_it_is_never_changed_in_place() -> None:
    before = manifests.encode(FULL)
    changed = FULL.with_runs("left", ()).with_clock("left", 0).with_next_run()
    assert manifests.encode(FULL) == before
    assert changed == Manifest("f00d", 10, {}, {"left": 0})
    assert (FULL.runs("left")[1].number, FULL.runs("other")) == (8, ())


@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("version", [0, 1, "1.5"])
def test_an_unknown_version_is_refused_by_name(version: object, is_repeated: bool) -> None:
    """Whether its content repeats the version, or was written before contents did."""
    content = parts(FULL)[1] | {"version": version}
    if not is_repeated:
        del content["version"]
    with pytest.raises(StateError, match="this tablestream reads version 2") as caught:
        manifests.decode(forged({"version": version}, content))
    assert not isinstance(caught.value, DamagedStateError)
    assert f"format version {version!r}" in str(caught.value)
    assert "the version of tablestream that wrote the checkpoint" in str(caught.value)


def test_a_later_version_under_the_number_of_this_one_is_damage() -> None:
    """One bit makes a 2 of a 3."""
    head, content = parts(FULL)
    with pytest.raises(DamagedStateError, match="its version is not that of its content"):
        manifests.decode(forged({"version": head["version"]}, content | {"version": 3}))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x04", b"[]", b"{}", b"null", b'{"version":2}', manifests.encode(FULL)[:-9], b"[" * 100_000],
    ids=["empty", "bytes", "list", "object", "null", "bare", "cut short", "deep"],
)
def test_what_is_no_manifest_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedStateError, match="The manifest in the state of record cannot be read"):
        manifests.decode(data)


@pytest.mark.parametrize("traces", [{"left": [[1, 2, 3]]}, {"left": 5}, [1], {"left": [[1, 2, 3, [[1]]]]}])
def test_runs_of_another_shape_are_damage(traces: object) -> None:
    head, content = parts(FULL)
    with pytest.raises(DamagedStateError, match="cannot be read"):
        manifests.decode(forged({"version": head["version"]}, {**content, "traces": traces}))


def test_no_flipped_bit_is_believed() -> None:
    """Of a clock or a number of rows, as little as of the version or of what makes it JSON."""
    whole = manifests.encode(FULL)
    for place in range(8 * len(whole)):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(DamagedStateError):
            manifests.decode(bytes(data))


@given(st.integers(0, len(manifests.encode(FULL)) - 1), st.binary(max_size=3))
def test_other_bytes_are_damage_or_another_version(at: int, others: bytes) -> None:
    """Any digit counts: a run's number, a clock, a number of rows."""
    whole = manifests.encode(FULL)
    assume(whole[at : at + 1] != others)
    try:
        found = manifests.decode(whole[:at] + others + whole[at + 1 :])
    except StateError:
        return
    assert found == FULL  # a blank in the head, which is JSON


@given(st.binary(max_size=200))
def test_any_bytes_are_no_manifest(data: bytes) -> None:
    with pytest.raises(StateError):
        manifests.decode(data)
