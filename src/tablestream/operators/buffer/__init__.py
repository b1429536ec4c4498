"""Buffers: operators that hold rows until their time comes, and read only the rows that are due."""
