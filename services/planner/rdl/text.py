"""RDL as text: `window(10:00, 12:00, order(atom(b="1 cpu, 2Gi", g=4, h=20, l=5m, w=200m), ...))`. `#` begins a comment.

The grammar only knows calls, names and values; what they mean is checked in `parts.py`, where errors can be explained.
"""

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError

from services.planner.rdl.faults import BadDocument, Spot
from services.planner.rdl.parts import Call, Value, bad

_GRAMMAR = r"""
start: call
call: WORD "(" [argument ("," argument)*] ")"
argument: call | named | value
named: WORD "=" value
value: STRING | WORD WORD?

STRING: /"[^"\n]*"|'[^'\n]*'/
WORD: /[A-Za-z0-9_+][A-Za-z0-9_.:+\/-]*/
COMMENT: /#[^\n]*/
%ignore /[ \t\r\n]+/
%ignore COMMENT
"""

_TOKEN_TEXTS = {
    "LPAR": '"("',
    "RPAR": '")"',
    "COMMA": '","',
    "EQUAL": '"="',
    "WORD": "a word",
    "STRING": 'a text in "quotes"',
}


class _Calls(Transformer[Token, Call]):
    def start(self, children: list[Call]) -> Call:
        return children[0]

    def call(self, children: "list[Token | Value | Call | tuple[Token, Value]]") -> Call:
        word, *arguments = children
        assert isinstance(word, Token)
        made = Call(str(word), _spot(word))
        for each in arguments:
            if isinstance(each, tuple):
                name, value = each
                if name in made.named:
                    bad(_spot(name), f"names {name} twice")
                made.named[str(name)] = value
            elif isinstance(each, Value | Call):
                made.listed.append(each)
        return made

    def argument(self, children: "list[Value | Call | tuple[Token, Value]]") -> "Value | Call | tuple[Token, Value]":
        return children[0]

    def named(self, children: tuple[Token, Value]) -> tuple[Token, Value]:
        name, value = children
        return name, value

    def value(self, children: list[Token | None]) -> Value:
        words = [each for each in children if each is not None]
        text = " ".join(words)
        return Value(text[1:-1] if words[0].type == "STRING" else text, _spot(words[0]))


_PARSER = Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False)


def read_text(document: str) -> Call:
    """The calls of a text. Raises BadDocument."""
    try:
        tree = _PARSER.parse(document)
    except UnexpectedInput as error:
        line = max(1, error.line)
        bad(Spot(line, max(1, error.column)), _explained(error))
    try:
        return _Calls().transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, BadDocument):
            raise error.orig_exc from None
        raise


def _explained(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedCharacters):
        negative = ": there are no negative amounts or times" if error.char == "-" else ""
        return f'"{error.char}" means nothing here{negative}'
    expected = sorted(_TOKEN_TEXTS[name] for name in getattr(error, "expected", ()) if name in _TOKEN_TEXTS)
    found = getattr(error, "token", None)
    end = found is None or found.type == "$END"
    text = "the text ends too soon" if end else f'"{found}" is not expected here'
    return f"{text}: expected {' or '.join(expected)}" if expected else f"{text}: the request has ended"


def _spot(token: Token) -> Spot:
    return Spot(token.line or 1, token.column or 1)
