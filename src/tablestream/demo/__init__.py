"""The demonstration that ships with the library: change logs joined, displayed, checked by a batch join."""
