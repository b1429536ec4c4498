"""Avro: the bytes of keys and values."""
