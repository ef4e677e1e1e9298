"""Topics and filters as MQTT has them, and those on which a node and the cell speak to each other.

Pure. A filter's `+` stands for one level, a `#` at its end for all that follow, and for none.
"""

from schemas.edge.base import shown

ROOT = "largesse"
TOPIC_BYTES_MAX = 65_535
_WILD = ("+", "#")


class NameWrong(ValueError):
    """A cell or a node whose name cannot be part of a topic: says why."""


def up_topic(cell: str, node: str) -> str:
    """Where a node reports. Raises NameWrong."""
    return _of_node(cell, node, "up")


def down_topic(cell: str, node: str) -> str:
    """Where a node is told what to do. Raises NameWrong."""
    return _of_node(cell, node, "down")


def ask_topic(cell: str, node: str) -> str:
    """Where a node is asked for what its tasks have printed or left. Raises NameWrong."""
    return _of_node(cell, node, "ask")


def reply_topic(cell: str, node: str, bridge: str) -> str:
    """Where a node answers the bridge that has asked. Raises NameWrong."""
    return _of_node(cell, node, f"reply/{_level(bridge, 'bridge')}")


def reply_filter(cell: str, bridge: str) -> str:
    """The topics on which all nodes of a cell answer a bridge. Raises NameWrong."""
    return _of_all(cell, f"reply/{_level(bridge, 'bridge')}")


def replier_of(topic: str, cell: str) -> str | None:
    """Which node of the cell answers on a topic; None: none does."""
    levels = topic.split("/")
    return levels[3] if len(levels) == 6 and levels[:3] == [ROOT, cell, "node"] and levels[4] == "reply" else None


def fetch_topic(cell: str, node: str) -> str:
    """Where a node asks for results that were handed on to it. Raises NameWrong."""
    return _of_node(cell, node, "fetch")


def fetched_topic(cell: str, node: str) -> str:
    """Where it is answered. Raises NameWrong."""
    return _of_node(cell, node, "fetched")


def fetch_filter(cell: str) -> str:
    """The topics on which all nodes of a cell ask. Raises NameWrong."""
    return _of_all(cell, "fetch")


def fetcher_of(topic: str, cell: str) -> str | None:
    """Which node of the cell asks on a topic; None: none does."""
    return _node_in(topic, cell, "fetch")


def hello_topic(cell: str, node: str) -> str:
    """Where a node that the cell has not answered says that it is there. Raises NameWrong."""
    return _of_node(cell, node, "hello")


def hello_filter(cell: str) -> str:
    """The topics on which nodes of a cell say so. Raises NameWrong."""
    return _of_all(cell, "hello")


def greeter_of(topic: str, cell: str) -> str | None:
    """Which node of the cell says so on a topic; None: none does."""
    return _node_in(topic, cell, "hello")


def node_topics(cell: str, node: str, bridge: str) -> tuple[str, str, str]:
    """The topics on which one node speaks to a bridge. Raises NameWrong."""
    return up_topic(cell, node), reply_topic(cell, node, bridge), fetch_topic(cell, node)


def up_filter(cell: str) -> str:
    """The topics on which all nodes of a cell report. Raises NameWrong."""
    return _of_all(cell, "up")


def node_of(topic: str, cell: str) -> str | None:
    """Which node of the cell reports on a topic; None: none does."""
    return _node_in(topic, cell, "up")


def bridge_topic(cell: str, bridge: str) -> str:
    """Where a bridge says that it is there. Raises NameWrong."""
    return f"{ROOT}/{_level(cell, 'cell')}/bridge/{_level(bridge, 'bridge')}"


def bridge_filter(cell: str) -> str:
    """The topics on which all bridges of a cell say so. Raises NameWrong."""
    return f"{ROOT}/{_level(cell, 'cell')}/bridge/+"


def bridge_of(topic: str, cell: str) -> str | None:
    """Which bridge of the cell speaks on a topic; None: none does."""
    levels = topic.split("/")
    return levels[3] if len(levels) == 4 and levels[:3] == [ROOT, cell, "bridge"] else None


def check_topic(topic: str) -> None:
    """Raises ValueError for what no message can be published on."""
    if not topic or any(wild in topic for wild in _WILD) or _is_unusable(topic):
        raise ValueError(f"{shown(topic)} is no topic: not empty, without +, # and NUL, and not too long")


def check_filter(wanted: str) -> None:
    """Raises ValueError for what is no filter."""
    levels = wanted.split("/")
    stray = any(wild in level and level != wild for level in levels for wild in _WILD)
    if not wanted or stray or "#" in levels[:-1] or _is_unusable(wanted):
        raise ValueError(f"{shown(wanted)} is no filter: + is a whole level, # the whole last one")


def matches(wanted: str, topic: str) -> bool:
    """Whether a filter takes in a topic. No wildcard in front takes in the broker's own ($SYS)."""
    levels, steps = topic.split("/"), wanted.split("/")
    if topic.startswith("$") and steps[0] in _WILD:
        return False
    if steps[-1] == "#":
        steps.pop()
        levels = levels[: len(steps)]
    return len(levels) == len(steps) and all(step in ("+", level) for step, level in zip(steps, levels, strict=True))


def _of_node(cell: str, node: str, last: str) -> str:
    return f"{ROOT}/{_level(cell, 'cell')}/node/{_level(node, 'node')}/{last}"


def _of_all(cell: str, last: str) -> str:
    return f"{ROOT}/{_level(cell, 'cell')}/node/+/{last}"


def _node_in(topic: str, cell: str, last: str) -> str | None:
    levels = topic.split("/")
    return levels[3] if len(levels) == 5 and levels[:3] == [ROOT, cell, "node"] and levels[4] == last else None


def _level(name: str, what: str) -> str:
    if not name or "/" in name or any(wild in name for wild in _WILD) or "\0" in name:
        raise NameWrong(
            f'the {what} {shown(name)} cannot be part of an MQTT topic: not empty, without "/", "+" and "#"'
        )
    return name


def _is_unusable(text: str) -> bool:
    return "\0" in text or len(text.encode()) > TOPIC_BYTES_MAX
