"""Tests of the pictures of plans and of changes."""
