"""Buffers: operators that hold rows until a time comes, and read only the rows that are due."""
