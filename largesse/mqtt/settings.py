"""The MQTT broker that the environment names."""

import os
from collections.abc import Mapping

from largesse.mqtt.address import AddressWrong, read_address
from largesse.mqtt.port import Broker
from largesse.settings import PREFIX, SettingWrong

VARIABLES = {
    "MQTT_PASSWORD_FILE": ("none", "file with the password of the user in the address of the MQTT broker"),
    "MQTT_CA_FILE": ("the system's", "file with the certificates that are trusted for mqtts://"),
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
        )
        return ClientBroker(read_address(url), options)
    except AddressWrong as error:
        raise SettingWrong(f"{PREFIX}{variable}: {error}") from None
    except ModuleNotFoundError as error:
        raise SettingWrong(f"{PREFIX}{variable}: MQTT needs {error.name}: pip install largesse") from error
