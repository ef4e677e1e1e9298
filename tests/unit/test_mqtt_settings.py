"""The MQTT broker that the environment names: what can be used, and which variable is at fault where it cannot."""

import pytest

from largesse.mqtt.client import ClientBroker, MqttOptions
from largesse.mqtt.settings import is_mqtt, open_broker
from largesse.settings import SettingWrong
from tests.secret_files import keep


def test_options_come_from_the_environment(tmp_path):
    keep(tmp_path / "secret", "hunter2\n")
    broker = open_broker(
        "BUS",
        "mqtt://n1@broker",
        {"LARGESSE_MQTT_PASSWORD_FILE": str(tmp_path / "secret"), "LARGESSE_MQTT_KEEP_ALIVE_S": "7"},
    )

    assert isinstance(broker, ClientBroker)
    assert broker.options == MqttOptions(keep_alive_seconds=7, password_file=str(tmp_path / "secret"))


def test_without_any_they_are_those_of_the_client():
    broker = open_broker("BUS", "mqtt://broker", {})

    assert isinstance(broker, ClientBroker)
    assert broker.options == MqttOptions()


@pytest.mark.parametrize(
    ("url", "variables", "reason"),
    [
        ("mqtt://", {}, "LARGESSE_BUS: has no host"),
        ("mqtt://n1@broker", {"MQTT_PASSWORD_FILE": "/nowhere"}, "no password can be read from /nowhere"),
        ("mqtts://broker", {"MQTT_CA_FILE": "/nowhere"}, "no certificates can be read from /nowhere"),
        ("mqtt://broker", {"MQTT_KEEP_ALIVE_S": "0"}, "LARGESSE_MQTT_KEEP_ALIVE_S=0: has to be"),
        ("mqtt://broker", {"MQTT_KEEP_ALIVE_S": "65536"}, "LARGESSE_MQTT_KEEP_ALIVE_S=65536: has to be"),
        ("mqtt://broker", {"MQTT_KEEP_ALIVE_S": "1.5"}, r"LARGESSE_MQTT_KEEP_ALIVE_S=1\.5: has to be"),
    ],
)
def test_what_cannot_be_used_is_named(url, variables, reason):
    with pytest.raises(SettingWrong, match=reason):
        open_broker("BUS", url, {f"LARGESSE_{name}": value for name, value in variables.items()})


def test_only_mqtt_is_mqtt():
    assert [is_mqtt(url) for url in ("mqtt://a", "mqtts://a", "kafka://a:1", "file:a")] == [True, True, False, False]
