"""What skew does to shards: the busiest shard's share of a load whose keys follow Zipf's law.

``python -m benchmarks.skew``. The keys are numbered by their frequency, spread over shards by a hash, as rounds spread
them, and the shares of each shard's keys are added up. Nothing is drawn at random, so the figures are exact.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from benchmarks.report import opened_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Shares = npt.NDArray[np.float64]


def zipf_shares(keys: int, exponent: float) -> Shares:
    """Return the share of each key, the most frequent first.

    Examples
    --------
    >>> zipf_shares(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    shares: Shares = weights / weights.sum()
    return shares


def busiest_shard(shares: Shares, shards: int) -> float:
    """Return the share of the shard that has most, if a hash spreads the keys."""
    numbers = np.arange(len(shares), dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    # The mixing steps of SplitMix64.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    shard = ((numbers ^ (numbers >> np.uint64(31))) % np.uint64(shards)).astype(np.int64)
    return float(np.bincount(shard, weights=shares, minlength=shards).max())


def skew_table(keys: int, exponents: Sequence[float], shards: Sequence[int]) -> Table:
    """Show how many shards' worth of work the busiest shard does, and its share."""
    table = Table(
        title=f"The busiest shard of {keys:,} keys: share, and times the mean", title_justify="left"
    )
    table.add_column("exponent")
    for count in shards:
        table.add_column(f"{count:,} shards", justify="right")
    for exponent in exponents:
        shares = zipf_shares(keys, exponent)
        found = [busiest_shard(shares, count) for count in shards]
        cells = [f"{share:.2%}, {share * count:.1f}" for share, count in zip(found, shards, strict=True)]
        table.add_row(f"{exponent:g}", *cells)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skew", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000, metavar="N", help="10,000,000 by default")
    parser.add_argument("--exponents", type=float, nargs="+", default=[0.0, 0.5, 0.8, 1.0, 1.2], metavar="S")
    parser.add_argument("--shards", type=int, nargs="+", default=[16, 64, 256, 1024], metavar="N")
    options = parser.parse_args(arguments)
    opened_report().print(skew_table(options.keys, options.exponents, options.shards))


if __name__ == "__main__":
    main()
