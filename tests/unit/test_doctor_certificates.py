"""`largesse doctor` and certificates: which hold, for how long and for which names, and who else reads secrets."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from services.cli.doctor.certificates import SOON_DAYS, of_certificates, of_gateways_certificate
from tests.secret_files import keep
from tests.tls_files import tls_files
from tests.unit.cli_here import largesse
from tests.unit.stub_server import serving
from tests.unit.test_cli_tokens import Stub

NOW = datetime.now(UTC)


def peer(files, **more):
    return {
        "LARGESSE_PEER_CERT_FILE": str(files.cert),
        "LARGESSE_PEER_KEY_FILE": str(files.key),
        "LARGESSE_PEER_CA_FILE": str(files.ca),
        **{f"LARGESSE_{name.upper()}": text for name, text in more.items()},
    }


def end_of(path):
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def levels(environment, now=NOW):
    return [(each.level, each.area) for each in of_certificates(environment, now)]


def texts(environment, level, now=NOW):
    return [each.text for each in of_certificates(environment, now) if each.level == level]


@pytest.fixture
def files(tmp_path):
    return tls_files(tmp_path / "tls", days=90)


def test_where_nothing_is_named_nothing_is_said():
    assert levels({}) == []


def test_what_holds_is_fine_and_its_end_is_told(files):
    assert levels(files.env | peer(files)) == [("ok", "certificates")] * 3
    assert texts(files.env, "ok") == [
        f"LARGESSE_TLS_CERT_FILE={files.cert}: it holds until {end_of(files.cert):%Y-%m-%d}"
    ]


@pytest.mark.parametrize(
    ("days", "level"), [(90 - SOON_DAYS - 1, "ok"), (90 - SOON_DAYS + 1, "warn"), (89, "warn"), (91, "bad")]
)
def test_the_end_of_a_certificate_is_judged_by_how_near_it_is(files, days, level):
    assert levels(files.env, NOW + timedelta(days)) == [(level, "certificates")]


def test_files_that_a_service_would_not_start_with_are_named(files, tmp_path):
    other = tls_files(tmp_path / "other")
    wrong = files.env | {"LARGESSE_TLS_KEY_FILE": str(other.key)}
    assert "is not the key of the certificate" in texts(wrong, "bad")[0]
    assert "no such file" in texts({**files.env, "LARGESSE_TLS_CERT_FILE": "/nowhere"}, "bad")[0]
    assert "go together" in texts({"LARGESSE_TLS_CERT_FILE": str(files.cert)}, "bad")[0]
    files.key.chmod(0o644)
    assert "everybody on this machine may read it" in texts(files.env, "bad")[0]


def test_names_under_which_a_process_is_asked_have_to_be_in_its_certificate(tmp_path):
    files = tls_files(tmp_path / "tls", "*.cell.example", "10.0.0.7", days=90)

    assert texts(peer(files, advertise="n1.cell.example:9464"), "warn") == []
    assert texts(peer(files, advertise="https://10.0.0.7:9464"), "warn") == []
    (said,) = texts(peer(files, advertise="n1.other.example:9464"), "warn")
    assert said.endswith(": it is for *.cell.example, 10.0.0.7, and not for n1.other.example (LARGESSE_ADVERTISE)")
    (said,) = texts(peer(files, peer_name="peer", advertise="n1.cell.example:9464"), "warn")
    assert said.endswith("not for peer (LARGESSE_PEER_NAME)")
    hosts = files.env | {"LARGESSE_HTTP_HOSTS": "a.cell.example, gateway"}
    assert [each.rpartition(" and ")[2] for each in texts(hosts, "warn")] == ["not for gateway (LARGESSE_HTTP_HOSTS)"]


def test_authorities_end_too_and_have_to_be_readable(files, tmp_path):
    assert levels({"LARGESSE_CA_FILE": str(files.ca)}) == [("ok", "certificates")]
    (tmp_path / "no.pem").write_text("nonsense")
    for path in (tmp_path / "no.pem", "/nowhere"):
        assert levels({"LARGESSE_CA_FILE": str(path)}) == [("bad", "certificates")]


@pytest.mark.parametrize("variable", ["TOKEN_FILE", "KAFKA_PASSWORD_FILE", "MQTT_PASSWORD_FILE"])
def test_secrets_that_everybody_may_read_are_told(tmp_path, variable):
    path = keep(tmp_path / "secret", "hunter2\n")
    name = f"LARGESSE_{variable}"

    assert levels({name: str(path)}) == [("ok", "secrets")]
    path.chmod(0o644)
    ((level, said),) = [(each.level, each.text) for each in of_certificates({name: str(path)})]
    assert (level, f"{name}={path}: everybody on this machine may read it" in said) == ("bad", True)
    assert "hunter2" not in said
    assert levels({name: "/nowhere"}) == [("bad", "secrets")]


def test_the_certificate_that_a_gateway_shows_is_looked_at(files, monkeypatch):
    monkeypatch.setenv("LARGESSE_CA_FILE", str(files.ca))
    with serving(Stub(), tls=files.serving()) as url:
        found = [list(of_gateways_certificate(url, NOW + timedelta(days))) for days in (0, 80)]
    assert [each[0].level for each in found] == ["ok", "warn"]
    assert found[0][0].text.startswith(f"the certificate of {url}: it holds until ")
    assert list(of_gateways_certificate("http://127.0.0.1:1")) == []


def test_the_command_says_it(files):
    files.renew(days=5)
    said = largesse("doctor", "--url", "http://127.0.0.1:1", columns=300, **files.env)

    assert f"look at  certificates: LARGESSE_TLS_CERT_FILE={files.cert}: it holds until " in said.out
    assert ", for 4 days more" in said.out
