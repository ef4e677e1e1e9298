"""Where bridges are asked over HTTP, for who asks nodes over MQTT for what tasks printed or left."""

import os
from collections.abc import Mapping

from largesse.settings import PREFIX, SettingWrong
from schemas.edge.base import Malformed
from schemas.edge.nodes import check_address


def read_bridges(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """LARGESSE_BRIDGES. Raises SettingWrong."""
    text = (os.environ if environment is None else environment).get(f"{PREFIX}BRIDGES", "")
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for each in found:
        try:
            check_address(each, "")
        except Malformed as fault:
            raise SettingWrong(f"{PREFIX}BRIDGES={text}: {fault}") from None
    return found
