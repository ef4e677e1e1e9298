"""The published contracts: committed is what the models say, no release breaks another's readers, samples live."""

import copy
import json
import re
from typing import Any, get_args

import orjson
import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from largesse.log.codec import decode, encode
from largesse.mqtt.topics import ask_topic, down_topic, fetch_topic, fetched_topic, reply_topic, up_topic
from schemas import export
from schemas.compat import breaks_between
from schemas.edge.beats import read_beat
from schemas.edge.mqtt import read_ask, read_down, read_fetch, read_reply, read_up
from schemas.edge.read import FORMS, read_cluster, read_input, read_workload_line
from schemas.registry import NEWEST, LogBody
from schemas.topics import BY_NAME, LOG, NODE_TOPICS, TOPICS
from tests.conftest import ROOT

SAMPLES = sorted((ROOT / "schemas" / "samples").glob("*.json"))
TOPIC_OF_FORM = {form: topic.name for topic in TOPICS if topic.kind == "input" for form in topic.bodies}


# Drift


def test_what_is_published_is_what_the_models_say():
    assert export.drift(export.contracts(), export.PUBLISHED) == []


def test_the_same_models_give_the_same_text():
    assert export.contracts() == export.contracts()


def test_an_edited_file_a_missing_one_and_a_stray_one_are_drift(tmp_path):
    files = {"Kept.v1.json": "{}\n", "Edited.v1.json": "{}\n", "Missing.v1.json": "{}\n"}
    (tmp_path / "Kept.v1.json").write_text("{}\n")
    (tmp_path / "Edited.v1.json").write_text("{} \n")
    (tmp_path / "Gone.v1.json").write_text("{}\n")

    found = export.drift(files, tmp_path)

    assert [line.partition(":")[0] for line in found] == ["Edited.v1.json", "Missing.v1.json", "Gone.v1.json"]


def test_an_older_version_of_a_model_stays_published(tmp_path):
    (tmp_path / "Kept.v1.json").write_text("old")
    (tmp_path / "Kept.v2.json").write_text("new")

    assert export.drift({"Kept.v2.json": "new"}, tmp_path) == []


def test_a_breaking_change_does_not_overwrite(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export, "PUBLISHED", tmp_path)
    assert export.main([]) == 0
    published = tmp_path / "JobCancelled.v1.json"
    narrower = json.loads(published.read_text())
    narrower["properties"]["since_ms"] = {"type": "integer"}
    published.write_text(json.dumps(narrower))

    assert export.main([]) == 1

    assert "JobCancelled.v1.json: since_ms: removed; needs a new version" in capsys.readouterr().err
    assert "since_ms" in published.read_text()


def test_check_writes_nothing_and_says_what_differs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export, "PUBLISHED", tmp_path)

    assert export.main(["--check"]) == 1

    assert "JobCancelled.v1.json: not published; run `make schemas`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_argument_is_wrong_usage():
    assert export.main(["--chekc"]) == 2


# Compatibility

BEFORE: dict[str, Any] = {
    "$defs": {
        "Part": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["small", "large"], "type": "string"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            },
            "required": ["kind"],
        }
    },
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "size": {"type": "integer", "minimum": 1},
        "part": {"$ref": "#/$defs/Part"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "shares": {"type": "object", "additionalProperties": {"type": "integer"}},
        "mode": {"type": "string"},
        "fixed": {"const": "v1", "type": "string"},
    },
    "required": ["name"],
}


def changed(*path, to=None, remove=False):
    """BEFORE with one place changed."""
    schema = copy.deepcopy(BEFORE)
    place = schema
    for step in path[:-1]:
        place = place[step]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return schema


PART = ("$defs", "Part", "properties")
FIELDS = ("properties",)


@pytest.mark.parametrize(
    ("after", "break_"),
    [
        pytest.param(changed(*FIELDS, "size", remove=True), "size: removed", id="a field is gone"),
        pytest.param(changed(*PART, "parts", remove=True), "part.parts: removed", id="one of a nested model is gone"),
        pytest.param(
            changed(*FIELDS, "size", "type", to="string"), "size: retyped from integer to string", id="another type"
        ),
        pytest.param(
            changed(*FIELDS, "size", to={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            "size: retyped from integer to integer | null",
            id="null where none was",
        ),
        pytest.param(
            changed(*FIELDS, "note", to={"type": "string"}),
            "note: retyped from null | string to string",
            id="null no more",
        ),
        pytest.param(
            changed(*PART, "parts", "items", to={"type": "string"}),
            "part.parts[]: retyped from object to string",
            id="items of another type",
        ),
        pytest.param(
            changed(*FIELDS, "shares", "additionalProperties", to={"type": "string"}),
            "shares{}: retyped from integer to string",
            id="values of another type",
        ),
        pytest.param(changed("required", to=["name", "size"]), "size: required now", id="a field becomes required"),
        pytest.param(
            changed("$defs", "Part", "required", to=["kind", "new"]), "part.new: new and required", id="a new one is"
        ),
        pytest.param(
            changed(*PART, "kind", "enum", to=["small", "large", "huge"]),
            "part.kind: wider enum, with huge",
            id="a wider enum",
        ),
        pytest.param(
            changed(*PART, "kind", "enum", to=["small"]), "part.kind: narrower enum, without large", id="a narrower one"
        ),
        pytest.param(
            changed(*FIELDS, "mode", to={"type": "string", "enum": ["a"]}),
            "mode: limited to an enum now",
            id="an enum where none was",
        ),
        pytest.param(changed(*PART, "kind", "enum", remove=True), "part.kind: no enum any more", id="an enum is gone"),
        pytest.param(
            changed(*FIELDS, "fixed", "const", to="v2"), "fixed: narrower enum, without v1", id="another constant"
        ),
        pytest.param(
            changed(*FIELDS, "size", "minimum", to=2), "size: minimum is 2 now, was 1", id="a higher least value"
        ),
        pytest.param(
            changed(*FIELDS, "name", "maxLength", to=9), "name: maxLength is 9 now, was 10", id="a smaller limit"
        ),
        pytest.param(
            changed(*FIELDS, "mode", "pattern", to="^a$"), "mode: pattern is ^a$ now, was free", id="a new pattern"
        ),
        pytest.param(
            changed("additionalProperties", to=False),
            "document: refuses unknown fields now",
            id="unknown fields refused",
        ),
    ],
)
def test_a_break_is_found_and_named(after, break_):
    assert break_ in breaks_between(BEFORE, after)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(BEFORE, id="nothing"),
        pytest.param(changed(*FIELDS, "new", to={"type": "integer", "default": 0}), id="a new optional field"),
        pytest.param(changed("description", to="better words"), id="a description"),
        pytest.param(changed(*FIELDS, "size", "default", to=3), id="a default"),
        pytest.param(changed(*FIELDS, "size", "minimum", to=0), id="a lower least value"),
        pytest.param(changed(*FIELDS, "size", "minimum", remove=True), id="no least value any more"),
        pytest.param(changed(*FIELDS, "name", "maxLength", to=11), id="a larger limit"),
        pytest.param(changed("required", to=[]), id="a field is no longer required"),
    ],
)
def test_what_old_readers_can_read_is_no_break(after):
    assert breaks_between(BEFORE, after) == []


def test_alternatives_of_a_union_are_compared_by_their_model():
    def union(limit):
        atom = {"type": "object", "properties": {"op": {"const": "atom"}, "g": {"type": "integer", "minimum": limit}}}
        window = {"type": "object", "properties": {"op": {"const": "window"}, "of": {"$ref": "#/$defs/Atom"}}}
        return {
            "$defs": {"Atom": atom, "Window": window},
            "anyOf": [{"$ref": f"#/$defs/{n}"} for n in ("Window", "Atom")],
        }

    assert breaks_between(union(1), union(2)) == ["of.g: minimum is 2 now, was 1"]  # Said once, where it is met first.
    assert breaks_between(union(2), union(1)) == []


# The documents


@pytest.mark.parametrize("name", sorted(export.models()))
def test_a_schema_says_the_same_in_both_drafts(name):
    schema = export.schema_of(export.models()[name][0])

    Draft7Validator.check_schema(schema)
    Draft202012Validator.check_schema(schema)
    only_later = {"prefixItems", "discriminator", "oneOf", "unevaluatedProperties", "dependentRequired", "$anchor"}
    for node in nodes_of(schema):
        assert only_later.isdisjoint(node)
        assert isinstance(node.get("items", {}), dict), "tuples are read differently"
        if "$ref" in node:  # Draft-07 ignores what stands beside it.
            assert node.keys() <= {"$ref", "default", "description"}


@pytest.fixture(scope="module")
def asyncapi():
    return yaml.safe_load((export.PUBLISHED / export.ASYNCAPI).read_text())


def test_every_topic_is_a_channel_with_its_messages(asyncapi):
    assert asyncapi["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= asyncapi["info"].keys()
    assert list(asyncapi["channels"]) == [*BY_NAME, *(topic.name for topic in NODE_TOPICS)]
    for name, topic in BY_NAME.items():
        channel = asyncapi["channels"][name]
        assert channel["address"] == name
        assert len(channel["messages"]) == len(topic.bodies)


def test_a_topic_of_a_node_is_a_channel_with_the_names_in_it_as_parameters(asyncapi):
    for topic in NODE_TOPICS:
        channel = asyncapi["channels"][topic.name]
        assert re.findall(r"{(\w+)}", channel["address"]) == list(channel["parameters"])
        assert list(channel["messages"]) == [topic.body]
        said = asyncapi["operations"][f"{topic.writer}.send.{topic.name}"]
        assert said["bindings"]["mqtt"] == {"qos": 1, "retain": topic.retained}


def test_the_address_of_a_node_is_the_topic_that_is_spoken_on():
    made = [topic.address.format(cell="c", node="n", bridge="b") for topic in NODE_TOPICS]

    assert made == [
        *(up_topic("c", "n"), down_topic("c", "n"), ask_topic("c", "n"), reply_topic("c", "n", "b")),
        *(fetch_topic("c", "n"), fetched_topic("c", "n")),
    ]


def test_the_topic_of_the_log_lists_whatever_the_log_can_hold():
    assert sorted(BY_NAME[LOG].bodies) == sorted(body.__name__ for body in get_args(LogBody))


def test_every_reference_leads_somewhere(asyncapi):
    for node in nodes_of(asyncapi):
        if isinstance(reference := node.get("$ref"), str):
            place = asyncapi
            for step in reference.removeprefix("#/").split("/"):
                place = place[step]
            assert isinstance(place, dict)


def test_operations_send_or_receive_on_a_channel(asyncapi):
    operations = asyncapi["operations"]

    assert {"admission.send.cluster.log", "fairness.send.shares", "agent.send.tasks"} <= operations.keys()
    for operation in operations.values():
        assert operation["action"] in ("send", "receive")
        assert operation["channel"]["$ref"].startswith("#/channels/")


def test_names_of_components_are_ones_that_tools_take(asyncapi):
    for group in asyncapi["components"].values():
        for name in group:
            assert re.fullmatch(r"[\w.-]+", name)


def test_the_yaml_says_what_the_models_say(asyncapi):
    schemas = {name: export.schema_of(model) for name, (model, _) in export.models().items()}

    assert asyncapi == export.asyncapi(schemas)


def test_two_different_models_of_one_name_are_an_error():
    components: dict[str, dict[str, object]] = {}
    export.lift("A", {"$defs": {"Part": {"type": "integer"}}, "type": "object"}, components)
    export.lift("B", {"$defs": {"Part": {"type": "integer"}}, "type": "object"}, components)

    with pytest.raises(ValueError, match="two different models are called Part"):
        export.lift("C", {"$defs": {"Part": {"type": "string"}}, "type": "object"}, components)


# Samples


def test_every_version_ever_published_has_a_sample():
    published = {path.name for path in export.PUBLISHED.glob("*.json")}

    assert {path.name for path in SAMPLES} == published, "write one real document per new type or version"


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.name.split(".")[0] in NEWEST], ids=lambda p: p.stem)
def test_a_sample_record_decodes_and_is_written_alike(path):
    content = path.read_bytes().rstrip(b"\n")

    written = encode(decode(content))

    sample = orjson.loads(content)
    if sample["version"] == NEWEST[sample["type"]].version:
        # A field that joined its version later is all that may have come.
        assert without_newer(orjson.loads(written), sample) == sample
        if keys_of(orjson.loads(written)) == keys_of(sample):
            assert written == content


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_a_sample_is_what_its_published_schema_describes(path):
    name = path.name.split(".")[0]
    document = orjson.loads(path.read_bytes())
    schema = orjson.loads((export.PUBLISHED / path.name).read_bytes())

    for validator in (Draft7Validator(schema), Draft202012Validator(schema)):
        validator.validate(document["body"] if name in NEWEST else document)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_sample_of_what_people_write_is_accepted(name):
    written = (ROOT / "schemas" / "samples" / f"{name}.v1.json").read_bytes()
    document = orjson.loads(written)

    match name:
        case "NodeUp":
            assert [read_input(message.topic, message.document, "") for message in read_up(written).messages or []]
        case "NodeDown":
            assert read_down(written).answered
        case "NodeAsk":
            assert read_ask(written).path.startswith("/v1/output/")
        case "NodeFetch":
            assert read_fetch(written).path.startswith("/v1/results/")
        case "NodeReply":
            assert read_reply(written).status == 200
        case "BeatInput":
            assert read_beat(document).node == "n-17"
        case "ClusterFile":
            assert len(read_cluster(document).nodes) == 101
        case "WorkloadLine":
            assert read_workload_line(document)[1].job == "q21-7"
        case _:
            read_input(TOPIC_OF_FORM[name], document, "ann")


def nodes_of(schema):
    """Every object in a document."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes_of(value)


def keys_of(document):
    return [sorted(node) for node in nodes_of(document)]


def without_newer(written, sample):
    """`written` without the fields that the sample does not have."""
    if isinstance(sample, dict):
        return {key: without_newer(written[key], value) for key, value in sample.items()}
    if isinstance(sample, list) and len(sample) == len(written):
        return [without_newer(w, s) for w, s in zip(written, sample, strict=True)]
    return written
