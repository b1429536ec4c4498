"""No message shows a secret, however it is written."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tablestream as ts
from tablestream.base.redaction import holds_secret, redacted
from tablestream.errors import ArgumentError, TablestreamError

#: What may stand in a secret that nobody encoded.
AWKWARD = st.text(st.sampled_from("aZ09/@:?#&=+%. 'é\\\n"), min_size=1).map(lambda text: f"s3cr3t{text}3nd")
#: A message has a secret in one word: without spaces and quotes.
WORD = AWKWARD.map(lambda text: "".join(one for one in text if one not in " '\n"))


@given(awkward=AWKWARD)
@example(awkward="s3cr3t/3nd")
@example(awkward="s3cr3t@3nd")
def test_a_path_with_a_secret_is_refused_and_not_shown(awkward: str) -> None:
    for url in (
        f"s3a://KEY:{awkward}@bucket/dir",
        f"s3a://:{awkward}@bucket",
        f"wasbs://box/dir?sig={awkward}",
    ):
        assert holds_secret(url), url
        with pytest.raises(ArgumentError, match="contains a secret") as caught:
            ts.to_files(url)
        assert "s3cr3t" not in str(caught.value)


@given(awkward=WORD)
@example(awkward="s3cr3t/r@t:3nd")
def test_an_error_shows_no_secret_of_a_url(awkward: str) -> None:
    error = TablestreamError(
        f"No such place: s3a://KEY:{awkward}@bucket/dir (403).", hint=f"See s3a://a:{awkward}@b."
    )
    for shown in (str(error), error.reason, error.hint, str(pickle.loads(pickle.dumps(error)))):  # noqa: S301
        assert "s3cr3t" not in shown
        assert "3nd" not in shown
    assert "s3a://KEY:***@bucket/dir (403)." in str(error)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db password=s3cr3t user=me", "host=db password=*** user=me"),
        (r"host=db password='s3 cr\'3t' user=me", "host=db password=*** user=me"),
        ('PASSWORD = "s3 cr3t"; user=me', "PASSWORD = ***; user=me"),
        ("https://box/x?SIG=s3cr3t&a=1", "https://box/x?SIG=***&a=1"),
        ("https://box/x?a=1&access_key=s3cr3t", "https://box/x?a=1&access_key=***"),
        ("https://box/x?X-Amz-Signature=s3cr3t#top", "https://box/x?X-Amz-Signature=***"),
        ("host=db password  =  s3cr3t user=me", "host=db password  =  *** user=me"),
        (
            "Protocol=https;AccountName=me;AccountKey=s3cr3t==;x",
            "Protocol=https;AccountName=me;AccountKey=***;x",
        ),
        ("s3a://KEY:12/s3cr3t@bucket", "s3a://KEY:***@bucket"),
        ("s3://KEY:12/s3cr3t@bucket", "s3://KEY:***@bucket"),
        ("postgresql://me:s3cr3t@db:5432/shop", "postgresql://me:***@db:5432/shop"),
    ],
)
def test_what_a_text_shows_of_a_secret(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://name:9000/dir@home/x:y",
        "s3a://bucket/a@b",
        "abfss://box@account.dfs.core.windows.net/dir",
        "file:///tmp/x:y@z",
        "https://box:8080?page=1&size=2",
        "The column 'token' = 5: 'signature'.",
        "kafka://one:9092,two:9092/topic",
    ],
)
def test_what_holds_no_secret_stays(text: str) -> None:
    assert redacted(text) == text
    assert not holds_secret(text)


@pytest.mark.parametrize("text", ["a" * 200_000 + "://", "?" + "sig" * 100_000 + "=", "a://b:1" * 50_000])
def test_a_long_text_takes_no_long_time(text: str) -> None:
    assert redacted(text) == text  # in linear time: otherwise each takes minutes
