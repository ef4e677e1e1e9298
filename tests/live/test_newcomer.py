"""What README and the tutorial tell a newcomer to type, word for word, in an environment with nothing in it.

The commands are taken from the pages themselves: `sh` blocks are typed as they are; of `console` blocks the lines
after `$ `, and their output has to be what the page shows (`...` stands for anything). After the installation all of
it happens in a network namespace of its own, so that the port that the pages name is free. A run for every day borrows
the packages of the environment that it runs in, and only a whole run installs them anew.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.cli_process import ROOT

pytestmark = pytest.mark.slow

GUARD_S = 1_000
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
END = "-- end of output --"
UP = "cell `default` at http://127.0.0.1:8642"
LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING
"""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


class Namespace:
    """A network of its own, with a loopback interface; it ends with `close`."""

    def __init__(self):
        self.user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.holder = subprocess.Popen(["unshare", *self.user, "--net", "sleep", "infinity"])
        try:
            host = Path("/proc/self/ns/net").readlink()
            own = Path(f"/proc/{self.holder.pid}/ns/net")
            until(lambda: self.holder.poll() is not None or own.readlink() != host)
            if self.holder.poll() is not None:
                pytest.skip("no network namespace can be made here (unshare --net)")
            subprocess.run(self.command("python3", "-c", LOOPBACK_UP), check=True, timeout=GUARD_S)
        except BaseException:
            self.close()
            raise

    def command(self, *words):
        entered = ["--user", "--preserve-credentials"] if self.user else []
        return ["nsenter", "--target", str(self.holder.pid), *entered, "--net", "--", *words]

    def close(self):
        self.holder.kill()
        self.holder.wait()


def until(holds):
    deadline = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Newcomer:
    """Somebody with an empty home and an empty environment, and a folder with what a clone holds."""

    def __init__(self, tmp_path):
        self.home, self.checkout = tmp_path / "home", tmp_path / "largesse"
        self.home.mkdir()
        # What is tracked, as it is now: a file that nobody added would be missing in a clone, too.
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            target = self.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
        # Where this machine's pip finds packages is nothing that the documentation tells a newcomer.
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        self.environment = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        self.installing = self.environment | pip

    def borrow_environment(self):
        """Makes `.venv` with what these tests run on instead of what is locked, which takes no download."""
        venv = self.checkout / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        _, _, script = Path(sys.executable).with_name("largesse").read_text().partition("\n")
        command = venv / "bin" / "largesse"
        command.write_text(f"#!{venv}/bin/python\n{script}")
        command.chmod(0o755)
        (venv / ".ready").touch()

    def install(self, script):
        """Runs a block of commands that needs the network. The first one that fails ends it."""
        ran = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.checkout, env=self.installing, capture_output=True, text=True,
            timeout=GUARD_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


class Terminal:
    """A shell that lives on between commands, as a terminal's does."""

    def __init__(self, newcomer, namespace, errors):
        self.errors = errors.open("w+")
        self.shell = subprocess.Popen(
            namespace.command("bash", "--noprofile", "--norc"), cwd=newcomer.checkout, env=newcomer.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
            start_new_session=True,
        )  # fmt: skip

    def type(self, command):
        """What it writes to stdout, and its exit code."""
        self.shell.stdin.write(f"{command}\necho; echo '{END}' $?\n")
        lines = []
        for line in self.shell.stdout:
            if line.startswith(END):
                code = int(line.removeprefix(END))
                break
            lines.append(line)
        else:
            raise AssertionError(f"{command}: the shell ended")
        return "".join(lines).removesuffix("\n"), code

    def does(self, command):
        """What a command that has to succeed writes to stdout."""
        out, code = self.type(command)
        self.errors.seek(0)
        assert code == 0, f"{command}\n{out}\n{self.errors.read()}"
        return out

    def close(self):
        self.shell.stdin.close()
        self.shell.wait(GUARD_S)
        self.shell.stdout.close()
        self.errors.close()


class Cell:
    """The first terminal, in which `largesse up` runs until Ctrl-C."""

    def __init__(self, newcomer, namespace, script, said):
        self.said = said.open("w+")
        self.process = subprocess.Popen(
            namespace.command("bash", "-e", "-c", script), cwd=newcomer.checkout, env=newcomer.environment,
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        until(lambda: UP in said.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, said.read_text()

    def interrupt(self):
        """Ctrl-C: everything in the terminal's foreground gets it."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(GUARD_S)

    def close(self):
        if self.process.poll() is None:
            self.interrupt()
        self.said.close()


@pytest.fixture
def newcomer(tmp_path):
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout to clone here")
    return Newcomer(tmp_path)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def opened(stack, resource):
    stack.callback(resource.close)
    return resource


def matches(shown, written):
    """Whether the output is what the page shows: `...` alone on a line stands for any lines, else for any text."""
    pattern = ""
    for line in shown.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += re.escape(line).replace(re.escape("..."), ".*") + r"\n"
    return re.fullmatch(pattern, written) is not None


@pytest.mark.parametrize(
    ("shown", "written", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("...\n", "", True),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nb\n", "a\nc\n", False),
        ("n-0\tready\t...\n", "n-0\tready\tcpu 1\n", True),
        ("n-0\tready\t...\n", "n-0\tlost\tcpu 1\n", False),
        ("", "a\n", False),
    ],
)
def test_output_is_held_against_what_the_page_shows(shown, written, same):
    assert matches(shown, written) is same


def go_through(page, terminal, folder):
    """Types every `console` block and saves every file that the page says to save, in order."""
    typed = 0
    saved = r"Save this as `([^`]+)`:\n\n```yaml\n(.*?)^```"
    for name, content, console in re.findall(rf"{saved}|^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        if name:
            (folder / name).write_text(content)
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE):
            written = terminal.does(command)
            assert matches(shown, written), f"$ {command}\nthe page shows:\n{shown}\nbut it writes:\n{written}"
            typed += 1
    return typed


JOBS = "largesse get jobs | awk -F'\\t' 'NR > 1 {print $1, $2}'"


def do_the_five(terminal, block):
    """The commands of the README's second terminal."""
    said = {line.partition("  #")[0].rstrip(): terminal.does(line) for line in block.splitlines()}
    assert said["largesse submit examples/jobs/word-count.yaml"] == "word-count\n"
    assert "succeeded" in said["largesse watch word-count"]
    assert said["largesse logs word-count/reduce/0"].startswith("160 the\n")
    assert ": same: " in said["largesse replay largesse-data --verify"]


def test_readme_and_tutorial_do_what_they_say(newcomer, stack, daily, tmp_path):
    install, first, second = blocks(README, "sh")
    if daily:
        newcomer.borrow_environment()  # What is installed is what this test runs on.
    newcomer.install(install)
    namespace = opened(stack, Namespace())
    cell = opened(stack, Cell(newcomer, namespace, first, tmp_path / "first.txt"))
    do_the_five(opened(stack, Terminal(newcomer, namespace, tmp_path / "second.txt")), second)
    cell.interrupt()

    (up,) = blocks(TUTORIAL, "sh")
    before, _, after = TUTORIAL.partition("## A restart")
    cell = opened(stack, Cell(newcomer, namespace, up, tmp_path / "again.txt"))
    terminal = opened(stack, Terminal(newcomer, namespace, tmp_path / "third.txt"))
    assert go_through(before, terminal, newcomer.home / "largesse-tutorial") >= 15
    jobs = terminal.does(JOBS)

    cell.interrupt()
    opened(stack, Cell(newcomer, namespace, up, tmp_path / "restarted.txt"))
    assert (terminal.does(JOBS), "hello succeeded" in jobs) == (jobs, True)
    assert go_through(after, terminal, newcomer.home / "largesse-tutorial") >= 5


@pytest.mark.whole
def test_the_five_commands_work_from_a_wheel_outside_a_checkout(newcomer, stack, tmp_path):
    assert "`pip install .`" in README
    assert "`largesse examples` writes the folder `examples`" in README
    _, first, second = blocks(README, "sh")
    newcomer.install("python3 -m venv ~/elsewhere/.venv; ~/elsewhere/.venv/bin/pip install --quiet .")
    shutil.rmtree(newcomer.checkout)
    newcomer.checkout = newcomer.home / "elsewhere"
    newcomer.install(". .venv/bin/activate; largesse examples; largesse --version")

    namespace = opened(stack, Namespace())
    opened(stack, Cell(newcomer, namespace, first, tmp_path / "first.txt"))
    terminal = opened(stack, Terminal(newcomer, namespace, tmp_path / "second.txt"))
    do_the_five(terminal, second)
    inputs = "--workload examples/workloads/small.jsonl --cluster examples/clusters/small.json"
    assert "makespan" in terminal.does(f"largesse compare --presets drf,fifo {inputs} --report report")
    assert "<html" in terminal.does("head -c 500 report/index.html")
