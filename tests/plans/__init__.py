"""Tests of whole plans, without Spark."""
