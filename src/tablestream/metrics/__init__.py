"""Metrics of a query, per micro-batch, and their exporters."""
