"""Files of TLS: what is wrong with them is said at the start, and new ones count without a restart."""

import re
import ssl
import time
from contextlib import suppress

import pytest
import structlog

from largesse.settings import SettingWrong
from largesse.tls import LOOK_SECONDS, CertificateWrong, Followed, read_pair, server_tls
from tests.tls_files import tls_files

CERT, KEY = "LARGESSE_TLS_CERT_FILE", "LARGESSE_TLS_KEY_FILE"


def pair_of(environment):
    return read_pair("TLS_CERT_FILE", "TLS_KEY_FILE", environment)


@pytest.fixture
def files(tmp_path):
    return tls_files(tmp_path / "tls")


def fault(environment):
    with pytest.raises(SettingWrong) as caught:
        server_tls(pair_of(environment))
    return str(caught.value)


def test_without_files_there_is_no_tls():
    assert pair_of({}) is None


@pytest.mark.parametrize(("given", "missing"), [(CERT, KEY), (KEY, CERT)])
def test_a_certificate_and_its_key_go_together(given, missing):
    assert fault({given: "/a.pem"}) == f"{given}=/a.pem: a certificate and its key go together: set {missing}, too"


@pytest.mark.parametrize("variable", [CERT, KEY])
def test_a_file_that_is_not_there_is_named_with_its_variable(files, variable):
    env = files.env | {variable: "/nowhere/a.pem"}
    assert fault(env) == f"{variable}=/nowhere/a.pem: there is no such file: name one that there is"


@pytest.mark.parametrize("variable", [CERT, KEY])
def test_a_file_that_may_not_be_read_says_who_has_to_be_let(files, variable, monkeypatch):
    def closed(path, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("largesse.tls.Path.open", closed)
    said = fault(files.env)
    assert said.startswith(f"{CERT}={files.cert}: it cannot be read: let the user of this process read it")


@pytest.mark.parametrize("variable", [CERT, KEY])
def test_a_folder_is_no_file(files, variable):
    assert fault(files.env | {variable: str(files.folder)}).endswith(": it cannot be read: Is a directory")


def test_two_files_that_are_swapped_are_told(files):
    swapped = {CERT: str(files.key), KEY: str(files.cert)}
    said = fault(swapped)
    assert said.startswith(f"{CERT}={files.key}: has no CERTIFICATE in PEM")
    assert said.endswith("; it has a private key: the two files are swapped?")


def test_a_certificate_in_place_of_its_key_is_told(files):
    said = fault(files.env | {KEY: str(files.cert)})
    assert said.startswith(f"{KEY}={files.cert}: has no PRIVATE KEY in PEM")
    assert said.endswith("; it has certificates: the two files are swapped?")


def test_the_key_of_another_certificate_is_told(files, tmp_path):
    other = tls_files(tmp_path / "other")
    said = fault(files.env | {KEY: str(other.key)})
    assert said == (
        f"{KEY}={other.key}: it is not the key of the certificate in {CERT}={files.cert}: name the two that belong"
        " together"
    )


def test_a_certificate_that_has_expired_is_told_with_its_date(files):
    files.renew(days=-1, since_days=-9)
    said = fault(files.env)
    assert re.fullmatch(
        rf"{CERT}=\S+: the certificate expired on \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: put a new one in its place"
        r" \(and its key\)",
        said,
    )


def test_a_certificate_of_the_future_is_told_with_its_date(files):
    said = fault(files.renew(days=9, since_days=3).env)
    assert "the certificate is not valid before " in said
    assert said.endswith(": check the clock of this machine, or wait")


def test_a_key_with_a_passphrase_is_told_and_not_asked_for_on_the_terminal(files):
    files.key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
    assert "the key has a passphrase, which nobody can enter here: write it without (`openssl pkey" in fault(files.env)


@pytest.mark.parametrize("variable", [CERT, KEY])
def test_a_file_that_was_cut_off_is_told(files, variable):
    path = files.cert if variable == CERT else files.key
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert fault(files.env).startswith(f"{variable}={path}: ")


def test_a_file_that_is_far_too_large_is_not_read_whole(files):
    files.cert.write_bytes(b"-" * (2 << 20))
    assert fault(files.env) == f"{CERT}={files.cert}: it is larger than {1 << 20} bytes"


# ---------------------------------------------------------------- while it runs
class Clock:
    """Unix time that a test moves."""

    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


def shown(tls, trust, **client):
    """The serial number that a server shows in a handshake in memory. Raises SSLError, as the client has it."""
    context = trust()
    for name, value in client.items():
        setattr(context, name, value)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = tls.wrap_bio(to_server, to_client, server_side=True)
    ours = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(2):  # TLS 1.2 takes one round more.
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
        with suppress(ssl.SSLError):  # The client says why.
            theirs.do_handshake()
    ours.do_handshake()
    return ours.getpeercert()["serialNumber"]


def test_a_renewed_certificate_counts_for_the_next_connection(files):
    clock = Clock()
    tls = server_tls(pair_of(files.env), clock=clock)
    before = shown(tls, files.trust)
    files.renew()
    assert shown(tls, files.trust) == before  # Files are not looked at for every connection.
    clock.now += LOOK_SECONDS
    assert shown(tls, files.trust) != before


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param(lambda files: files.cert.write_text("nonsense"), "has no CERTIFICATE in PEM", id="no certificate"),
        pytest.param(lambda files: files.key.unlink(), "there is no such file", id="no key"),
        pytest.param(lambda files: files.renew(days=-1, since_days=-9), "the certificate expired on", id="expired"),
        pytest.param(
            lambda files: tls_files(files.folder / "other").key.replace(files.key),
            "it is not the key of the certificate",
            id="another's key",
        ),
    ],
)
def test_what_cannot_be_used_is_logged_once_and_the_one_before_goes_on(files, spoil, why):
    clock = Clock()
    tls = server_tls(pair_of(files.env), clock=clock)
    before = shown(tls, files.trust)
    spoil(files)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            clock.now += LOOK_SECONDS
            assert shown(tls, files.trust) == before
    assert [each["log_level"] for each in logged] == ["warning"]
    assert why in logged[0]["error"]

    files.renew()
    clock.now += LOOK_SECONDS
    assert shown(tls, files.trust) != before


def test_versions_before_tls_1_2_are_refused(files):
    tls = server_tls(pair_of(files.env))
    assert shown(tls, files.trust, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert shown(tls, files.trust, minimum_version=ssl.TLSVersion.TLSv1_3)

    def old():
        context = files.trust()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        return context

    with pytest.warns(DeprecationWarning, match="deprecated"), pytest.raises(ssl.SSLError) as caught:
        shown(tls, old, maximum_version=ssl.TLSVersion.TLSv1_1)
    assert caught.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_a_clock_that_is_set_back_does_not_stop_the_looking(files):
    made, clock, state = [], Clock(), [0]

    def make(now):
        made.append(now)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    followed = Followed(make, lambda: state[0], clock=clock)
    state[0], clock.now = 1, clock.now - 3_600
    followed.context()
    assert len(made) == 2


def test_a_fault_is_a_wrong_setting():
    assert issubclass(CertificateWrong, SettingWrong)
