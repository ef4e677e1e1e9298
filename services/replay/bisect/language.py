"""What is looked for, as text: `queue("ads").held < queue("ads").due for 60s or pending() > 1000`.

Comparisons of measures with each other or with literals, joined by `and`, `or` and `not`, each of them or any
parenthesis with `for` and a span of time. Nothing else: no variables, no arithmetic. The grammar knows calls and
words; which there are and what may be compared says `measures.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from schemas.quantities import parse_quantity
from services.replay.bisect.measures import OF_CELL, STATES, SUBJECTS, Kind, Measure

_GRAMMAR = r"""
start: any
?any: all ("or" all)*                  -> any
?all: each ("and" each)*               -> all
?each: "not" each                      -> negated
     | held
?held: atom "for" LITERAL              -> lasting
     | atom
?atom: "(" any ")"
     | value OPERATOR value            -> comparison
value: call | LITERAL | STRING
call: NAME "(" STRING? ")" ("." NAME)*

OPERATOR: "<=" | ">=" | "==" | "!=" | "<" | ">"
STRING: /"[^"\n]*"|'[^'\n]*'/
LITERAL: /[0-9][A-Za-z0-9.]*%?/
NAME: /[a-z_][a-z0-9_-]*/
%ignore /[ \t\r\n]+/
"""

_TEXTS = {
    "LPAR": '"("',
    "RPAR": '")"',
    "DOT": '"."',
    "OR": '"or"',
    "AND": '"and"',
    "NOT": '"not"',
    "FOR": '"for"',
    "OPERATOR": "a comparison like < or ==",
    "STRING": 'a name in "quotes"',
    "LITERAL": "a number",
    "NAME": f"one of {', '.join([*SUBJECTS, *OF_CELL])}",
}
_SPANS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class BadExpression(Exception):
    """What is wrong with an expression: `place`, from 0, is where."""

    def __init__(self, place: int, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"column {place + 1}: {reason}")


@dataclass(frozen=True, slots=True)
class Compared:
    """Two measures, or a measure and what it is compared with. `operator`: < <= > >= == or !=."""

    left: Measure
    operator: str
    right: "Measure | Fraction | str"


@dataclass(frozen=True, slots=True)
class Negated:
    """What does not hold."""

    of: "Condition"


@dataclass(frozen=True, slots=True)
class Joined:
    """All of several conditions, or any of them."""

    parts: "tuple[Condition, ...]"
    is_all: bool


@dataclass(frozen=True, slots=True)
class Lasting:
    """What has held without a break for so long."""

    of: "Condition"
    ms: int


Condition = Compared | Negated | Joined | Lasting

_PARSER = Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False)


def read_expression(text: str) -> Condition:
    """The condition that a text says. Raises BadExpression."""
    try:
        tree = _PARSER.parse(text)
    except UnexpectedInput as error:
        at_end = getattr(getattr(error, "token", None), "type", "") == "$END"
        place = len(text.rstrip()) if at_end else error.pos_in_stream
        raise BadExpression(place or 0, _explained(error)) from None
    return _condition(tree.children[0])


def measures_in(condition: Condition) -> list[Measure]:
    """All that it looks at."""
    match condition:
        case Joined(parts):
            return [each for part in parts for each in measures_in(part)]
        case Negated(of) | Lasting(of):
            return measures_in(of)
        case Compared(left, _, right):
            return [left, right] if isinstance(right, Measure) else [left]


def _condition(tree: "Tree[Token] | Token") -> Condition:
    assert isinstance(tree, Tree)
    match tree.data:
        case "any" | "all":
            parts = tuple(_condition(child) for child in tree.children)
            return parts[0] if len(parts) == 1 else Joined(parts, tree.data == "all")
        case "negated":
            return Negated(_condition(tree.children[0]))
        case "lasting":
            of, span = tree.children
            assert isinstance(span, Token)
            return Lasting(_condition(of), _span_ms(span))
    left, operator, right = tree.children
    assert isinstance(operator, Token)
    return _compared(_operand(left), operator, _operand(right))


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_Operand = tuple[Token, Measure | None]
"""A measure and the word with which it begins, or a literal."""


def _compared(left: _Operand, operator: Token, right: _Operand) -> Compared:
    """Two operands of one kind. Raises BadExpression."""
    sign = str(operator)
    if left[1] is None and right[1] is not None:
        left, right, sign = right, left, _FLIPPED.get(sign, sign)
    measure, other = left[1], right[1]
    if measure is None:
        _bad(left[0], "compares a literal with a literal: one side has to be a measure like pending()")
    if measure.kind == "text" and sign not in ("==", "!="):
        _bad(operator, "words are compared with == or !=")
    if other is None:
        literal = _literal(measure, right[0])
        if measure.kind == "text" and literal not in (words := STATES[measure.subject]):
            _bad(right[0], f"a {measure.subject} is never {literal}: {_some(words)}")
        return Compared(measure, sign, literal)
    if other.kind != measure.kind:
        _bad(right[0], f"this is {_NAMES[other.kind]}, and the other side {_NAMES[measure.kind]}")
    return Compared(measure, sign, other)


def _operand(tree: "Tree[Token] | Token") -> _Operand:
    assert isinstance(tree, Tree)
    inner = tree.children[0]
    if isinstance(inner, Token):
        return inner, None
    words = [child for child in inner.children if isinstance(child, Token)]
    return words[0], _measure(words)


def _measure(words: list[Token]) -> Measure:
    """A call and its parts. Raises BadExpression."""
    head, *rest = words
    name = rest.pop(0) if rest and rest[0].type == "STRING" else None
    if head in SUBJECTS and name is not None:
        parts = SUBJECTS[head]
        if not rest:
            _bad(head, f"says not what of it: {_some(f'.{part}' for part in parts)}")
        part, *resource = rest
        if part not in parts:
            _bad(part, f'a {head} has no ".{part}": {_some(f".{each}" for each in parts)}')
        found = Measure(str(head), name[1:-1], str(part))
    elif head in OF_CELL and name is None:
        resource, found = rest, Measure("", "", str(head))
    elif head in SUBJECTS:
        _bad(head, f'says not which {head}: write {head}("name")')
    elif head in OF_CELL:
        _bad(head, f"{head}() is of the whole cell, and takes no name")
    else:
        _bad(head, f'"{head}" is nothing that is measured: {_some([*SUBJECTS, *OF_CELL])}')
    if resource and (found.kind != "quantities" or len(resource) > 1):
        _bad(resource[0], f"{_NAMES[found.kind]} has no parts")
    return Measure(found.subject, found.name, found.part, str(resource[0])) if resource else found


_NAMES: dict[Kind, str] = {
    "share": "a share of the cell",
    "time": "a span of time",
    "count": "a number",
    "quantities": "quantities of all resources",
    "quantity": "a quantity of a resource",
    "text": "a word",
}


def _literal(measure: Measure, token: Token) -> Fraction | str:
    """What a literal says that is compared with a measure. Raises BadExpression."""
    kind, text = measure.kind, str(token)
    if token.type == "STRING" or kind == "text":
        if token.type != "STRING" or kind != "text":
            _bad(token, f"it is compared with {_NAMES[kind]}" + (', like "running"' if kind == "text" else ""))
        return text[1:-1]
    if kind == "time":
        return Fraction(_span_ms(token))
    if kind == "quantities":
        _bad(token, f"which resource: write .{measure.part}.cpu, or .{measure.part}.memory and the like")
    if kind == "quantity":
        try:
            return Fraction(parse_quantity(measure.resource, text, round_up=False))
        except ValueError as error:
            _bad(token, str(error))
    if kind == "share" and text.endswith("%"):
        return _number(token, text[:-1]) / 100
    return _number(token, text)


def _number(token: Token, text: str) -> Fraction:
    try:
        return Fraction(text)
    except ValueError:
        _bad(token, f'"{text}" is no number')


def _span_ms(token: Token) -> int:
    text = str(token)
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return int(Fraction(number) * _SPANS[text[len(number) :]])
    except (ValueError, KeyError):
        _bad(token, f'"{text}" is no span of time: write it like 90s, 10m or 2h')


def _some(texts: "Iterable[str]") -> str:
    return f"one of {', '.join(texts)}"


def _bad(token: Token, reason: str) -> NoReturn:
    raise BadExpression(token.start_pos or 0, reason)


def _explained(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedCharacters):
        wanted = ": equality is ==" if error.char == "=" else ""
        return f'"{error.char}" means nothing here{wanted}'
    expected = sorted(_TEXTS[name] for name in getattr(error, "expected", ()) if name in _TEXTS)
    found = getattr(error, "token", None)
    at_end = found is None or found.type == "$END"
    text = "the expression ends too soon" if at_end else f'"{found}" is not expected here'
    return f"{text}: expected {' or '.join(expected)}" if expected else f"{text}: it has ended"
