"""Which Kafka cluster, and as whom: what the address and the variables say, and what is wrong with them."""

import pytest

from largesse.bus.kafka.cluster import CA_FILE, PASSWORD_FILE, USER, Access, AccessWrong, BusUrlWrong, cluster_of
from largesse.bus.open import open_bus
from largesse.settings import SettingWrong, read_settings
from largesse.settings import open_bus as open_bus_of
from tests.secret_files import keep

PASSWORD = "open sesame"


@pytest.fixture
def password(tmp_path) -> str:
    path = tmp_path / "password"
    keep(path, f"{PASSWORD}\n")
    return str(path)


def test_without_tls_nobody_is_named_and_nothing_is_encrypted():
    cluster = cluster_of("kafka://one:9092,[::1]:9093/", Access())

    assert cluster.options() == {"bootstrap_servers": "one:9092,[::1]:9093", "security_protocol": "PLAINTEXT"}
    assert cluster.principal == "User:ANONYMOUS"


def test_over_tls_a_user_comes_with_a_password_that_is_no_part_of_any_text(password):
    cluster = cluster_of("kafkas://one:9093", Access("gateway", password))
    options = cluster.options()

    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert options["sasl_plain_username"] == "gateway"
    assert options["ssl_context"].check_hostname
    assert PASSWORD not in repr(cluster) + cluster.url + repr(options)


def test_tls_alone_names_nobody():
    assert cluster_of("kafkas://one:9093", Access()).options()["security_protocol"] == "SSL"


def test_a_password_is_read_again_for_each_connection(password, tmp_path):
    given = cluster_of("kafkas://one:9093", Access("gateway", password)).options()["sasl_plain_password"]
    assert given.encode("utf-8") == PASSWORD.encode()

    keep(tmp_path / "password", "another one")
    assert given.encode("utf-8") == b"another one"

    (tmp_path / "password").unlink()
    with pytest.raises(OSError, match="no password can be read"):
        given.encode("utf-8")


@pytest.mark.parametrize(
    ("url", "access", "named"),
    [
        pytest.param("kafka://h:1", Access("gateway", "{password}"), f"{USER}=gateway.*kafkas://", id="user, no TLS"),
        pytest.param("kafka://h:1", Access(ca_file="x"), f"{CA_FILE}=x.*kafkas://", id="certificates, no TLS"),
        pytest.param("kafkas://h:1", Access("gateway"), PASSWORD_FILE, id="no password"),
        pytest.param("kafkas://h:1", Access("", "{password}"), f"{PASSWORD_FILE}=.*{USER}", id="no user"),
        pytest.param("kafkas://h:1", Access("a b", "{password}"), f"{USER}='a b'", id="no name"),
        pytest.param("kafkas://h:1", Access("a", "/no/file"), f"{PASSWORD_FILE}.*/no/file", id="no file"),
        pytest.param("kafkas://h:1", Access("a", "{empty}"), f"{PASSWORD_FILE}.*only line", id="an empty file"),
        pytest.param("kafkas://h:1", Access(ca_file="/no/file"), f"{CA_FILE}=/no/file.*No such", id="no certificates"),
        pytest.param("kafkas://h:1", Access(ca_file="{password}"), f"{CA_FILE}=.*no certificates", id="none in it"),
    ],
)
def test_what_cannot_be_used_is_refused_by_the_name_of_its_variable(url, access, named, password, tmp_path):
    keep(tmp_path / "empty", "\n")
    files = {"password": password, "empty": str(tmp_path / "empty")}
    access = Access(*(getattr(access, name).format(**files) for name in ("user", "password_file", "ca_file")))

    with pytest.raises(AccessWrong, match=named) as refused:
        cluster_of(url, access)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("url", ["kafkas:one:9093", "kafkas://", "kafkas://one", "kafkas://u@one:9093", "tls://one:1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BusUrlWrong, match="write"):
        cluster_of(url, Access())


def test_services_and_commands_read_the_same_variables(password, monkeypatch):
    environment = {"LARGESSE_BUS": "kafkas://h:1", USER: "gateway", PASSWORD_FILE: password, CA_FILE: "/no/file"}

    with pytest.raises(SettingWrong, match=f"^{CA_FILE}=/no/file"):
        open_bus_of(read_settings(environment))
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(BusUrlWrong, match=f"^{CA_FILE}=/no/file"):
        open_bus("kafkas://h:1")
