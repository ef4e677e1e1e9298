"""Bundles with other names: decided again the same but for names, without an original name in their bytes."""

import gzip
import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from hypothesis import strategies as st

from largesse.log.export import ExportWriter
from schemas import ConfigChanged, JobAdmitted, NodeRegistered, RoundClosed, TaskFailed
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.bundling import Slice
from services.replay.redacting import NotRedactable, names_of, write_redacted
from services.replay.redaction import KEPT_WORDS, TEXT, Names, masked, words_of
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate
from tests.golden import log_path
from tests.simulation.runs import cluster, job, stage
from tests.simulation.test_bundles import bundled, drawn, records_of
from tests.strategies import for_all
from tests.unit.cli_here import largesse

SECRET = b"a secret"
PRESETS = get_args(Preset)


def redacted(source, path, first=None, last=None):
    _, names = write_redacted(source, path, Slice(first, None, last), SECRET)
    return open_source(path), names


# ---------------------------------------------------------------- names
letters = st.text(st.sampled_from("abcdefrsuxyzAZ019\u00e9\u0301\U0001f428"), min_size=1, max_size=3)
separators = st.sampled_from(["-", ".", "/", " ", "+"])
texts = st.lists(st.tuples(letters | st.sampled_from(list(KEPT_WORDS)), separators), min_size=1, max_size=4).map(
    lambda parts: "".join(word + separator for word, separator in parts)[:-1]
)


@for_all(st.lists(texts, min_size=2, max_size=12, unique=True), st.binary(min_size=1, max_size=4))
def test_names_keep_their_order_alone_and_put_together(found, secret):
    names = Names([word for name in found for word in words_of(name)], secret)
    for one, other in combinations(found, 2):
        assert (names.of(one) < names.of(other)) == (one < other)
        assert (names.of(one) + "/0" < names.of(other) + "/0") == (one + "/0" < other + "/0")
    assert len({names.of(name) for name in found}) == len(found)
    assert {names.given[names.of(name)] for name in found} == set(found)


@for_all(st.lists(texts, min_size=1, max_size=12))
def test_numbers_stay_numbers_and_words_stay_words(found):
    names = Names([word for name in found for word in words_of(name)], b"secret")
    for word in [word for name in found for word in words_of(name)]:
        assert names.of(word).isdecimal() == word.isdecimal()
        assert names.of(word)[0].isdecimal() == word[0].isdecimal()
        assert (names.of(word) == word) == (word in KEPT_WORDS) or word.isdecimal()


def test_another_secret_gives_other_names():
    words = [f"name{number}" for number in range(50)]
    one, other = Names(words, b"one"), Names(words, b"other")

    assert sum(one.of(word) == other.of(word) for word in words) < 5
    assert [Names(words, b"one").of(word) for word in words] == [one.of(word) for word in words]


def test_commands_that_differ_in_numbers_alone_stay_alike():
    names = Names([], SECRET)

    assert names.of_command("--seed=17") == names.of_command("--seed=4")
    assert names.of_command("--seed=17") != names.of_command("--size=17")


# ---------------------------------------------------------------- logs
@pytest.mark.rotating(3)
@pytest.mark.parametrize("preset", PRESETS)
def test_decisions_are_the_same_but_for_names(tmp_path, preset):
    random = Random(preset)
    source = drawn(tmp_path / "log", random.randrange(100), preset)
    records = records_of(source)
    first, last = sorted(random.sample(range(1, len(records) + 1), 2))
    found, names = redacted(source, tmp_path / "redacted", first, last)
    plain = bundled(source, tmp_path / "plain", first, last)
    old = names.given

    verdict = verify(found)
    assert verdict.difference is None, verdict.text()
    assert verdict.rounds_compared == verify(plain).rounds_compared
    for one, other in zip(records_of(plain), records_of(found), strict=True):
        assert (one.type, one.seq, one.round, one.time) == (other.type, other.seq, other.round, other.time)
        if isinstance(one.body, RoundClosed):
            grants = [
                (old[each.job], old[each.stage], each.first, each.count, old[each.node]) for each in other.body.grants
            ]
            assert grants == [(each.job, each.stage, each.first, each.count, each.node) for each in one.body.grants]
        assert masked(names.body(one.body)) == masked(other.body)


def test_a_live_cell_s_log_is_redacted_too(tmp_path):
    source = open_source(log_path())
    found, _ = redacted(source, tmp_path / "redacted", len(records_of(source)) // 2)

    assert verify(found).is_same
    assert verify(found).prefix != verify(source).prefix


USERS = ("quokkauser", "wombatuser")


@pytest.fixture(scope="module")
def secretive(tmp_path_factory):
    """A log that names animals only."""
    nodes = cluster(3, 4)
    nodes["nodes"] = [
        {"name": f"numbat{n}", "capacity": {"cpu": 4, "memory": "8Gi"}, "labels": {"dingozone": f"emu{n % 2}"}}
        for n in range(3)
    ]
    nodes["queues"] = {
        "name": "root",
        "children": [{"name": "kookaburra", "children": [{"name": "echidna", "weight": 2}, {"name": "possum"}]}],
    }
    lines = []
    for number in range(12):
        work = stage(tasks=3, duration_ms=3_000 + 700 * number) | {"stage": "bandicoot"}
        if number % 3 == 0:
            work |= {"labels": {"dingozone": "emu1"}}
        line = job(f"kangaroo-{number}", work)
        line |= {"queue": f"kookaburra/{('echidna', 'possum')[number % 2]}", "user": USERS[number % 2]}
        spec = read_workload_line(line)[1]
        run = {"command": ["wallaby.sh", f"--platypus={number}"], "env": {"CASSOWARY": "galah"}, "cwd": "/brolga"}
        lines.append((400 * number, replace(spec, stages=[replace(each, **run) for each in spec.stages])))
    path = tmp_path_factory.mktemp("secretive") / "log.gz"
    outages = [Outage("numbat0", 4_000, 60_000)]
    with ExportWriter(path) as writer:
        simulate(lines, read_cluster(nodes), Options({"preset": "largesse"}, listener=writer, outages=outages))
    return open_source(path)


ANIMALS = re.compile(
    rb"(?i)quokka|wombat|numbat|dingo|emu[01]|kookaburra|echidna|possum|bandicoot|wallaby|platypus|cassowary|galah|brolga"
    rb"|kangaroo"
)


def test_no_original_name_is_in_its_bytes(secretive, tmp_path):
    records = records_of(secretive)
    first = len(records) // 3
    plain = bundled(secretive, tmp_path / "plain", first)
    found, names = redacted(secretive, tmp_path / "redacted", first)

    assert len({*map(bytes.lower, ANIMALS.findall(Path(plain.name).read_bytes()))}) == 16
    assert not ANIMALS.findall(Path(found.name).read_bytes())
    assert verify(found).is_same
    known = " ".join(names.given.values())
    assert all(name in known for name in ("quokkauser", "numbat0", "dingozone", "kookaburra/echidna", "kangaroo-7"))
    bodies = [record.body for record in [*found.start.before, *records_of(found)]]
    assert any(isinstance(body, TaskFailed | JobAdmitted | NodeRegistered | ConfigChanged) for body in bodies)
    commands = [s.command for body in bodies if isinstance(body, JobAdmitted) for s in body.spec.stages]
    assert len({tuple(command) for command in commands}) == 1
    env = [s.env for body in bodies if isinstance(body, JobAdmitted) for s in body.spec.stages]
    assert all(list(each.values()) == [TEXT] for each in env)


def test_a_bundle_is_not_redacted(secretive, tmp_path):
    plain = bundled(secretive, tmp_path / "plain", 50)

    with pytest.raises(NotRedactable, match="redact that log itself"):
        redacted(plain, tmp_path / "redacted")


def test_rounds_of_other_rules_are_not_redacted(tmp_path):
    source = open_source(log_path(7))

    with pytest.raises(NotRedactable, match="decided by rules 7"):
        redacted(source, tmp_path / "redacted")
    assert not (tmp_path / "redacted").exists()


def test_what_depends_on_names_by_a_draw_is_refused_and_said(tmp_path):
    second = stage(tasks=3, duration_ms=900) | {"stage": "t", "after": ["s"]}
    work = [job(f"j{number}", stage(tasks=2, duration_ms=2_000), second) for number in range(30)]
    lines = [(50 * number, read_workload_line(line)[1]) for number, line in enumerate(work)]
    values = {"preset": "carbyne", "altruism_permille": 500}
    with ExportWriter(tmp_path / "log") as writer:
        simulate(lines, read_cluster(cluster(2, 4)), Options(values, listener=writer))
    with pytest.raises(NotRedactable, match=r"RoundClosed \d+ depends on names"):
        redacted(open_source(tmp_path / "log"), tmp_path / "redacted")

    assert not (tmp_path / "redacted").exists()


# ---------------------------------------------------------------- the command
def test_the_command_writes_the_map_for_its_maker_alone(secretive, tmp_path):
    target, names = tmp_path / "out.gz", tmp_path / "names.json"
    said = largesse("bundle", secretive.name, target, "--redact", "--map", names, "--from", "100")

    assert said.code == 0, said.err
    assert names.stat().st_mode & 0o777 == 0o600
    given = json.loads(names.read_text())["names"]
    assert "kangaroo-3" in given.values()
    data = gzip.decompress(target.read_bytes())
    assert not ANIMALS.findall(data)
    new = next(new for new, name in given.items() if name == "kangaroo-7")
    assert new.encode() in data
    assert largesse("replay", target, "--verify").code == 0
    assert largesse("tail", target, "--job", new, "--json").out
    assert largesse("bundle", secretive.name, target, "--redact", "--map", names).code == 2
    assert largesse("bundle", secretive.name, tmp_path / "b", "--map", tmp_path / "m").code == 2
    again = largesse("bundle", secretive.name, target, "--redact", "--map", names, "--force", "--json", "--from", "100")
    assert again.code == 0
    assert json.loads(names.read_text())["names"] != given
    assert "cannot be redacted" in largesse("bundle", target, tmp_path / "c", "--redact").err
    assert names_of(secretive, SECRET).of("kangaroo-7") != new
