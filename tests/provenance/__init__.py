"""Tests of `tablestream.provenance`."""
