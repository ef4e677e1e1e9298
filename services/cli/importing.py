"""`largesse import FORMAT FILE`: one command a public trace format, its options made from the importer's own list."""

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

import typer

from services.cli.ending import Refused, Wrong, note, pipe
from services.cli.progress import counting, progress_of
from services.cli.show import plural
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.importers import IMPORTERS, encode_line, summary_of, tasks_of
from services.simulator.workloads.source import Line, Option

import_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _fraction(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise typer.BadParameter(f"{text!r} is no number") from None


def _parameter(option: Option) -> inspect.Parameter:
    flag = "--" + option.name.replace("_", "-")
    text = f"{option.help} ({' | '.join(option.choices)})" if option.choices else option.help
    if option.parse is bool:
        declared = typer.Option(f"{flag}/--no-{flag[2:]}", help=text)
    elif option.parse is Fraction:
        declared = typer.Option(flag, help=text, parser=_fraction, metavar="NUMBER")
    else:
        declared = typer.Option(flag, help=text)
    default = str(option.default) if option.parse is Fraction else option.default
    annotated: Any = Annotated  # Its arguments are known at run time only.
    kind = annotated[option.parse, declared]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


class _Summary:
    """What became of a trace: what was kept, and what was left out and why."""

    def __init__(self) -> None:
        self.jobs = self.tasks = 0
        self.left: Counter[tuple[str, str]] = Counter()

    def leave(self, why: str, what: str = "job", count: int = 1) -> None:
        self.left[what, why] += count

    def keep(self, line: Line) -> None:
        self.jobs += 1
        self.tasks += tasks_of(line)

    def show(self) -> None:
        note(f"kept: {plural(self.jobs, 'job')}, {plural(self.tasks, 'task')}")
        for (what, why), count in self.left.most_common():
            note(f"left out: {plural(count, what)}: {why}")


def _command(name: str) -> Callable[..., None]:
    def convert(file: str, strict: bool, **options: object) -> None:
        summary = _Summary()
        try:
            with pipe(), progress_of("importing", "jobs", results_elsewhere=not sys.stdout.isatty()) as tell:
                for line in counting(IMPORTERS[name].convert(file, leave=summary.leave, **options), tell):
                    sys.stdout.write(encode_line(line) + "\n")
                    summary.keep(line)
                sys.stdout.flush()
        except Damaged as fault:
            raise Wrong(str(fault)) from None
        except ValueError as fault:  # Of an option: begins with its name.
            raise Wrong(f"--{fault}") from None
        except OSError as error:
            raise Wrong(f"{error.filename}: {error.strerror}") from None
        summary.show()
        if strict and summary.left:
            raise Refused("not everything was kept (--strict)")

    file = inspect.Parameter(
        "file",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Annotated[
            str, typer.Argument(help="the trace, log, manifest or script; - is standard input", metavar="FILE")
        ],
    )
    strict = inspect.Parameter(
        "strict",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option("--strict", help="exits with 1 where anything was left out")],
    )
    parameters = [file, *(_parameter(option) for option in IMPORTERS[name].OPTIONS), strict]
    convert.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    convert.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return convert


for _name, _importer in IMPORTERS.items():
    _text = (_importer.__doc__ or "").strip()
    import_app.command(_name, help=_text, short_help=summary_of(_name))(_command(_name))
