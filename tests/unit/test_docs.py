"""README and docs/: every example can be read, every command and setting exists, every link leads somewhere."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from typing import get_args

import pytest

from largesse.bodies import read_yaml
from largesse.settings import PREFIX, Settings
from schemas.edge.cluster import read_cluster
from schemas.edge.mqtt import read_ask, read_down, read_fetch, read_reply, read_up
from schemas.edge.nodes import DevicesInput, devices_in
from schemas.edge.read import read_input, warnings_of
from schemas.edge.short_forms import TASK_VARIABLES
from schemas.edge.validated import validated
from schemas.policy import KNOBS, Policy
from schemas.presets import PRESETS, Preset
from schemas.registry import NEWEST
from services.agent.settings import VARIABLES as AGENT
from services.bridge.settings import VARIABLES as BRIDGE
from services.cli.job_files import expanded
from services.cli.kafka_rights_page import PAGE as KAFKA_RIGHTS_PAGE
from services.cli.kafka_rights_page import kafka_rights_page
from services.cli.records_page import PAGE as RECORDS
from services.cli.records_page import records_page
from services.cli.rights_page import PAGE as RIGHTS_PAGE
from services.cli.rights_page import rights_page
from services.cli.settings_page import PAGE, settings_page
from services.gateway.documents.jobs import WHY
from services.gateway.shell import VARIABLES as GATEWAY
from services.planner.offline.solve import solve
from services.planner.rdl.document import read_document
from services.planner.rdl.times import clock
from services.router.settings import VARIABLES as ROUTER
from tests.unit.cli_here import largesse
from tests.unit.cli_process import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def all_blocks(language):
    return [
        pytest.param(text, id=f"{page.name}-{i}")
        for page in PAGES
        if page != RECORDS  # Its examples are samples of the schemas.
        for i, text in enumerate(blocks(page, language))
    ]


@pytest.mark.parametrize("text", all_blocks("yaml"))
def test_a_yaml_example_is_a_job_a_config_a_cluster_or_a_reservation(text):
    if text.startswith("op:"):
        assert read_document(text, clock())["op"] == "window"
        return
    document = read_yaml(text.encode())

    if "task:" in text:
        pytest.skip("the mistake that the tutorial shows")
    if "nodes" in document:
        assert read_cluster(document).nodes
        return
    if "gpu" in document:
        assert devices_in(validated(DevicesInput, document), "")
        return
    document = expanded(document, (), ROOT)
    read_input("config" if "queues" in document else "jobs", document, "")
    assert warnings_of(document) == []


@pytest.mark.parametrize("text", all_blocks("json"))
def test_a_json_example_is_a_cluster_a_job_of_a_workload_or_what_nodes_say_over_mqtt(text):
    document = json.loads(text)

    if "nodes" in document:
        assert len(read_cluster(document).nodes) == 100
    elif "messages" in document:
        assert [read_input(message.topic, message.document, "") for message in read_up(text.encode()).messages or []]
    elif "work" in document:
        assert read_down(text.encode()).answered
    elif "of" in document:
        assert read_fetch(text.encode()).of != document["node"]
    elif "path" in document:
        assert read_ask(text.encode()).bridge
    elif "content" in document:
        assert read_reply(text.encode()).status == 200
    else:
        document.pop("submit_ms")
        read_input("jobs", document, "")


def test_the_queues_of_the_page_are_those_of_the_example():
    (text,) = blocks(ROOT / "docs" / "queues.md", "yaml")

    assert (ROOT / "examples" / "queues.yaml").read_text().partition("\n")[2] == text


def test_the_cluster_with_gpus_of_the_page_on_jobs_is_that_of_the_example_and_runs_its_gang():
    (text,) = [text for text in blocks(ROOT / "docs" / "jobs.md", "yaml") if text.startswith("nodes:")]
    cluster = read_cluster(read_yaml(text.encode()))
    spec = read_input("jobs", read_yaml((ROOT / "examples" / "gpu-gang.yaml").read_bytes()), "")
    (workers,) = spec.stages
    room = [
        min(node.capacity.get(kind, 0) // amount for kind, amount in workers.demand.items()) for node in cluster.nodes
    ]

    assert read_yaml((ROOT / "examples" / "clusters" / "laptop.yaml").read_bytes()) == read_yaml(text.encode())
    assert (workers.gang, sorted(room), sum(room)) == (True, [0, 2, 2], workers.tasks)


RESERVED = ROOT / "examples" / "reservations"
PAGE_OF_RESERVATIONS = ROOT / "docs" / "reservations.md"


def test_the_job_of_the_page_on_reservations_is_that_of_the_example():
    text = next(text for text in blocks(PAGE_OF_RESERVATIONS, "yaml") if text.startswith("job:"))

    def read(source):
        return read_input("jobs", read_yaml(source.encode()), "")

    assert read(text) == read((RESERVED / "two-units.yaml").read_text())


def requests():
    """RDL that a reader is to try: the example, and the request that the page writes into a file."""
    (written,) = re.findall(r"^cat > report.rdl <<'END'\n(.*?)^END", PAGE_OF_RESERVATIONS.read_text(), re.DOTALL | re.M)
    return [("two-units", (RESERVED / "two-units.rdl").read_text()), ("report", written)]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in requests()])
def test_a_request_of_the_docs_is_accepted_by_a_machine_of_one_core(text):
    monday = {"origin": "2026-11-23T00:00Z", "step_s": 60, "horizon_s": 7 * 86_400}
    asked = {"op": "submit", "id": "r", "user": "ann", "rdl": text}

    found = solve(
        {"kind": "reservation", "input": {**monday, "capacity": {"cpu": "1", "memory": "1Gi"}, "sequence": [asked]}}
    )

    assert [answer["accepted"] for answer in found["results"]] == [True]


GROUPS = "archive|get|node|config|admin|context|import|reserve|token"


def commands_of(page):
    """Commands between backticks, in blocks, and in tables, with the words that follow `largesse`."""
    text = page.read_text()
    code = [*re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE), *re.findall(r"`([^`\n]+)`", text)]
    found = re.findall(rf"(?<!-n )\blargesse ((?:(?:{GROUPS}) )?[a-z][a-z-]*)\b(?![-./])", "\n".join(code))
    return {tuple(words.split()) for words in found}


NOT_COMMANDS = {("data",), ("schedules",)}
COMMANDS = sorted(set().union(*map(commands_of, PAGES)) - NOT_COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_docs_is_there(words):
    assert largesse(*words, "--help").code == 0


def test_every_command_is_in_the_docs():
    listed = re.findall(r"^  ([a-z]+)  ", largesse("--help").out, re.MULTILINE)

    assert listed
    assert {name for name in listed if not any(words[0] == name for words in COMMANDS)} == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_the_options_of_an_example_are_there(page):
    for block in [*blocks(page, "sh"), *blocks(page, "console")]:
        for line in block.splitlines():
            command = re.match(rf"(?:\$ )?largesse ((?:(?:{GROUPS}) )?[a-z][a-z-]*)", line)
            if command is None:
                continue
            options = set(re.findall(r" (--[a-z-]+)", line.partition(" -- ")[0].partition("  #")[0])) - {"--context"}
            helped = largesse(*command[1].split(), "--help").out
            assert {option for option in options if option not in helped} == set(), line


def anchors(page):
    """As a forge makes them of headings: lower case, spaces to hyphens, punctuation gone."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_can_be_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        left += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())]

    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_variable_or_knob_of_the_docs_is_one(page):
    known = {PREFIX + knob.name.upper() for knob in fields(Settings)} | {
        PREFIX + name for name in (*AGENT, *BRIDGE, *GATEWAY, *ROUTER)
    }
    clients = ("ARCHIVE", "URL", "USER", "CONTEXT", "DEBUG", "TOKEN", "TOKEN_FILE", "CA_FILE")
    clients += ("ARCHIVE_KEY_FILE", "CHECKPOINT_EVERY", "CHECKPOINT_RECORDS", "KEEP_LOG", "SEGMENT_AGE")
    known |= {PREFIX + name for name in (*clients, "UP_OPTIONS", "ATTEMPT_KEY")}
    known |= {*TASK_VARIABLES}

    assert set(re.findall(r"\bLARGESSE_[A-Z_]+\b(?!\*)", page.read_text())) - known == set()


def test_every_knob_has_a_meaning_and_a_default_within_its_range():
    values = {name: getattr(Policy(), name) for name in KNOBS}
    numbers = {name: value for name, value in values.items() if type(value) is int}
    beyond = {name for name, value in numbers.items() if not KNOBS[name].least <= value <= KNOBS[name].most}

    assert len(numbers) > 40
    assert beyond == set()
    assert [name for name, knob in KNOBS.items() if not knob.help] == []


def test_the_page_on_queues_has_a_row_for_every_preset():
    page = (ROOT / "docs" / "queues.md").read_text(encoding="utf-8").partition("## Presets")[2]
    cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    named = [name for cell in cells for name in re.findall("`([a-z-]+)`", cell)]

    assert sorted(named) == sorted(PRESETS) == sorted(get_args(Preset))


def test_the_page_of_settings_is_current():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run `make docs`"


def test_the_page_of_rights_is_current():
    assert RIGHTS_PAGE.read_text(encoding="utf-8") == rights_page(), "run `make docs`"
    assert KAFKA_RIGHTS_PAGE.read_text(encoding="utf-8") == kafka_rights_page(), "run `make docs`"


def test_the_page_of_records_is_current_and_has_each_with_an_example():
    page = RECORDS.read_text(encoding="utf-8")
    assert page == records_page(), "run `make docs`"
    examples = re.findall(r"^### (\w+)\n.*?```json\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in examples] == list(NEWEST)
    assert all(isinstance(json.loads(example), dict) for _, example in examples)


@pytest.mark.slow
def test_the_check_of_that_page_notices_a_change(tmp_path):
    """As `make check` runs it."""
    code = (
        "import runpy, sys; from pathlib import Path; read = Path.read_text\n"
        "if sys.argv.pop() == 'changed':\n"
        "    Path.read_text = lambda path, **how: read(path, **how).replace('60,000', '61,000')\n"
        "runpy.run_module('services.cli.settings_page', run_name='__main__')"
    )
    checks = {
        how: subprocess.run(
            [sys.executable, "-c", code, "--check", how], capture_output=True, text=True, cwd=ROOT, check=False
        )
        for how in ("as-is", "changed")
    }

    assert checks["as-is"].returncode == 0, checks["as-is"].stderr
    assert checks["changed"].returncode == 1
    assert "make docs" in checks["changed"].stderr


def test_the_nights_of_the_page_on_reservations_are_in_time(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = next(text for text in blocks(PAGE_OF_RESERVATIONS, "sh") if "nightly.jsonl" in text)
    lines, command = re.fullmatch(r"cat > nightly.jsonl <<'END'\n(.*)END\n(.*)\n", text, re.DOTALL).groups()
    path = tmp_path / "nightly.jsonl"
    path.write_text(lines)

    words = command.replace("nightly.jsonl", str(path)).split()
    assert words[0] == "largesse"
    done = largesse(*words[1:], "--json")
    for result in json.loads(done.out)["presets"].values():
        rows = {each["reservation"]: each for each in result["reservations"]}
        assert [name for name, each in rows.items() if each["met"]] == list(rows)[:2]
        assert "nightly.19700101T010000Z" in rows
        assert "`nightly.19700101T010000Z`" in PAGE_OF_RESERVATIONS.read_text()


def test_the_page_on_errors_has_every_reason_to_wait():
    (section,) = re.findall(
        r"^## Why a job waits\n(.*?)^## ", (ROOT / "docs" / "errors.md").read_text(), re.DOTALL | re.M
    )
    listed = "".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `"))
    missing = [text for text in WHY.values() if max(re.split(r"{\w+}", text), key=len).strip() not in listed]

    assert missing == []
    assert len(WHY) > 10
