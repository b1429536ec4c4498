"""The benchmark behind ``make bench``: rates and memory of the foreign-key join, beside other ways."""
