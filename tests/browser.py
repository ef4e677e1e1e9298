"""Debian's Chromium, without a window: what a page looks like once its scripts have run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GUARD_S = 300

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")


def dom_of(page: Path, profile: Path, width: int = 1_200) -> tuple[str, str]:
    """The document as it stands after its scripts, and what the browser wrote to its console. It reaches no network."""
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium has none for root.
        *("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9"),
        *(f"--user-data-dir={profile}", f"--window-size={width},900"),
        *("--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=True)
    return ran.stdout, "\n".join(re.findall(r".*CONSOLE.*", ran.stderr))
