"""What many seeds add up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.points import POINTS
from tests.simulation.run import Result
from tests.simulation.world import Kind


@dataclass
class Report:
    """Sums over seeds.

    Attributes
    ----------
    failed
        The seeds that failed.
    """

    seeds: int = 0
    micro_batches: int = 0
    failed: list[int] = field(default_factory=list)
    faults: Counter[Kind] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, result: Result) -> None:
        """Add a seed."""
        self.seeds += 1
        self.micro_batches += result.micro_batches
        self.faults.update(result.faults)
        self.points.update(result.points)
        if result.problem is not None:
            self.failed.append(seed)

    def text(self, seconds: float) -> str:
        """Return the sums as text."""
        faults = [(kind.value, self.faults[kind]) for kind in Kind]
        points = [(point.name, self.points[point.name]) for point in POINTS]
        known = {name for name, _ in points}
        points += sorted(one for one in self.points.items() if one[0] not in known)
        sums = f"{self.seeds} seeds, {self.micro_batches} micro-batches, {self.faults.total()} faults"
        return "\n".join(
            [
                f"{sums} in {seconds:.0f} s: {self.seeds / seconds:.2f} seeds a second",
                "Faults:",
                *(f"  {number:>8}  {name}" for name, number in faults),
                "Points reached:",
                *(f"  {number:>8}  {name}" for name, number in points),
                f"Failed: {', '.join(map(str, self.failed)) or 'none'}",
            ]
        )
