"""The published contracts: one JSON Schema per body and input form, and one AsyncAPI 3 document over all topics.

`python -m schemas.export` writes published/ from the models; it refuses a change that breaks readers of that version
(compat.py). A version that has not been released yet may be started again: delete its file first. `--check` writes
nothing and exits 1 if anything would change. The schemas keep to what JSON Schema draft-07 and 2020-12 share.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from schemas.compat import breaks_between
from schemas.edge.read import FORMS
from schemas.envelope import Header, Record
from schemas.registry import NEWEST
from schemas.topics import NODE_TOPICS, TOPICS, NodeTopic, Topic

PUBLISHED = Path(__file__).parent / "published"
ASYNCAPI = "asyncapi.yaml"
CONTRACT_VERSION = "1.0.0"  # Of the document: raised with the first body that reaches version 2.
BYTES = {"type": "string", "description": "Bytes of the service's own, with their checksum; no JSON."}
YAML_WORDS = ("true", "false", "null", "on", "off", "yes", "no", "y", "n")  # No strings, to some readers.

Document = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Writes, or with `--check` compares, every contract. Returns the exit code: 1 drift or a break, 2 usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m schemas.export [--check]", file=sys.stderr)
        return 2
    files = contracts()
    faults = drift(files, PUBLISHED) if arguments else broken(files, PUBLISHED)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    if not arguments:
        PUBLISHED.mkdir(exist_ok=True)
        for name, text in files.items():
            (PUBLISHED / name).write_text(text, encoding="utf-8")
    return 0


def contracts() -> dict[str, str]:
    """File name -> text of everything that is published. The same models always give the same text."""
    schemas = {name: schema_of(model) for name, (model, _) in models().items()}
    files = {f"{name}.v{version}.json": _json(schemas[name]) for name, (_, version) in sorted(models().items())}
    return {**files, ASYNCAPI: "".join(yaml_lines(asyncapi(schemas)))}


def models() -> dict[str, tuple[type, int]]:
    """Every published model with its version: bodies of records, and what people and agents write."""
    bodies = {name: (released.model, released.version) for name, released in NEWEST.items()}
    return {**bodies, **FORMS}


def drift(files: dict[str, str], folder: Path) -> list[str]:
    """What in the folder differs from the models, and how to mend it."""
    found = []
    for name, text in files.items():
        path = folder / name
        if not path.exists():
            found.append(f"{name}: not published; run `make schemas`")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{name}: differs from its model; run `make schemas`")
    known = {name.partition(".")[0] for name in files}
    if folder.is_dir():
        strays = [path.name for path in sorted(folder.iterdir()) if path.name.partition(".")[0] not in known]
        found += [f"{name}: of no model that is left" for name in strays]
    return found


def broken(files: dict[str, str], folder: Path) -> list[str]:
    """Breaks between what is published in the folder and what would take its place."""
    found = []
    for name, text in files.items():
        path = folder / name
        if name == ASYNCAPI or not path.exists():
            continue
        for fault in breaks_between(json.loads(path.read_text(encoding="utf-8")), json.loads(text)):
            found.append(f"{name}: {fault}; needs a new version (or, never released, delete the file first)")
    return found


def schema_of(model: type) -> Document:
    """The JSON Schema of one model, in the words that both drafts have."""
    schema: Document = _shared(TypeAdapter(model).json_schema())
    return schema


def asyncapi(schemas: dict[str, Document]) -> Document:
    """One AsyncAPI 3 document over all topics. Raises ValueError for two different models of one name."""
    components: dict[str, Document] = {}
    for name, schema in {**schemas, "Header": schema_of(Header)}.items():
        lift(name, schema, components)
    record = {**schema_of(Record), "title": "Record"}
    for name, released in NEWEST.items():
        components[f"{name}Record"] = _record_schema(record, name, released.version)
    components["Snapshot"] = BYTES
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Largesse",
            "version": CONTRACT_VERSION,
            "description": "Inputs are plain documents; messages of the log and of decisions are records. Topics of "
            "nodes are MQTT's, all others Kafka's.",
        },
        "defaultContentType": "application/json",
        "channels": {
            **{topic.name: _channel(topic) for topic in TOPICS},
            **{topic.name: _node_channel(topic) for topic in NODE_TOPICS},
        },
        "operations": {
            **{key: operation for topic in TOPICS for key, operation in _operations(topic)},
            **{key: operation for node_topic in NODE_TOPICS for key, operation in _node_operations(node_topic)},
        },
        "components": {
            "messages": {
                **{name: _message(name, schemas) for topic in TOPICS for name in _messages_of(topic)},
                **{topic.body: _message(topic.body, schemas) for topic in NODE_TOPICS},
            },
            "schemas": dict(sorted(components.items())),
        },
    }


def lift(name: str, schema: Document, components: dict[str, Document]) -> None:
    """Puts a schema and the models nested in it side by side. Raises ValueError for two different ones of one name."""
    nested = schema.get("$defs", {})
    for part, content in {**nested, name: {key: value for key, value in schema.items() if key != "$defs"}}.items():
        moved = _moved(content)
        if components.setdefault(part, moved) != moved:
            raise ValueError(f"two different models are called {part}: rename one")


def yaml_lines(node: Any, indent: int = 0) -> Iterator[str]:
    """A document as YAML, a line at a time; strings are quoted as in JSON, which YAML reads alike."""
    if isinstance(node, dict):
        entries = [(f"{_yaml_key(key)}:", value) for key, value in node.items()]
    else:
        entries = [("-", value) for value in node]
    for lead, value in entries:
        if isinstance(value, (dict, list)) and value:
            yield f"{'  ' * indent}{lead}\n"
            yield from yaml_lines(value, indent + 1)
        else:
            yield f"{'  ' * indent}{lead} {json.dumps(value, ensure_ascii=False)}\n"


def _yaml_key(key: str) -> str:
    return key if key.isidentifier() and key.lower() not in YAML_WORDS else json.dumps(key)


def _shared(node: Any) -> Any:
    """The same schema without what one of the drafts, or AsyncAPI, reads otherwise."""
    if isinstance(node, list):
        return [_shared(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {key: _shared(value) for key, value in node.items() if key not in ("discriminator", "properties", "$defs")}
    for group in ("properties", "$defs"):  # Their keys are names, not words of the schema.
        if group in node:
            schema[group] = {name: _shared(value) for name, value in node[group].items()}
    if "properties" not in schema:
        schema.pop("title", None)  # Made of the field's name: it says nothing new.
    if "description" in schema:  # Where a docstring's lines break says nothing.
        paragraphs = schema["description"].split("\n\n")
        schema["description"] = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "patternProperties" in schema:  # Without more words it would let other keys pass.
        ((pattern, value),) = schema.pop("patternProperties").items()
        schema["propertyNames"] = {**schema.get("propertyNames", {}), "pattern": pattern}
        schema["additionalProperties"] = value
    return schema


def _moved(node: Any) -> Any:
    """The same schema with its references leading to AsyncAPI's components."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value.replace("#/$defs/", "#/components/schemas/")
        if key == "$ref" and isinstance(value, str)
        else _moved(value)
        for key, value in node.items()
    }


def _record_schema(record: Document, name: str, version: int) -> Document:
    """A stored message: header and content, the content's type and body fixed."""
    fixed = {"type": {"const": name}, "version": {"const": version}, "body": {"$ref": f"#/components/schemas/{name}"}}
    content = {**record, "title": f"{name}Content", "properties": {**record["properties"], **fixed}}
    return {
        "title": f"{name}Record",
        "type": "object",
        "properties": {"header": {"$ref": "#/components/schemas/Header"}, "content": content},
        "required": ["header", "content"],
    }


def _messages_of(topic: Topic) -> list[str]:
    """Names of a topic's messages: records by their body, inputs and bytes by their own name."""
    return [f"{name}Record" if name in NEWEST else name for name in topic.bodies]


def _message(name: str, schemas: dict[str, Document]) -> Document:
    described = schemas.get(name.removesuffix("Record"), BYTES)
    message = {
        "name": name,
        "summary": str(described["description"]).partition("\n\n")[0],
        "payload": {"$ref": f"#/components/schemas/{name}"},
    }
    return message if described is not BYTES else {**message, "contentType": "application/octet-stream"}


def _channel(topic: Topic) -> Document:
    return {
        "address": topic.name,
        "description": f"{topic.kind}; written by {', '.join(topic.writers)}; read by {', '.join(topic.readers)}",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _messages_of(topic)},
        "bindings": {"kafka": {"topicConfiguration": {"cleanup.policy": [topic.cleanup]}}},
    }


def _operations(topic: Topic) -> Iterator[tuple[str, Document]]:
    """Who sends and who receives on a topic, one operation each."""
    for action, services in (("send", topic.writers), ("receive", topic.readers)):
        for service in services:
            operation = {"action": action, "channel": {"$ref": f"#/channels/{topic.name}"}}
            yield f"{service}.{action}.{topic.name}", operation


LEVELS = {
    "cell": {"description": "The cell."},
    "node": {"description": "The node."},
    "bridge": {"description": "The bridge."},
}
"""What stands in braces in the names of nodes' topics."""


def _node_channel(topic: NodeTopic) -> Document:
    return {
        "address": topic.address,
        "description": f"over MQTT; written by {topic.writer}; read by {topic.reader}",
        "parameters": {name: about for name, about in LEVELS.items() if f"{{{name}}}" in topic.address},
        "messages": {topic.body: {"$ref": f"#/components/messages/{topic.body}"}},
    }


def _node_operations(topic: NodeTopic) -> Iterator[tuple[str, Document]]:
    """Who publishes and who subscribes."""
    for action, service in (("send", topic.writer), ("receive", topic.reader)):
        quality: Document = {"qos": 1, "retain": topic.retained} if action == "send" else {"qos": 1}
        yield (
            f"{service}.{action}.{topic.name}",
            {"action": action, "channel": {"$ref": f"#/channels/{topic.name}"}, "bindings": {"mqtt": quality}},
        )


def _json(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
