"""What must be true of a data folder after any number of kills, found from the journal and the proofs alone.

Shares no line with the sequencer, the cores or replay: the log's rules are written down here once more, on plain JSON.
Every check returns what is wrong, in words.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from largesse.bus.file.reading import read_journal
from largesse.bus.port import Message
from tests.live.campaign_jobs import Job, Proof

DECISIONS = ("shares", "asks", "grants", "releases", "plans")
BETWEEN = b',"content":'

Task = tuple[str, str, int]
Attempt = tuple[str, str, int, int]
Place = tuple[str, int, int]


@dataclass(slots=True)
class Entry:
    """A log record that counts. `content`: its bytes as they stand there."""

    record: dict[str, Any]
    header: dict[str, Any]
    content: bytes

    @property
    def type(self) -> str:
        """What it is."""
        return str(self.record["type"])

    @property
    def body(self) -> dict[str, Any]:
        """What it says."""
        body: dict[str, Any] = self.record["body"]
        return body


@dataclass(slots=True)
class Journal:
    """All there is: the log, inputs by place, decisions by id in the order in which they came, dead letters."""

    log: list[Entry] = field(default_factory=list)
    inputs: dict[Place, bytes] = field(default_factory=dict)
    decisions: dict[str, list[bytes]] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)
    claims: int = 0
    void: int = 0

    def of(self, *types: str) -> Iterable[Entry]:
        """Log records of these types."""
        return (entry for entry in self.log if entry.type in types)


def read(directory: Path) -> Journal:
    """Reads a journal. Raises JournalDamaged."""
    return journal_of(read_journal(directory))


def journal_of(messages: Iterable[Message]) -> Journal:
    """What messages of all topics come to, each partition in its order."""
    found = Journal()
    token, seq = "", 0
    for message in messages:
        if message.topic in DECISIONS:
            content = _content(message.value)
            found.decisions.setdefault(json.loads(content)["id"], []).append(content)
        elif message.topic == "deadletter":
            found.letters.append(json.loads(_content(message.value)))
        elif message.topic == "cluster.log":
            document = json.loads(message.value)
            header, record = document["header"], document["content"]
            if record["type"] == "SequencerClaimed":
                token = header["token"]
                found.claims += 1
            elif header["token"] == token and record["seq"] == seq + 1:
                seq += 1
                found.log.append(Entry(record, header, _content(message.value)))
            else:
                found.void += 1
        elif message.topic != "snapshots":
            found.inputs[message.topic, message.partition, message.offset] = message.value
    return found


def _content(message: bytes) -> bytes:
    return message[message.index(BETWEEN) + len(BETWEEN) : -1]


# ---------------------------------------------------------------- the log
def check_log(journal: Journal) -> list[str]:
    """One writer at a time left no void record; time never goes back; openings chain everything before them."""
    wrong = [f"{journal.void} log records are void"] if journal.void else []
    prefix, time, opened, number = b"\0" * 32, 0, "", 0
    for entry in journal.log:
        record = entry.record
        if record["time"] < time:
            wrong.append(f"{record['id']}: log time goes back")
        time = record["time"]
        if entry.type == "RoundOpened":
            number += 1
            if opened or record["round"] != number:
                wrong.append(f"{record['id']}: opens while another is open, or is not round {number}")
            if entry.body["prefix"] != prefix.hex():
                wrong.append(f"{record['id']}: another prefix than the log's")
            opened = record["id"]
        elif entry.type in ("RoundClosed", "RoundAbandoned"):
            if entry.type == "RoundClosed" and record["cause"] != opened:
                wrong.append(f"{record['id']}: closes another round than the open one")
            opened = ""
        prefix = sha256(prefix + entry.content).digest()
    return wrong


def check_inputs(journal: Journal) -> list[str]:
    """No input is taken twice or out of order; every job, and everything unreadable, is answered; letters are sent."""
    wrong = []
    last: dict[tuple[str, int], int] = {}
    answered: set[Place] = set()
    for entry in journal.log:
        topic, partition, offset = (entry.header[name] for name in ("topic", "partition", "offset"))
        if not topic:
            continue
        if offset <= last.get((topic, partition), -1):
            wrong.append(f"{entry.record['id']}: {topic} {offset} is taken again")
        last[topic, partition] = offset
        answered.add((topic, partition, offset))
    for place, value in journal.inputs.items():
        if place[0] in ("jobs", "config") and place not in answered and not _may_be_silent(value):
            wrong.append(f"{place}: was never answered: {value[:120]!r}")
    refusals = [e.record["seq"] for e in journal.of("InputRefused", "JobRejected") if e.header["topic"]]
    letters = [letter["seq"] for letter in journal.letters]
    if refusals != letters:
        wrong.append(f"refusals at {refusals}, but dead letters for {letters}")
    return wrong


def _may_be_silent(value: bytes) -> bool:
    """A cancellation of what is over, and a config that is in force already, change nothing."""
    try:
        document = json.loads(value)
    except ValueError:
        return False
    return "stages" not in document


def check_rounds(journal: Journal) -> list[str]:
    """Every closing names the first answer there is to its opening, and an answer given again is the same."""
    wrong = []
    for id_, contents in journal.decisions.items():
        if len({sha256(content).digest() for content in contents}) > 1:
            wrong.append(f"{id_}: was answered in {len(contents)} ways")
    for entry in journal.of("RoundClosed"):
        for named in entry.body["hashes"]:
            id_ = f"{named['topic']}/{named['shard']}-{named['of']}/{entry.record['cause']}"
            contents = journal.decisions.get(id_, [b""])
            if sha256(contents[0]).hexdigest() != named["hash"]:
                wrong.append(f"{entry.record['id']}: its hash of {id_} is not that of the record")
    return wrong


# ---------------------------------------------------------------- attempts
@dataclass(slots=True)
class Life:
    """One attempt as the log tells it. `end`: succeeded, or the reason why not; None while it holds room."""

    node: str
    starts: int = 0
    end: str | None = None
    code: int | None = None


@dataclass(slots=True)
class Story:
    """All attempts, and what was wrong on the way."""

    lives: dict[Attempt, Life] = field(default_factory=dict)
    done: set[Task] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    capacity: dict[str, dict[str, int]] = field(default_factory=dict)
    used: dict[str, Counter[str]] = field(default_factory=dict)
    stages: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def end(self, item: dict[str, Any], end: str, code: int | None = None) -> None:
        """Attempts of a range ended."""
        for attempt in _attempts(item):
            life = self.lives.get(attempt)
            if life is None or life.end is not None:
                self.wrong.append(f"{attempt}: ends as {end}, but was {life.end if life else 'never granted'}")
                continue
            life.end, life.code = end, code
            self.used[life.node].subtract(self.stages[attempt[:2]]["demand"])
            if end == "succeeded":
                self.done.add(attempt[:3])


def tell(journal: Journal) -> Story:
    """Goes through the log's attempts: each granted once, after what it waits for, into free room, and ended once."""
    story = Story()
    for entry in journal.log:
        body = entry.body
        match entry.type:
            case "JobAdmitted":
                name = body["spec"]["job"]
                story.stages |= {(name, stage["stage"]): stage for stage in body["spec"]["stages"]}
            case "NodeRegistered":
                _register(story, body)
            case "NodeLost":
                for item in body["lost"]:
                    story.end(item, "lost")
            case "RoundClosed":
                _grant(story, entry)
            case "TaskStarted":
                _start(story, body)
            case "TaskFinished":
                for item in body["items"]:
                    story.end(item, "succeeded")
            case "TaskFailed":
                for item in body["items"]:
                    story.end(item, item["reason"], item["exit_code"])
    story.wrong += [f"{attempt}: never ended" for attempt, life in story.lives.items() if life.end is None]
    return story


def _register(story: Story, body: dict[str, Any]) -> None:
    node = body["node"]
    story.capacity[node] = body["capacity"]
    story.used.setdefault(node, Counter())
    for item in body["lost"]:
        story.end(item, "lost")
    for item in body["attempts"]:
        if item["state"] != "running":
            story.end(item, item["reason"] or "succeeded", item["exit_code"])


def _grant(story: Story, entry: Entry) -> None:
    nodes: set[str] = set()
    for grant in entry.body["grants"]:
        stage, node = story.stages[grant["job"], grant["stage"]], grant["node"]
        nodes.add(node)
        for before in stage["after"]:
            tasks = story.stages[grant["job"], before]["tasks"]
            if any((grant["job"], before, index) not in story.done for index in range(tasks)):
                story.wrong.append(f"{entry.record['id']}: {grant['job']}/{stage['stage']} before {before} is done")
        for attempt in _attempts(grant):
            if attempt in story.lives:
                story.wrong.append(f"{attempt}: is granted twice")
            story.lives[attempt] = Life(node)
            story.used[node].update(stage["demand"])
    for node in sorted(nodes):
        over = {r: n for r, n in story.used[node].items() if n > story.capacity[node].get(r, 0)}
        if over:
            story.wrong.append(f"{entry.record['id']}: {node} holds {over}, more than it has")


def _start(story: Story, body: dict[str, Any]) -> None:
    for item in body["items"]:
        for attempt in _attempts(item):
            life = story.lives.get(attempt)
            if life is None or life.starts or life.end is not None:
                story.wrong.append(f"{attempt}: starts, but {life or 'was never granted'}")
            else:
                life.starts += 1


def _attempts(item: dict[str, Any]) -> list[Attempt]:
    indexes = range(item["first"], item["first"] + item["count"])
    return [(item["job"], item["stage"], index, item["attempt"]) for index in indexes]


def check_proofs(story: Story, proofs: list[Proof], twice: list[str], *, guardians_killed: bool) -> list[str]:
    """What ran is what was granted, once each, and ended as the log says."""
    wrong = [f"{name}: was started twice" for name in twice]
    by_attempt = {(proof.job, proof.stage, proof.index, proof.attempt): proof for proof in proofs}
    wrong += [f"{attempt}: ran without a grant" for attempt in by_attempt if attempt not in story.lives]
    for attempt, life in story.lives.items():
        proof = by_attempt.get(attempt)
        if not story.stages[attempt[:2]]["command"]:
            continue
        if life.end in ("succeeded", "exit_code"):
            code = 0 if life.end == "succeeded" else life.code
            if proof is None or proof.ended != code:
                wrong.append(f"{attempt}: {life.end} with code {code} in the log, but {proof}")
        elif life.end == "lost" and proof is not None and not guardians_killed:
            wrong.append(f"{attempt}: ran, and its work was thrown away: {proof}")
    return wrong


# ---------------------------------------------------------------- jobs
def check_jobs(journal: Journal, jobs: Iterable[Job], acknowledged: Iterable[str]) -> list[str]:
    """Every acknowledged job was admitted once and ended once, as it had to; nothing else was admitted."""
    admitted = Counter(entry.body["spec"]["job"] for entry in journal.of("JobAdmitted"))
    ends: dict[str, list[str]] = {}
    for entry in journal.of("JobEnded"):
        for end in entry.body["jobs"]:
            ends.setdefault(end["job"], []).append(end["outcome"])
    expected = {job.name: job.outcome for job in jobs}
    known = {*acknowledged}
    wrong = [f"{name}: admitted {admitted[name]} times" for name in sorted(known | {*admitted}) if admitted[name] != 1]
    wrong += [f"{name}: was never submitted" for name in sorted(admitted) if name not in expected]
    for name in sorted(admitted):
        if ends.get(name) != [expected.get(name)]:
            wrong.append(f"{name}: ended {ends.get(name)}, expected {expected.get(name)}")
    return wrong
