"""The page over HTTPS in a real browser: it loads under its policy, and a session lives in a cookie bound to TLS."""

import asyncio
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from tests.browser import needs_chromium
from tests.http_rig import GUARD_S, run_over_http
from tests.page_reader import readers
from tests.tls_files import tls_files
from tests.token_cell import request_of, secret

pytestmark = [pytest.mark.slow, needs_chromium]


@contextmanager
def a_closed_cell(files):
    """The address of a gateway whose cell has a token, over TLS."""
    ready, over, found = Event(), Event(), []

    async def story(served):
        made = request_of("admin", "root", [{"role": "admin"}])
        await served.follower.send("access", {"make": made}, "tester", GUARD_S)
        found.append(f"https://127.0.0.1:{served.port}")
        ready.set()
        await asyncio.to_thread(over.wait, GUARD_S)

    serving = Thread(target=run_over_http, args=(story,), kwargs={"tls": files})
    serving.start()
    try:
        assert ready.wait(GUARD_S)
        yield found[0]
    finally:
        over.set()
        serving.join()


def test_the_page_works_over_https_and_signs_in(tmp_path):
    with a_closed_cell(tls_files(tmp_path / "tls")) as url, readers(url) as make:
        tab = make(ignore_https_errors=True)
        tab.tab.goto(tab.url)
        tab.until("document.querySelector('h1')?.innerText === 'Sign in to this cell'")
        tab.tab.fill("input[name=token]", secret("admin"))
        tab.tab.click("text=Sign in >> nth=-1")
        tab.until("document.querySelector('nav.views')")
        tab.settled()
        tab.open("nodes")

        assert "n1" in tab.text()
        (cookie,) = tab.tab.context.cookies()
        assert cookie["name"] == f"__Host-largesse-session-{url.rpartition(':')[2]}"
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        assert (tab.complaints, tab.elsewhere()) == ([], [])

        with tab.tab.expect_response(lambda answer: answer.url.endswith("/drain")) as drained:
            tab.tab.evaluate("fetch('/v1/nodes/n1/drain', {method: 'POST'})")
        assert drained.value.status == 200
