"""How to install an extra: what each error about a missing package says."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Return the sentence. It holds for a clone, a wheel, and a package from an index.

    It does not say ``pip install 'tablestream[avro]'`` alone: where the library runs without being installed, as from a
    clone on the path, pip would look for that name in an index.

    Examples
    --------
    >>> print(install_hint("avro"))  # doctest: +NORMALIZE_WHITESPACE
    Install the extra 'avro': pip install '.[avro]' in a clone, pip install 'PATH.whl[avro]' with the path of a wheel,
    or pip install 'tablestream[avro]' if it came from a package index.
    """
    return (
        f"Install the extra '{extra}': pip install '.[{extra}]' in a clone, pip install 'PATH.whl[{extra}]' with the"
        f" path of a wheel, or pip install 'tablestream[{extra}]' if it came from a package index."
    )
