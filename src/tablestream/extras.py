"""How to install an extra: what each error about a missing package says."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Return the sentence. It holds for a clone, a wheel, and a package from an index.

    It does not say ``pip install 'tablestream[avro]'`` alone: where the library runs without being installed, as from a
    clone on the path, pip would look for that name in an index.

    Examples
    --------
    >>> print(install_hint("avro"))  # doctest: +NORMALIZE_WHITESPACE
    Install the extra 'avro' with: pip install 'FROM[avro]', where FROM is what you installed tablestream from: .
    (a clone), the path of a wheel, or the name tablestream (a package index).
    """
    return (
        f"Install the extra '{extra}' with: pip install 'FROM[{extra}]', where FROM is what you installed tablestream"
        " from: . (a clone), the path of a wheel, or the name tablestream (a package index)."
    )
