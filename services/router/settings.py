"""What only the router reads from the environment: how it decides. It becomes a record, so that its log says it."""

import os
from collections.abc import Mapping
from dataclasses import fields

from largesse.settings import PREFIX, SettingWrong
from schemas.routes import RouterSet

LEASE_LEAST_MS = 5_000
GAIN_MOST = 1_000

VARIABLES = {
    "ROUTER_LEASE_MS": ("30000", "for so long a cell may admit a job that was sent to it; after that it is sent again"),
    "ROUTER_MOVE_AFTER_MS": ("60000", "a job that waits in a cell for so long may move to a better one; 0: none moves"),
    "ROUTER_MOVE_GAP_MS": ("600000", "least time between two moves of a job"),
    "ROUTER_MOVE_GAIN_PERMILLE": ("300", "by so much the load of the better cell has to be smaller"),
}
"""By name without the prefix: default and what it is."""


def read_knobs(environment: Mapping[str, str] | None = None) -> RouterSet:
    """How the router decides. Raises SettingWrong."""
    environment = os.environ if environment is None else environment
    knobs = RouterSet()
    for knob in fields(RouterSet):
        name = f"{PREFIX}ROUTER_{knob.name.upper()}"
        text = environment.get(name)
        if text is None:
            continue
        if not text.isdecimal():
            raise SettingWrong(f"{name}={text}: has to be a whole number")
        setattr(knobs, knob.name, int(text))
    if knobs.lease_ms < LEASE_LEAST_MS:
        raise SettingWrong(f"{PREFIX}ROUTER_LEASE_MS={knobs.lease_ms}: has to be at least {LEASE_LEAST_MS}")
    if knobs.move_gain_permille > GAIN_MOST:
        raise SettingWrong(f"{PREFIX}ROUTER_MOVE_GAIN_PERMILLE={knobs.move_gain_permille}: has to be 0 to {GAIN_MOST}")
    return knobs
