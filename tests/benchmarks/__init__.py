"""Tests of the benchmark's own parts; its figures are printed, never tested."""
