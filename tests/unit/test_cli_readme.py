import json
import re

import pytest

from schemas.edge.read import read_cluster, read_input, warnings_of
from services.gateway.bodies import read_yaml
from tests.unit.cli_here import largesse
from tests.unit.cli_process import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_job_of_the_readme_is_one():
    document = read_yaml(blocks("yaml")[0].encode())

    read_input("jobs", document, "")
    assert warnings_of(document) == []


def test_the_cluster_of_the_readme_is_one():
    (text,) = blocks("json")

    assert len(read_cluster(json.loads(text)).nodes) == 100


def test_the_queues_of_the_readme_are_those_of_the_example():
    _, text = blocks("yaml")
    document = read_yaml(text.encode())

    read_input("config", document, "")
    assert warnings_of(document) == []
    assert (ROOT / "examples" / "queues.yaml").read_text().partition("\n")[2] == text


COMMANDS = sorted(
    {tuple(words.split()) for words in re.findall(r"largesse ((?:(?:get|node|config) )?[a-z]+)\b", README)}
)


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] not in ("data", "as")], ids=" ".join)
def test_a_command_of_the_readme_is_there(words):
    assert largesse(*words, "--help").code == 0
