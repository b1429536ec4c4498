"""Tests of `tablestream.testing`."""
