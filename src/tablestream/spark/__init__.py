"""The bridge to Spark: packing, stateful stages, and the run of a plan."""
