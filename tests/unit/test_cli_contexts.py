"""Contexts: which gateway is asked and as whom, by option, environment, context or default; and their file."""

import json

import pytest

from largesse.access import URL_DEFAULT
from schemas.wording import nearest
from services.cli import contexts
from services.cli.client import gateway_url, settled, user
from services.cli.contexts import Config, Context, config_path, read_config, write_config
from services.cli.ending import Wrong
from tests.unit.cli_here import largesse

PROD, TEST = "http://prod:1", "http://test:2"
FILE = f"""
context = "prod"  # As a person writes it.

[contexts.prod]
url = "{PROD}/"
user = "ann"

[contexts.test]
url = "{TEST}"

[contexts."a b"]
user = "bob"
"""


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An empty config folder, and an environment that says nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LARGESSE_URL", "LARGESSE_USER", "LARGESSE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "the-account")
    return tmp_path


@pytest.fixture
def file(home):
    path = home / "largesse" / "config.toml"
    path.parent.mkdir()
    path.write_text(FILE)
    return path


def resolved(url=None, context=None):
    """The gateway and the user that count, where `--url` and `--context` say this."""
    token = contexts.asked.set(context)
    try:
        return gateway_url(url)[0], user()
    finally:
        contexts.asked.reset(token)


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        pytest.param({}, {}, (PROD, "ann"), id="the file's context counts where nothing else is said"),
        pytest.param({}, {"LARGESSE_URL": TEST}, (TEST, "ann"), id="the environment beats it"),
        pytest.param({}, {"LARGESSE_USER": "eve"}, (PROD, "eve"), id="each for itself"),
        pytest.param({}, {"LARGESSE_CONTEXT": "test"}, (TEST, "the-account"), id="it may name another context"),
        pytest.param({}, {"LARGESSE_CONTEXT": "test", "LARGESSE_URL": PROD}, (PROD, "the-account"), id="or an address"),
        pytest.param({"url": "http://o:3"}, {"LARGESSE_URL": TEST}, ("http://o:3", "ann"), id="an option beats all"),
        pytest.param({"context": "test"}, {"LARGESSE_URL": PROD}, (TEST, "the-account"), id="a context's option, too"),
        pytest.param({"context": "test", "url": PROD}, {}, (PROD, "the-account"), id="the address is the last word"),
        pytest.param({"context": "a b"}, {}, (URL_DEFAULT, "bob"), id="what a context leaves out is as without it"),
    ],
)
def test_an_option_beats_the_environment_and_that_the_context(file, monkeypatch, options, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert resolved(**options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "east", id="the context's"),
        pytest.param({"cell": "west"}, "west", id="an option beats it"),
        pytest.param({"url": TEST}, None, id="it is a cell of its own gateway"),
        pytest.param({"url": TEST, "cell": "west"}, "west", id="an option counts for any"),
        pytest.param({"context": "test"}, None, id="a context that names none"),
        pytest.param({"context": "a b"}, "south", id="of whatever gateway counts, where its context names none"),
    ],
)
def test_the_cell_of_a_context_counts_for_its_gateway(file, options, expected):
    file.write_text(FILE.replace('user = "ann"', 'cell = "east"').replace('user = "bob"', 'cell = "south"'))
    before = contexts.asked.set(options.get("context")), contexts.asked_cell.set(options.get("cell"))
    try:
        found = contexts.way_in().cell_of(gateway_url(options.get("url"))[1])[0]
    finally:
        contexts.asked.reset(before[0])
        contexts.asked_cell.reset(before[1])

    assert found == expected


def test_without_a_file_the_default_counts(home):
    assert resolved() == (URL_DEFAULT, "the-account")
    assert read_config() == Config()


def test_a_relative_config_home_is_ignored(home, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(home))

    assert config_path() == home / ".config" / "largesse" / "config.toml"


def test_what_counts_is_told_with_what_says_so(file):
    assert settled(None) == {
        "url": {"value": PROD, "from": f"context prod in {file}"},
        "user": {"value": "ann", "from": f"context prod in {file}"},
        "token": {"value": "none", "from": "nothing that names one"},
        "ca_file": {"value": "the system's", "from": "nothing that names others"},
        "cell": {"value": "its own", "from": "the gateway"},
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("context = 1", 'context: has to be a text of one line, like context = "..."'),
        ("contxt = 'a'", 'contxt: unknown field; did you mean "context"?'),
        ("contexts = 1", "contexts: has to be a table, like [contexts.prod]"),
        ("[contexts]\nprod = 1", "contexts.prod: has to be a table with url, user, token_file, ca_file, cell"),
        ("[contexts.prod]\nulr = 'x'", 'contexts.prod: ulr: unknown field; did you mean "url"?'),
        ("[contexts.prod]\nurl = ''", 'contexts.prod: url: has to be a text of one line, like url = "..."'),
        ("[contexts.-x]\nurl = 'http://a'", "contexts.-x: a context's name may not begin with -, as options do"),
        ("[contexts", "is not valid TOML: "),
        ('context = "nowhere"', "no context 'nowhere' in"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_the_place(file, text, fault):
    file.write_text(text)

    with pytest.raises(Wrong) as caught:
        resolved()
    assert str(caught.value).startswith(str(file))
    assert fault in str(caught.value)


def test_a_file_that_is_not_needed_is_not_read(file, monkeypatch):
    file.write_text("[contexts")
    monkeypatch.setenv("LARGESSE_USER", "ann")

    assert resolved(url=PROD) == (PROD, "ann")


def test_an_unknown_context_is_told_with_the_nearest(file):
    with pytest.raises(Wrong, match=r"--context: no context 'prd' in .*: did you mean .prod"):
        resolved(context="prd")
    assert nearest("prd", ["prod"]) == "prod"


@pytest.mark.parametrize("name", ["prod", "a b", 'q"\\', "é.x", "x" * 63])
def test_what_is_written_reads_back(home, name):
    config = Config(name, {name: Context(name, "http://[::1]:8", 'an"n\\'), "other": Context("other", None, "bob")})
    write_config(config)

    assert read_config() == config
    assert config_path().stat().st_mode & 0o077 == 0
    assert [path.name for path in config_path().parent.iterdir()] == ["config.toml"]


def test_contexts_are_made_used_shown_and_removed(home):
    def ask(*words):
        return largesse(*words, XDG_CONFIG_HOME=str(home))

    assert ask("context", "list").out == "context\tcurrent\turl\tuser\ttoken file\tCA file\tcell\n"
    assert ask("context", "set", "prod", "--url", PROD + "/", "--user", "ann").code == 0
    assert ask("context", "set", "test", "--url", TEST).code == 0
    assert ask("context", "list").out.splitlines()[1:] == [f"prod\t*\t{PROD}\tann\t\t\t", f"test\t\t{TEST}\t\t\t\t"]
    assert ask("context", "use", "test").code == 0
    shown = json.loads(ask("context", "show", "--json").out)
    assert (shown["url"]["value"], shown["user"]["value"]) == (TEST, "the-account")
    assert ask("--context", "prod", "get", "jobs").err.startswith(f"largesse: no answer from {PROD}: ")
    assert ask("context", "remove", "test").out == "test is removed: no context is the current one now\n"
    assert json.loads(ask("context", "list", "--json").out) == [
        {"context": "prod", "current": False, "url": PROD, "user": "ann"}
        | {"token_file": None, "ca_file": None, "cell": None}
    ]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["set", "prod"], "--url: a context needs an address or a user"),
        (["set", "--", "-x", "--url", PROD], "NAME: '-x' may not begin with -"),
        (["set", "prod", "--url", "prod"], "--url: prod is not the address of a gateway"),
        (["set", "prod", "--user", "a\nb"], "--user: has to be"),
        (["set", "prod", "--cell", "a/b"], "--cell: 'a/b' has to be 1 to 63 letters"),
        (["use", "prod"], "NAME: no context 'prod' in"),
        (["remove", "prod"], "NAME: no context 'prod' in"),
    ],
)
def test_what_cannot_be_a_context_is_refused_and_nothing_is_written(home, words, fault):
    said = largesse("context", *words, XDG_CONFIG_HOME=str(home))

    assert (said.code, said.out) == (2, "")
    assert fault in said.err
    assert not config_path().exists()
