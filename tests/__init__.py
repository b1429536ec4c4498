"""Tests of tablestream; folders mirror the package."""
