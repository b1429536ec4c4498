"""Columnar operators: a frame of changes in, a frame of changes out, without Spark."""
