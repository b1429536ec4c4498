"""A broker that wants a password, over TLS, with keys and certificates of its own."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.broker.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USER = "me"


def keytool(directory: Path, *arguments: str) -> None:
    subprocess.run(["keytool", *arguments], cwd=directory, check=True, capture_output=True)


def make_stores(directory: Path, password: str) -> None:
    """Make a key and a certificate for 127.0.0.1, and what clients trust: as a store, and as text."""
    key = ["-keystore", "key.p12", "-storepass", password, "-alias", "broker"]
    name = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "2", "-keyalg", "EC"]
    keytool(directory, "-genkeypair", *key, *name)
    keytool(directory, "-exportcert", *key, "-rfc", "-file", "broker.pem")
    trust = ["-keystore", "trust.p12", "-storepass", password, "-alias", "broker"]
    keytool(directory, "-importcert", *trust, "-file", "broker.pem", "-noprompt")


@contextmanager
def secured_broker(jars: Path, directory: Path, password: str) -> Iterator[KafkaBroker]:
    """Run a broker that lets in who has the password; `directory` then has the stores."""
    make_stores(directory, password)
    settings = {
        "ssl.keystore.location": str(directory / "key.p12"),
        "ssl.keystore.password": password,
        "ssl.truststore.location": str(directory / "trust.p12"),
        "ssl.truststore.password": password,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{LOGIN} username="{USER}" password="{password}" user_{USER}="{password}";'
        ),
    }
    with KafkaBroker(jars, settings=settings, protocol="SASL_SSL") as broker:
        yield broker


def client_settings(directory: Path, password: str) -> dict[str, str]:
    """Settings of a client that is not Spark's."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": str(directory / "broker.pem"),
    }


def options(directory: Path, password: str, store_password: str) -> dict[str, str]:
    """Options of `from_kafka` and `kafka`; those that are not needed are secrets as well."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} username="{USER}" password="{password}";',
        "kafka.ssl.truststore.location": str(directory / "trust.p12"),
        "kafka.ssl.truststore.password": store_password,
        "kafka.ssl.keystore.location": str(directory / "key.p12"),
        "kafka.ssl.keystore.password": store_password,
        "kafka.ssl.key.password": store_password,
    }
