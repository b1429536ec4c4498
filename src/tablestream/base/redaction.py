"""Texts without the secrets that they may hold, for messages, logs and explanations.

=========================================  ==============================================
in a text                                  is shown as
=========================================  ==============================================
``s3a://key:secret@bucket``                ``s3a://key:***@bucket``
``wasbs://box/dir?sig=abc&x=1``            ``wasbs://box/dir?sig=***&x=1``
``host=db password='a b' user=writer``     ``host=db password=*** user=writer``
=========================================  ==============================================

Where a password ends cannot be known if it has a raw ``@`` or ``/``: it is taken to end at the last ``@``.
"""

from __future__ import annotations

import re

_HIDDEN = "***"


def _password(user: str, password: str) -> re.Pattern[str]:
    """A user, a colon that no port follows, which buckets do not have, and a password up to the last @."""
    port = r"\d+(?:[/?#,\s'\"]|\Z)"
    return re.compile(rf"((?:(?<=s3)|(?<=s3[an]))://{user}:|://{user}:(?!{port})){password}@", re.DOTALL)


_PASSWORD = _password(r"[^\s/@:'\"]*", r"[^\s'\"]*")
#: The same in a text that is one URL: a password may have spaces and quotes.
_WHOLE_PASSWORD = _password("[^/@:]*", ".*")
_PARAMETER = re.compile(
    r"([?&;][\w.-]{0,40}(?:sig|secret|passw|passphrase|token|credential|(?:access|account|api)[._-]?key|sas)"
    r"[\w.-]{0,40}=)[^&;\s'\"]+",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"(\b(?:password|passwd|sslpassword|oauth_client_secret)\s*=\s*)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s'\"]+)",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Return a text without the secrets of URLs and connection strings in it.

    Examples
    --------
    >>> redacted("No such bucket: s3a://key:sec/r@t@bucket/dir.")
    'No such bucket: s3a://key:***@bucket/dir.'
    >>> redacted("hdfs://name:9000/a@b")
    'hdfs://name:9000/a@b'
    """
    if "://" in text and "@" in text:
        text = _PASSWORD.sub(rf"\1{_HIDDEN}@", text)
    if "=" in text:
        text = _SETTING.sub(rf"\1{_HIDDEN}", _PARAMETER.sub(rf"\1{_HIDDEN}", text))
    return text


def holds_secret(url: str) -> bool:
    """Whether a URL holds a secret, in whatever way it is written."""
    return any(pattern.search(url) for pattern in (_WHOLE_PASSWORD, _PARAMETER))
