"""What happened in any history is decided again the same, and whatever is changed in its log afterwards is found."""

import json
from dataclasses import replace

from hypothesis import strategies as st

from largesse.log.codec import decode, encode
from largesse.log.fencing import Accepted
from schemas import Header
from services.replay.source import Source, Step
from services.replay.verify import verify
from tests.cells import SlowCell
from tests.properties.histories import Play, histories
from tests.strategies import for_all

SHARDS = 4

CHANGES = {
    "": "fifo",  # The policy of a queue that names none.
    "srtf": "fair",
    "aged": "always",
    "small": "large",
    "large": "small",
    "total": "available",
    "required": "packed",
    "packed": "required",
    "fail": "continue",
    "continue": "fail",
    "exit_code": "lost",
    "timeout": "lost",
    "cannot_start": "lost",
    "lost": "killed",
    "killed": "lost",
    "succeeded": "failed",
    "failed": "succeeded",
    "cancelled": "failed",
    "operator": "rules",
    "running": "failed",
    "fifo": "drf",
    "drf": "hdrf",
    "hdrf": "largesse",
    "largesse": "fifo",
    "job": "stage",
    "stage": "job",
    "node_draining": "no_room",
    "no_room": "gang",
    "gang": "no_room",
    "job_over": "gang",
    "node_lost": "gang",
}
"""Words that may stand in a record only if they are others of their kind."""

tree_names = st.sampled_from(["wide", "deep", "uneven", "none"])


def log_of(history, tree_name):
    """The contents of the log that a history leads to, and of all answers by id."""
    play = Play(SlowCell(SHARDS), tree_name)
    for step in history:
        play.step(*step)
    play.wind_up()
    answers = {record.id: content for record, content in zip(play.cell.decided, play.cell.decisions, strict=True)}
    return [encode(record) for record in play.cell.records], answers


def verdict_of(contents, answers, documents=()):
    """`documents`: what decision topics hold besides, each with the number of the record that it was read before."""

    def read(hear):
        at = {}
        for number, document in documents:
            at.setdefault(number, []).append(document)
        for number, content in [*enumerate(contents), (len(contents), None)]:
            for document in at.get(number, ()):
                hear(json.loads(document)["id"], document)
            if content is None:
                return
            yield Step(Accepted(decode(content), Header(""), content, number), answers)

    return verify(Source("the log", read, lambda: SHARDS))


def bytes_of(document):
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def leaves(document):
    """Every number, text and truth value of a document, as its holder and its key there."""
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        if isinstance(value, dict | list):
            yield from leaves(value)
        elif value is not None:
            yield document, key


def altered(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else CHANGES.get(value, value + "x")


@for_all(histories(), tree_names)
def test_every_history_is_decided_again_the_same(history, tree_name):
    contents, answers = log_of(history, tree_name)
    verdict = verdict_of(contents, answers)

    assert verdict.is_same, verdict.text()
    assert verdict.records == len(contents)


@for_all(histories(), tree_names, st.data())
def test_whatever_is_changed_is_found(history, tree_name, data):
    """At the changed record, or at the next opening, whose prefix is a chain over all before it."""
    contents, answers = log_of(history, tree_name)
    last = max(i for i, content in enumerate(contents) if decode(content).type == "RoundOpened")
    at = data.draw(st.integers(0, last - 1))
    document = json.loads(contents[at])
    holder, key = data.draw(st.sampled_from(list(leaves(document["body"]))))
    holder[key] = altered(holder[key])
    contents[at] = bytes_of(document)
    verdict = verdict_of(contents, answers)

    assert verdict.difference is not None
    assert verdict.difference.seq > at


@for_all(histories(), tree_names, st.data())
def test_an_answer_may_be_written_again_whenever_and_answers_to_nothing_may_be_anything(history, tree_name, data):
    contents, answers = log_of(history, tree_name)
    anywhere = st.integers(0, len(contents))
    again = [(data.draw(anywhere), data.draw(st.sampled_from(list(answers.values())))) for _ in range(5)]
    document = json.loads(again[0][1])
    document["id"] += "0"  # The prefix of another opening.
    document["body"] = {}
    verdict = verdict_of(contents, answers, [*again, (data.draw(anywhere), bytes_of(document))])

    assert verdict.is_same, verdict.text()


@for_all(histories(), tree_names, st.data())
def test_whatever_is_changed_in_an_answer_is_found_wherever_it_stands(history, tree_name, data):
    """In the answer that was read or in one that came second, before its opening, in its round, or too late."""
    contents, answers = log_of(history, tree_name)
    id_ = data.draw(st.sampled_from(sorted(answers)))
    document = json.loads(answers[id_])
    holder, key = data.draw(st.sampled_from([leaf for leaf in leaves(document) if leaf != (document, "id")]))
    holder[key] = altered(holder[key])
    topic, place, opening = id_.split("/", 2)
    seq = int(opening.split("/")[1])
    if data.draw(st.booleans()):
        verdict = verdict_of(contents, answers, [(data.draw(st.integers(0, len(contents))), bytes_of(document))])
    else:
        verdict = verdict_of(contents, {**answers, id_: bytes_of(document)})

    assert verdict.difference is not None
    assert (verdict.difference.seq, verdict.difference.path != "") == (seq, True)
    assert verdict.difference.topic == f"{topic} of shard {place.replace('-', ' of ')}"


@for_all(histories(), tree_names, st.data())
def test_a_record_that_is_missing_doubled_or_moved_is_found_where_it_stood(history, tree_name, data):
    contents, answers = log_of(history, tree_name)
    at = data.draw(st.integers(0, len(contents) - 2))
    how = data.draw(st.sampled_from(["missing", "doubled", "moved"]))
    spoilt = {
        "missing": contents[:at] + contents[at + 1 :],
        "doubled": [*contents[: at + 1], *contents[at:]],
        "moved": [*contents[:at], contents[at + 1], contents[at], *contents[at + 2 :]],
    }[how]
    verdict = verdict_of(spoilt, answers)

    assert verdict.difference is not None
    assert verdict.difference.path == "seq"
    assert replace(verdict, difference=None, source="").records == at + (how == "doubled")
