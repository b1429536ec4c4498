"""What the benchmark of skew computes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.skew import busiest_shard, main, zipf_shares


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_shares_add_up_and_fall(exponent: float) -> None:
    shares = zipf_shares(10_000, exponent)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 0).all()


def test_equal_keys_are_spread_evenly() -> None:
    assert 1 / 16 <= busiest_shard(zipf_shares(1_000_000, 0), 16) < 1.02 / 16


def test_one_key_makes_its_shard_the_busiest() -> None:
    shares = np.array([0.5, *[0.5 / 9999] * 9999])
    assert busiest_shard(shares, 16) == pytest.approx(0.5 + 0.5 / 16, abs=0.005)
    assert busiest_shard(shares, 1) == pytest.approx(1)


def test_the_program_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--keys", "1000", "--exponents", "0", "1", "--shards", "1", "4"])
    printed = capsys.readouterr().out
    assert "1,000 keys" in printed
    assert printed.count("100.00%, 1.0") == 2
