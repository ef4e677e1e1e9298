"""One line of the journal: an atomic batch of messages as one JSON document, checked and chained.

    {"line":7,"prev":"<hex>","batch":[{"topic":"jobs","partition":0,"offset":3,"size":7,"value":{"a":1}}],"sum":"<hex>"}

`sum` is SHA-256 over the line's bytes before `,"sum":`; `prev` is the `sum` of the line before (64 zeros in the first),
so one hash is both checksum and chain. `size` is the value's length in bytes. A value that is JSON on one line stands
there byte for byte and is cut out again; any other is there as "base64". "key" and "headers" follow "size" where there
are any.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256

import orjson

from largesse.bus.port import Message, Outgoing

SUM_OF_NOTHING = "0" * 64
"""`prev` of the first line."""

_SUM = b',"sum":"'
_END = b'"}'
_SUM_BYTES = len(_SUM) + 64 + len(_END)

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ITEM = re.compile(
    rb'\{"topic":(' + _TEXT + rb'),"partition":(\d+),"offset":(\d+),"size":(\d+)'
    rb'(?:,"key":(' + _TEXT + rb"))?"
    rb'(?:,"headers":(\{' + _TEXT + b":" + _TEXT + rb"(?:," + _TEXT + b":" + _TEXT + rb")*+\}))?"
    rb',"(value|base64)":'
)
_HEAD = re.compile(rb'\{"line":(\d+),"prev":"([0-9a-f]{64})","batch":\[')


class LineWrong(Exception):
    """What is wrong with a line, without its place."""


def item_opening(topic: str, partition: int) -> bytes:
    """How every item of a partition begins. Raises TypeError for a topic that is no Unicode text."""
    assert partition >= 0, f"{topic}: there is no partition {partition}"
    return b'{"topic":%b,"partition":%d,"offset":' % (_text(topic), partition)


def encode_item(opening: bytes, offset: int, outgoing: Outgoing) -> bytes:
    """One message as it stands in a batch. Raises TypeError if key or headers are no Unicode text."""
    value = outgoing.value
    parts = [opening, b'%d,"size":%d' % (offset, len(value))]
    if outgoing.key:
        parts.append(b',"key":' + _text(outgoing.key))
    if outgoing.headers:
        pairs = [b"%b:%b" % (_text(name), _text(said)) for name, said in outgoing.headers.items()]
        parts.append(b',"headers":{%b}' % b",".join(pairs))
    if _stands_in_a_line(value):
        parts += (b',"value":', value, b"}")
    else:
        parts += (b',"base64":"', b64encode(value), b'"}')
    return b"".join(parts)


def encode_line(number: int, prev: str, items: list[bytes]) -> tuple[bytes, str]:
    """The line's bytes with its newline, and its sum."""
    content = b'{"line":%d,"prev":"%b","batch":[%b]' % (number, prev.encode(), b",".join(items))
    total = sha256(content).hexdigest()
    return b"%b%b%b%b\n" % (content, _SUM, total.encode(), _END), total


def checked(line: bytes, number: int, prev: str) -> str:
    """The sum of a line (without newline) that is whole and stands in its place. Raises LineWrong."""
    total = self_checked(line)
    if not line.startswith(b'{"line":%d,"prev":"%b","batch":[' % (number, prev.encode())):
        head = _HEAD.match(line)
        if head is None:
            raise LineWrong("it does not begin like a journal line")
        if int(head[1]) != number:
            raise LineWrong(f"it is line {int(head[1])} by its own number where line {number} belongs")
        raise LineWrong("the line before it is not the one it was written after")
    return total


def self_checked(line: bytes) -> str:
    """The sum of a line (without newline) that is as it was written, wherever it stands. Raises LineWrong."""
    content, ending = line[:-_SUM_BYTES], line[-_SUM_BYTES:]
    total = sha256(content).hexdigest()
    if ending != b"%b%b%b" % (_SUM, total.encode(), _END):
        raise LineWrong("its bytes do not give its sum: it was changed, or is not a journal line")
    return total


def cut(line: bytes) -> Iterator[tuple[str, int, int, re.Match[bytes]]]:
    """Topic, partition, offset and place of every item of a checked line. Raises LineWrong."""
    at = line.index(b"[") + 1
    last = len(line) - _SUM_BYTES - 1
    while True:
        item = _ITEM.match(line, at)
        if item is None:
            raise LineWrong(f"no message where one should begin, at byte {at}")
        yield _topic(item[1]), int(item[2]), int(item[3]), item
        at = item.end() + _encoded_size(item)
        ending = line[at : at + 2]
        if ending == b"}]" and at + 1 == last:
            return
        if ending != b"},":
            raise LineWrong(f"a message does not end where its size says, at byte {at}")
        at += 2


def message_of(topic: str, partition: int, offset: int, item: re.Match[bytes]) -> Message:
    """The message that `cut` found. Raises LineWrong."""
    start, size = item.end(), _encoded_size(item)
    value = item.string[start : start + size]
    if item[7] == b"base64":
        try:
            value = b64decode(value[1:-1], validate=True)
        except ValueError as error:
            raise LineWrong(f"offset {offset} of {topic} is not base64: {error}") from error
    return Message(topic, partition, offset, value, orjson.loads(item[6]) if item[6] else {})


def key_of(item: re.Match[bytes]) -> str:
    """The key that a message was sent with."""
    return str(orjson.loads(item[5])) if item[5] else ""


def hangs_on(line: bytes) -> tuple[int, str]:
    """Number and `prev` of a checked line. Raises LineWrong."""
    head = _HEAD.match(line)
    if head is None:
        raise LineWrong("it does not begin like a journal line")
    return int(head[1]), head[2].decode()


def _text(text: str) -> bytes:
    # What could not be read again must not be written.
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    return orjson.dumps(text)


def _encoded_size(item: re.Match[bytes]) -> int:
    size = int(item[4])
    return size if item[7] == b"value" else (size + 2) // 3 * 4 + 2


@lru_cache(maxsize=1_024)
def _topic(quoted: bytes) -> str:
    return str(orjson.loads(quoted))


def _stands_in_a_line(value: bytes) -> bool:
    # A carriage return is white space to JSON and the end of a line to half of all tools.
    if b"\n" in value or b"\r" in value:
        return False
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True
