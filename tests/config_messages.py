"""Messages of the config topic as tests send them."""

import pytest

from schemas.edge.read import ConfigPatch, Malformed, read_input

CONTRADICTIONS = [
    pytest.param(
        {"reserve_ratio_permille_min": 600},
        "reserve_ratio_permille_min",
        "reserve_ratio_permille_min would be 600, above reserve_ratio_permille_max, 500: set both",
        id="a least above the most",
    ),
    pytest.param(
        {"reserve_ratio_permille_max": 199},
        "reserve_ratio_permille_max",
        "reserve_ratio_permille_min would be 200, above reserve_ratio_permille_max, 199: set both",
        id="a most below the least",
    ),
    pytest.param(
        {"class_thresholds_permille": [50, 300]},
        "class_thresholds_permille",
        "class_thresholds_permille has to lie above theta_permille, which would be 100, and names 50: set both",
        id="a threshold below the first",
    ),
    pytest.param(
        {"theta_permille": 300, "class_thresholds_permille": [300]},
        "class_thresholds_permille",
        "class_thresholds_permille has to lie above theta_permille, which would be 300, and names 300: set both",
        id="a threshold at the first",
    ),
]
"""Knobs that contradict each other or the defaults: the field that is named, and what is said."""


def refusal(document):
    """How a message is refused."""
    with pytest.raises(Malformed) as refused:
        read_input("config", document, "ops")
    return refused.value


def patch(document):
    """What a message changes."""
    read = read_input("config", document, "ops")
    assert isinstance(read, ConfigPatch)
    return read
