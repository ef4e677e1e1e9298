"""Addresses of MQTT brokers: what can be used, and what would be right where it cannot."""

import pytest

from largesse.mqtt.address import AddressWrong, MqttAddress, read_address, read_password
from tests.secret_files import keep


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://broker", MqttAddress("broker", 1883)),
        ("mqtt://broker/", MqttAddress("broker", 1883)),
        ("mqtts://broker", MqttAddress("broker", 8883, is_tls=True)),
        ("mqtt://n1@10.0.0.7:1884", MqttAddress("10.0.0.7", 1884, "n1")),
        ("mqtts://rack1%20n3@edge.example.org", MqttAddress("edge.example.org", 8883, "rack1 n3", is_tls=True)),
        ("mqtt://n@1@broker", MqttAddress("broker", 1883, "n@1")),
        ("mqtt://[::1]:1884", MqttAddress("::1", 1884)),
        ("mqtt://[::1]", MqttAddress("::1", 1883)),
    ],
)
def test_an_address_is_read(url, address):
    assert read_address(url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://broker:9092", "is no MQTT broker"),
        ("mqtt:broker", "is no MQTT broker"),
        ("", "is no MQTT broker"),
        ("mqtt://", "has no host"),
        ("mqtt://n1@", "has no host"),
        ("mqtt://a b", "has no host"),
        ("mqtt://broker/path", "more than a host"),
        ("mqtt://[::1]1883", "more than a host"),
        ("mqtt://one,two", "more than a host"),
        ("mqtt://broker:", "has no port"),
        ("mqtt://broker:0", "has no port"),
        ("mqtt://broker:65536", "has no port"),
        ("mqtt://broker:http", "has no port"),
        ("mqtt://@broker", "has no user"),
        ("mqtt://n%0a@broker", "has no user"),
    ],
)
def test_what_is_no_address_says_what_would_be(url, reason):
    with pytest.raises(AddressWrong, match=reason) as caught:
        read_address(url)

    assert "mqtt[s]://[USER@]HOST[:PORT]" in str(caught.value)


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(AddressWrong, match="into a file") as caught:
        read_address("mqtt://n1:hunter2@broker")

    assert "hunter2" not in str(caught.value)


def test_a_place_says_nothing_of_the_user():
    assert read_address("mqtts://n1@[::1]:99").place == "mqtts://[::1]:99"


ADDRESS = MqttAddress("broker", 1883, "n1")


@pytest.mark.parametrize("written", [b"hunter2", b"hunter2\n", b"hunter2\r\n"])
def test_a_password_is_the_only_line_of_its_file(tmp_path, written):
    keep(tmp_path / "password", written)

    assert read_password(ADDRESS, str(tmp_path / "password")) == "hunter2"


@pytest.mark.parametrize("written", [b"", b"\n", b"hunter2\nmore\n", b"hunter2\0", b"\xffhunter2", b"hunter2" * 10_000])
def test_a_file_without_one_password_is_refused_and_not_repeated(tmp_path, written):
    keep(tmp_path / "password", written)

    with pytest.raises(AddressWrong, match="no password can be read from") as caught:
        read_password(ADDRESS, str(tmp_path / "password"))

    assert "hunter2" not in str(caught.value)


def test_a_password_needs_its_file_and_a_user(tmp_path):
    with pytest.raises(AddressWrong, match="No such file"):
        read_password(ADDRESS, str(tmp_path / "none"))
    with pytest.raises(AddressWrong, match="no user"):
        read_password(MqttAddress("broker", 1883), str(tmp_path / "none"))


def test_certificates_need_tls_and_have_to_be_there(tmp_path):
    with pytest.raises(AddressWrong, match="write mqtts://"):
        ADDRESS.tls_context("ca.pem")
    for written in (None, b"", b"no certificate"):
        if written is not None:
            (tmp_path / "ca.pem").write_bytes(written)
        with pytest.raises(AddressWrong, match=r"ca\.pem"):
            MqttAddress("broker", 8883, is_tls=True).tls_context(str(tmp_path / "ca.pem"))
