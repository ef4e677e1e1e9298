"""How a bridge is set up, beside what all services have (largesse/settings.py)."""

import os
from collections.abc import Mapping

from largesse.mqtt.port import Broker
from largesse.mqtt.settings import VARIABLES as MQTT
from largesse.mqtt.settings import is_mqtt, open_broker
from largesse.mqtt.topics import NameWrong, up_filter
from largesse.settings import PREFIX, Settings, SettingWrong

VARIABLES = {
    "MQTT": ("mqtt://127.0.0.1:1883", "the MQTT broker of the nodes: mqtt://USER@HOST:PORT, or mqtts:// over TLS"),
    **MQTT,
}
"""What only a bridge reads, by name without the prefix: default and what it is."""


def read_broker(settings: Settings, environment: Mapping[str, str] | None = None) -> Broker:
    """The broker of a cell's nodes. Raises SettingWrong."""
    environment = os.environ if environment is None else environment
    try:
        up_filter(settings.cell)
    except NameWrong as error:
        raise SettingWrong(f"{PREFIX}CELL={settings.cell}: {error}") from None
    if is_mqtt(settings.bus):
        raise SettingWrong(f"{PREFIX}BUS={settings.bus}: has to be the bus of the cell, not the broker of its nodes")
    return open_broker("MQTT", environment.get(f"{PREFIX}MQTT") or VARIABLES["MQTT"][0], environment)
