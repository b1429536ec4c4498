"""The console: a sink."""
