"""Files that people write for a cell, in YAML or JSON: read and checked here, before anything is sent."""

import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from largesse.bodies import read_body, read_yaml
from schemas.edge.read import Cluster, Malformed, read_cluster, read_input, warnings_of
from schemas.edge.strict_json import INPUT_BYTES_MAX, loads
from services.cli.ending import Ending, Unanswered, Wrong, note
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_bytes

_JSON = re.compile(rb'\s*\{\s*["}]')
_KINDS = {
    "a job": ({"job", "stages"}, "largesse submit"),
    "a cluster file": ({"nodes"}, "largesse up --cluster"),
    "a config": ({"set", "queues"}, "largesse config apply"),
}
"""Kinds of files: fields that tell a file from those of the kinds below it, and the command that takes it."""
_TAKEN = {"jobs": "a job", "config": "a config"}
"""The kind that is sent to a topic."""
CLUSTER_YAML_MAX = 8 << 20
"""Bytes of a cluster file in YAML, which takes longer to read than JSON."""


@dataclass(frozen=True, slots=True)
class Written:
    """A user's document, as a request carries it, and as it was read. `in_full`: its file says it in short."""

    data: bytes
    content_type: str
    document: dict[str, object]
    in_full: bool = False

    @property
    def request(self) -> dict[str, object]:
        """For `Gateway.ask`."""
        return {"content": self.data, "headers": {"Content-Type": self.content_type}}


def read_file(path: str, topic: str) -> Written:
    """A file (`-`: standard input) that may be sent to `topic`; its warnings go to stderr.

    Raises Wrong, which names file and field.
    """
    return _checked(path, _content(path), topic)


def _content(path: str) -> bytes:
    """Raises Wrong."""
    try:
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1) if path == "-" else _read(path)
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    if len(data) > INPUT_BYTES_MAX:
        raise Wrong(f"{_shown(path)}: is too large: at most {INPUT_BYTES_MAX} bytes, has more")
    return data.removeprefix(BOM_UTF8)


def read_job(
    path: str,
    user: Callable[[], str],
    named: str | None = None,
    instead: dict[str, object] | None = None,
    said: Sequence[str] = (),
) -> Written:
    """A job spec, with the fields of `instead` in place of its own. One that names no user is `named`'s; where that is
    nobody, one that names a reservation is `user`'s: only jobs of its owner may use a reservation. `said`: values of
    its parameters, as NAME=VALUE.

    Raises Wrong as `read_file` does.
    """
    data = _content(path)
    full = _in_full(path, data, said)
    written = _checked(path, data, "jobs") if full is None else _checked(path, full, "jobs", "json", in_full=True)
    if instead:
        data = _dumped(written.document | instead, default=float)
        written = _checked(path, data, "jobs", "json", noted=True, in_full=written.in_full)
    if written.document.get("user") or (named is None and written.document.get("reservation") is None):
        return written
    whose = named if named is not None else user()
    # Decimals that the edge takes have 6 digits behind the point at most: a float's shortest text keeps them.
    data = _dumped(written.document | {"user": whose}, default=float)
    return _checked(path, data, "jobs", "json", noted=True, in_full=written.in_full)


def _in_full(path: str, data: bytes, said: Sequence[str]) -> bytes | None:
    """What a job file stands for that says something in short (job_files.py); None: it says all itself. Raises
    Wrong."""
    from services.cli.job_files import expanded

    try:
        document = read_body(data, _kind_of(path, data))
    except Malformed:
        return None  # As it will be told.
    if not isinstance(document, dict):
        return None
    try:
        full = expanded(document, said, Path() if path == "-" else Path(path).parent)
    except Malformed as fault:
        raise Wrong(f"{_shown(path)}: {fault}") from None
    return None if full is document else _dumped(full, default=float)


def checked_document(document: dict[str, object], topic: str, shown: str) -> Written:
    """A document that was put together here, checked like a file. `shown`: what errors name. Raises Wrong."""
    return _checked(shown, _dumped(document), topic)


def read_config_file(path: str) -> Written:
    """A message of the config topic, or what a cluster file says of queues and policy; warnings go to stderr.

    Nodes are no part of a config: those that run go on, and the file's are not started, which a note says. Raises
    Wrong.
    """
    try:
        data = read_bytes(path)
        document = read_body(data, _kind_of(path, data))
        if not isinstance(document, dict) or "nodes" not in document:
            return _checked(path, data, "config")
        read_cluster(document)
    except Malformed as fault:
        raise Wrong(f"{_shown(path)}: {fault}") from None
    except Damaged as fault:
        raise Wrong(str(fault)) from None
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    message = config_of(document)
    if not message:
        raise Wrong(f"{_shown(path)}: a cluster file without queues and policy: there is nothing to apply")
    for warning in warnings_of(message):
        note(f"{_shown(path)}: {warning}")
    note(f"{_shown(path)}: nodes: ignored; `largesse up --cluster` starts the nodes of a file")
    return Written(_dumped(message), "application/json", message)


def config_of(document: dict[str, object]) -> dict[str, object]:
    """What the document of a cluster file says of queues and policy, as a message of the config topic; {}: nothing."""
    said = {"set": document.get("policy") or None, "queues": document.get("queues")}
    message = {form: content for form, content in said.items() if content is not None}
    # Decimals that the edge takes have 6 digits behind the point at most: a float's shortest text keeps them.
    plain: dict[str, object] = json.loads(_dumped(message, default=float))
    return plain


def _dumped(document: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=default).encode()


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


def _checked(
    path: str, data: bytes, topic: str, kind: str = "", *, noted: bool = False, in_full: bool = False
) -> Written:
    """`kind`: json or yaml, empty where the path and the data say it. `noted`: its warnings are on stderr already."""
    shown, kind = _shown(path), kind or _kind_of(path, data)
    try:
        document = read_body(data, kind)
        if isinstance(document, dict):
            _check_kind(document, topic, path)
        read_input(topic, document, "")
    except Malformed as fault:
        raise Wrong(f"{shown}: {fault}") from None
    for warning in () if noted else warnings_of(document):
        note(f"{shown}: {warning}")
    return Written(data, f"application/{kind}", document, in_full)


def _check_kind(document: dict[str, object], topic: str, path: str) -> None:
    """Raises Malformed, and names the command, for a document that is of another kind than the one asked for."""
    if "cancel" in document:
        raise Malformed("cancel", "unknown field; to cancel: largesse cancel JOB")
    for kind, (fields, command) in _KINDS.items() if topic in _TAKEN else ():
        if not fields.isdisjoint(document):
            if kind != _TAKEN[topic]:
                raise Malformed("", f"is {kind}, not {_TAKEN[topic]}: use `{command} {path}`")
            return


def read_cluster_of(path: str) -> tuple[Cluster, dict[str, object]]:
    """A cluster file and its document, gzipped or not (`-`: standard input); its warnings go to stderr.

    Raises Wrong, which names file and field, and OSError.
    """
    try:
        data = read_bytes(path)
        yaml = _kind_of(path, data) == "yaml"
        document = read_yaml(data, size_max=CLUSTER_YAML_MAX) if yaml else loads(data, size_max=LINE_BYTES_MAX)
        cluster = read_cluster(document)
    except Malformed as fault:
        raise Wrong(f"{path}: {fault}") from None
    except Damaged as fault:
        raise Wrong(str(fault)) from None
    for warning in warnings_of(document):
        note(f"{path}: {warning}")
    return cluster, document


def note_answered(shown: str, written: Written, answer: dict[str, object]) -> None:
    """Warnings that only the cell can give, since they depend on what is there."""
    known, warnings = warnings_of(written.document), answer.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        if warning not in known:
            note(f"{_shown(shown)}: {warning}")


@contextmanager
def refusals_name(shown: str) -> Iterator[None]:
    """Around a request that sends what was written there: what the cell refuses of it names the place, as what is found
    wrong here does, and the field once: not `queue: queue "a" is ...`. Raises what was raised within."""
    try:
        yield
    except Ending as ending:
        field = (ending.problem or {}).get("field")
        if field is not None and not isinstance(ending, Unanswered):
            text = str(ending).replace(f'{field}: {field} "', f'{field}: "', 1)
            ending.args = (f"{_shown(shown)}: {text}",)
        raise


def _kind_of(path: str, data: bytes) -> str:
    """By the name, else by the text: YAML takes JSON too, but JSON's own reader has the better words for what is wrong
    with it. YAML in flow style begins with a bracket as well, but seldom with a quoted name in it.
    """
    if path.endswith((".yaml", ".yml")):
        return "yaml"
    return "json" if path.endswith(".json") or _JSON.match(data) else "yaml"


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(INPUT_BYTES_MAX + 1)
