"""Test a topology without a streaming query: a driver, comparisons, and frames without a source."""

from tablestream.testing.comparing import assert_changes_equal
from tablestream.testing.driver import Driver
from tablestream.testing.frames import frame
from tablestream.testing.rows import Rows

__all__ = ["Driver", "Rows", "assert_changes_equal", "frame"]
