"""Directories of files: a source and a sink."""
