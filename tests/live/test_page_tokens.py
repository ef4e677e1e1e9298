"""The page of a cell that has tokens, in a real browser: signing in and out, and what a role does not get to see."""

import json

import httpx
import pytest

from tests.browser import needs_chromium
from tests.live.up_jobs import shell
from tests.live.up_process import up
from tests.page_reader import readers

pytestmark = [pytest.mark.slow, needs_chromium]

STAGE = {"stage": "s", "tasks": 1, "demand": {"cpu": "100m", "memory": "32Mi"}, "command": [*shell("sleep 900")]}
IS_FORM = "document.querySelector('h1')?.innerText === 'Sign in to this cell'"


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    with up(tmp_path_factory.mktemp("page"), "--nodes", 1) as running:
        tokens = {}

        def make(name, user, role):
            env = {"LARGESSE_TOKEN": tokens["admin"]} if tokens else {}
            said = running.ask("token", "make", name, "--user", user, "--role", role, **env)
            assert said.code == 0, said.err
            tokens[name] = said.out.strip()

        make("admin", "root", "admin")
        make("ann", "ann", "submitter")
        make("bob", "bob", "submitter")
        make("vera", "vera", "viewer")
        for user in ("ann", "bob"):
            job = json.dumps({"job": f"of-{user}", "stages": [STAGE]})
            said = running.ask("submit", "-", stdin=job, LARGESSE_TOKEN=tokens[user])
            assert said.code == 0, said.err
        running.tokens = tokens
        yield running


def signed_in(tab, token):
    tab.tab.goto(tab.url)
    tab.until(IS_FORM)
    tab.tab.fill("input[name=token]", token)
    tab.tab.click("text=Sign in >> nth=-1")
    tab.until("document.querySelector('nav.views')")
    tab.settled()


def test_a_stranger_sees_a_form_and_nothing_else_and_a_wrong_token_does_not_help(cell):
    with readers(cell.url) as make:
        tab = make()
        tab.tab.goto(tab.url)
        tab.until(IS_FORM)
        assert tab.complaints == []
        assert tab.violations() == []
        assert {url.partition("/v1/")[2] for url in tab.asked if "/v1/" in url} == {"session"}

        tab.tab.fill("input[name=token]", "lgt_wrong")
        tab.tab.click("text=Sign in >> nth=-1")
        tab.until("document.querySelector('[role=alert]')")
        assert "does not know this token" in tab.text("[role=alert]")
        assert all("401" in each for each in tab.complaints)


def test_a_viewer_sees_the_cell_and_changes_nothing_of_it(cell):
    with readers(cell.url) as make:
        tab = make()
        signed_in(tab, cell.tokens["vera"])
        assert "Submit" not in tab.text("nav.views")
        tab.tab.click("text=Settings")
        assert "Signed in as vera" in tab.text(".choices")
        assert "Ask as" not in tab.text(".choices")
        tab.open("jobs/of-ann")
        assert "Cancel" not in tab.text()
        assert "Output is shown to the job's user, and to operators." in tab.text()
        tab.open("nodes/node-0")
        assert "Drain" not in tab.text(".head")
        tab.open("submit")
        assert "There is no such view" in tab.text()
        assert tab.complaints == []
        assert tab.tab.evaluate("document.cookie") == ""


def test_a_submitter_cancels_its_own_job_alone(cell):
    with readers(cell.url) as make:
        tab = make()
        signed_in(tab, cell.tokens["ann"])
        tab.open("jobs/of-bob")
        assert "Cancel" not in tab.text()
        tab.open("jobs/of-ann")
        tab.tab.click("main .head button.grave")
        tab.tab.click("dialog button.grave")
        tab.until("document.querySelector('dialog .done')")
        records = httpx.get(
            f"{cell.url}/v1/records",
            params={"type": "JobCancelled", "whole": 1},
            headers={"Authorization": f"Bearer {cell.tokens['vera']}"},
        ).json()["records"]
        said = [(row["record"]["body"]["job"], row["record"]["body"]["author"]) for row in records]
        assert said == [("of-ann", "ann")]
        assert tab.complaints == []


def test_signing_out_and_a_revoked_token_both_lead_to_the_form(cell):
    admin = {"LARGESSE_TOKEN": cell.tokens["admin"]}
    said = cell.ask("token", "make", "short", "--user", "eve", "--role", "viewer", **admin)
    with readers(cell.url) as make:
        tab = make()
        signed_in(tab, said.out.strip())
        tab.tab.click("text=Settings")
        tab.tab.click("text=Sign out")
        tab.until(IS_FORM)
        tab.tab.reload()
        tab.until(IS_FORM)

        signed_in(tab, said.out.strip())
        assert cell.ask("token", "revoke", "short", **admin).code == 0
        tab.until(IS_FORM)
