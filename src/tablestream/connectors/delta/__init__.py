"""Delta Lake: a sink, and tables from change feeds."""
