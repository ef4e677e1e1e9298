"""Why a cluster lets this process not in, or does not let it do something: what waiting does not mend, and what would.

aiokafka says of a connection that did not come about only that it did not. So where none does, one more is opened to
each broker here, and what went wrong with it is told in words, with the variable that it depends on.
"""

import asyncio
import ssl

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from largesse.bus.kafka.cluster import CA_FILE, MECHANISM, PASSWORD_FILE, PLAIN, TLS, USER, AccessWrong, Cluster
from largesse.bus.port import BusRefused

PROBE_MS = 5_000
PORT = 9_092
CLIENT = "largesse-why"

REFUSALS = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
"""What a broker answers where rights are missing."""

_UNTRUSTED = (18, 19, 20, 21)
"""OpenSSL's numbers: nobody who is trusted has signed it."""
_EXPIRED = (9, 10)
_OTHER_NAME = (62, 64)


def may_not(cluster: Cluster, do: str, what: str) -> BusRefused:
    """That this process lacks a right: `may_not(cluster, "write to", "topic grants")`."""
    who = "" if cluster.access.user else f", since {USER} is not set"
    return BusRefused(
        f"{cluster.url}: {cluster.principal} may not {do} {what}{who}. `python -m largesse.bus.kafka.topics_admin "
        f"--bootstrap {cluster.shown} --acls` gives each service its rights "
        f"(docs/kafka-rights.md); {USER} says as which one a process comes"
    )


async def why_not_let_in(cluster: Cluster) -> BusRefused | None:
    """Why no connection to this cluster will come about, however long one waits; None: waiting may help."""
    try:
        cluster.checked()
    except AccessWrong as error:
        return BusRefused(f"{cluster.url}: {error}")
    for broker in cluster.brokers.split(","):
        host, _, port = broker.rpartition(":")
        why = await _why(cluster, host.strip("[]"), int(port))
        if why:
            return BusRefused(f"{cluster.url}: {why}")
    return None


async def _why(cluster: Cluster, host: str, port: int) -> str:
    """What a broker has against a connection; empty: nothing that lasts."""
    try:
        connection = await _connection(host, port, cluster)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error, host, port)
    except SaslAuthenticationFailed:
        return (
            f"{host}:{port} does not let {cluster.principal} in: there is no such user, or {PASSWORD_FILE}="
            f"{cluster.access.password_file} is not its password"
        )
    except (UnsupportedSaslMechanismError, IllegalSaslStateError):
        return f"{host}:{port} takes no password by {MECHANISM}: leave {USER} out, or name the listener that takes it"
    except (OSError, KafkaError, TimeoutError):
        return await _other_language(cluster, host, port)
    try:
        async with asyncio.timeout(PROBE_MS / 1_000):
            await connection.send(MetadataRequest([]))
    except (OSError, KafkaError, TimeoutError):
        return "" if cluster.access.user else await _asks_for_user(cluster, host, port)
    finally:
        connection.close()
    return ""


def _untrusted(error: ssl.SSLCertVerificationError, host: str, port: int) -> str:
    said = f"the certificate of {host}:{port} does not count: {error.verify_message}"
    if error.verify_code in _UNTRUSTED:
        return f"{said}. {CA_FILE} names the file with the certificate of who has signed it"
    if error.verify_code in _EXPIRED:
        return f"{said}: it has to be renewed, or a clock is wrong"
    if error.verify_code in _OTHER_NAME:
        return f"{said}: the address has to be one of the names that the certificate is for"
    return said


async def _other_language(cluster: Cluster, host: str, port: int) -> str:
    """Whether TLS is spoken where it was not expected, or the other way round."""
    if cluster.is_tls:
        try:
            connection = await _connection(host, port, Cluster(cluster.brokers))
        except (OSError, KafkaError, TimeoutError):
            return ""
        connection.close()
        return f"{host}:{port} speaks no TLS: write {PLAIN}, or the port of its listener with TLS"
    if not await _speaks_tls(host, port):
        return ""
    return f"{host}:{port} speaks TLS: write {TLS} in place of {PLAIN}"


async def _speaks_tls(host: str, port: int) -> bool:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Nothing is told, so it does not matter whom.
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_MS / 1_000):
            _, writer = await asyncio.open_connection(host, port, ssl=anybody)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _asks_for_user(cluster: Cluster, host: str, port: int) -> str:
    """What to say of a broker that ends a connection as soon as it is asked anything, if it does so again."""
    try:
        connection = await _connection(host, port, cluster)
    except (OSError, KafkaError, TimeoutError):
        return ""
    connection.close()
    if not cluster.is_tls:
        return ""
    return f"{host}:{port} answers nobody without a password: {USER} and {PASSWORD_FILE} are not set"


async def _connection(host: str, port: int, cluster: Cluster) -> AIOKafkaConnection:
    options = cluster.options()
    return await create_conn(
        host,
        port,
        client_id=CLIENT,
        request_timeout_ms=PROBE_MS,
        **{name: value for name, value in options.items() if name != "bootstrap_servers"},
    )
