"""Messages of the config topic as tests send them."""

import pytest

from schemas.edge.read import ConfigPatch, Malformed, read_input


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
