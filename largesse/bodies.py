"""Parses bodies of requests, JSON or YAML, as strictly as messages of the bus.

YAML is read for what JSON could say: no anchors, no aliases, no tags, no dates, no `yes` for true, no octal numbers. It
is reworded as JSON and goes through the same reader, so that every limit and every error is the same.
"""

import json
import re
from typing import Any

import yaml

from schemas.edge.read import Malformed
from schemas.edge.strict_json import DEPTH_MAX, INPUT_BYTES_MAX, loads

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_PLAIN = {"null": "null", "~": "null", "": "null", "true": "true", "false": "false"}
TAB_HINT = "; a tab stands there: YAML is indented with spaces"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_body(data: bytes, content_type: str) -> Any:
    """The document that `data` is: YAML where the content type says so, else JSON. Raises Malformed."""
    if "yaml" in content_type.lower():
        return read_yaml(data)
    return loads(data)


def read_yaml(data: bytes, *, size_max: int = INPUT_BYTES_MAX) -> Any:
    """The document of a YAML text. Raises Malformed, with an empty `field` where only the line is known."""
    if len(data) > size_max:
        raise Malformed("", f"is too large: at most {size_max} bytes, has {len(data)}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Malformed("", f"is not valid UTF-8 at byte {error.start}") from None
    try:
        worded = _Wording().of(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = hint = ""
        if mark is not None:
            where = f" at line {mark.line + 1} column {mark.column + 1}"
            hint = TAB_HINT if _is_tab(text, mark.line, mark.column) else ""
        raise Malformed("", f"is no YAML: {getattr(error, 'problem', None) or error}{where}{hint}") from None
    # JSON's escapes take room that the text did not.
    return loads(worded.encode(), size_max=8 * size_max)


def line_of(text: str, field: str) -> int:
    """Number of the line on which a field of a YAML text stands, or the nearest thing around it."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for word in field.replace("[", ".[").split("."):
        if node is None or not word:
            break
        line, node = _inside(node, word, line)
    return line


def _inside(node: yaml.Node, word: str, line: int) -> tuple[int, yaml.Node | None]:
    if isinstance(node, yaml.SequenceNode) and word.startswith("["):
        at = int(word[1:-1])
        if at < len(node.value):
            return int(node.value[at].start_mark.line) + 1, node.value[at]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == word:
                return int(key.start_mark.line) + 1, value
    return line, None


def _is_tab(text: str, line: int, column: int) -> bool:
    """Whether a tab is what the parser has stumbled over: it stands there, or the line is indented with one."""
    found = "".join(text.splitlines()[line : line + 1])
    return "\t" in found[column : column + 1] + found[: len(found) - len(found.lstrip())]


class _Wording:
    """Writes the events of a YAML document as JSON text, without recursion."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.open: list[list[int]] = []  # For each open collection: 1 for a mapping, and how many nodes it has so far.

    def of(self, text: str) -> str:
        documents = 0
        for event in yaml.parse(text, Loader=_LOADER):
            line = f"line {event.start_mark.line + 1 if event.start_mark else 0}: "
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise Malformed("", line + "a second document begins; send one at a time")
            elif isinstance(event, yaml.AliasEvent):
                raise Malformed("", line + f"aliases are not taken: write out what *{event.anchor} stands for")
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
                self._node(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.words.append("}" if self.open.pop()[0] else "]")
        if not documents:
            raise Malformed("", "is empty")
        return "".join(self.words)

    def _node(self, event: Any, line: str) -> None:
        if event.anchor is not None:
            raise Malformed("", line + f"anchors are not taken: &{event.anchor}")
        if event.tag is not None and event.tag != "!":
            raise Malformed("", line + f"tags are not taken: {event.tag}")
        is_key = self._separate()
        if isinstance(event, yaml.ScalarEvent):
            self.words.append(_scalar(event, is_key=is_key))
            return
        if is_key:
            raise Malformed("", line + "a key has to be a plain word")
        if len(self.open) == DEPTH_MAX:
            raise Malformed("", line + f"is nested too deep: at most {DEPTH_MAX} levels")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self.words.append("{" if mapping else "[")
        self.open.append([int(mapping), 0])

    def _separate(self) -> bool:
        """Writes the separator between the last node and the next; True if the next one is a key."""
        if not self.open:
            return False
        mapping, nodes = self.open[-1]
        self.open[-1][1] += 1
        is_value = mapping and nodes % 2 == 1
        if is_value:
            self.words.append(":")
        elif nodes:
            self.words.append(",")
        return bool(mapping) and not is_value


def _scalar(event: Any, *, is_key: bool) -> str:
    plain = event.implicit[0] and not event.style
    if plain and not is_key:
        if event.value in _PLAIN:
            return _PLAIN[event.value]
        if _NUMBER.fullmatch(event.value):
            return str(event.value)
    return json.dumps(event.value)
