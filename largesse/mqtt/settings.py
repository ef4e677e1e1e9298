"""The MQTT broker that the environment names."""

import os
from collections.abc import Mapping

from largesse.mqtt.address import AddressWrong, read_address
from largesse.mqtt.port import Broker
from largesse.settings import PREFIX, SettingWrong

KEEP_ALIVE_S_MAX = 65_535
VARIABLES = {
    "MQTT_PASSWORD_FILE": ("none", "file with the password of the user in the address of the MQTT broker"),
    "MQTT_CA_FILE": ("the system's", "file with the certificates that are trusted for mqtts://"),
    "MQTT_KEEP_ALIVE_S": (
        "3",
        "seconds of silence after which broker and client ask for each other; well below the lease",
    ),
}
"""By name without the prefix: default and what it is."""


def is_mqtt(url: str) -> bool:
    """Whether an address names an MQTT broker."""
    return url.startswith(("mqtt:", "mqtts:"))


def open_broker(variable: str, url: str, environment: Mapping[str, str] | None = None) -> Broker:
    """The broker at `url`, which stands in `variable` (without the prefix). Raises SettingWrong."""
    environment = os.environ if environment is None else environment
    try:
        # Only who uses MQTT needs its client installed.
        from largesse.mqtt.client import ClientBroker, MqttOptions

        options = MqttOptions(
            ca_file=environment.get(f"{PREFIX}MQTT_CA_FILE", ""),
            password_file=environment.get(f"{PREFIX}MQTT_PASSWORD_FILE", ""),
            keep_alive_seconds=_keep_alive_seconds(environment),
        )
        return ClientBroker(read_address(url), options)
    except AddressWrong as error:
        raise SettingWrong(f"{PREFIX}{variable}: {error}") from None
    except ModuleNotFoundError as error:
        raise SettingWrong(f"{PREFIX}{variable}: MQTT needs {error.name}: pip install largesse") from error


def _keep_alive_seconds(environment: Mapping[str, str]) -> int:
    name = f"{PREFIX}MQTT_KEEP_ALIVE_S"
    text = environment.get(name) or VARIABLES["MQTT_KEEP_ALIVE_S"][0]
    if not text.isdecimal() or not 1 <= int(text) <= KEEP_ALIVE_S_MAX:
        raise SettingWrong(f"{name}={text}: has to be a whole number of seconds from 1 to {KEEP_ALIVE_S_MAX}")
    return int(text)
