"""The gateway's port with TLS, and who asks it otherwise; and commands that are led to somebody else."""

import asyncio
import ssl
from contextlib import suppress

import pytest

from tests.attacks.gateway import attacked
from tests.attacks.listed import Attack, Target, check_names, ended, named
from tests.http_rig import HOST, request
from tests.tls_files import tls_files

TARGET = Target("The gateway: TLS", "A gateway with a certificate. Counted is in `largesse_http_refused_total`.")
REFUSED = {"refused": "handshake refused", "counted": "handshake"}


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    with attacked(tls_files(tmp_path_factory.mktemp("gateway") / "tls")) as found:
        yield found


async def spoken(cell, context, data=b""):
    """What is said by a client with this context; None: with none."""
    said, host = b"", f"{HOST}:{cell.served.port}"
    with suppress(ConnectionResetError):
        try:
            reader, writer = await asyncio.open_connection(HOST, cell.served.port, ssl=context)
        except ssl.SSLError:
            return "handshake refused"
        writer.write(data or request("GET", "/livez", host))
        said = await reader.read(1_000)
        writer.close()
    # Without TLS an alert of TLS is what comes, if anything does.
    return said.decode("latin-1") if said.startswith(b"HTTP") else "handshake refused"


def old(version, ciphers="ALL:@SECLEVEL=0"):
    async def story(cell):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers(ciphers)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
        return await spoken(cell, context)

    return story


async def plain(cell):
    return await spoken(cell, None)


async def nonsense(cell):
    return await spoken(cell, None, b"\x16\x03\x01" * 4_000)


ATTACKS = [
    Attack("plain HTTP to the port with TLS", plain, **REFUSED),
    Attack("what is neither HTTP nor TLS", nonsense, **REFUSED),
    Attack("down to TLS 1.1", old(ssl.TLSVersion.TLSv1_1), **REFUSED),
    Attack("down to a cipher that encrypts nothing", old(ssl.TLSVersion.TLSv1_2, "eNULL:@SECLEVEL=0"), **REFUSED),
    Attack("down to a cipher that proves nobody", old(ssl.TLSVersion.TLSv1_2, "aNULL:@SECLEVEL=0"), **REFUSED),
]
check_names(ATTACKS)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert ended(tried(attack)) == ended(attack)
