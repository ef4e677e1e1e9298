"""Integers of 256 bits for compiled code: what a filling reckons in has more bits than a machine word.

A wide is a signed integer. It lies in an array of 64-bit words, four of them each, lowest first. Products and
quotients have `BITS` bits at most, so that sums of millions of them fit; where one has more, word 0 of the array
becomes 1, and nothing that was worked out counts. Rounding is Python's: down. All is done in whole numbers, so that it
comes out alike on every processor.

Division is Knuth's algorithm D (The Art of Computer Programming, volume 2, 4.3.1) in digits of 64 bits, each guessed
with a reciprocal of the divisor's first digit as in Moeller and Granlund, "Improved division by invariant integers"
(2011), algorithms 2 and 4: LLVM itself divides no more than 64 bits without a library.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core import cgutils
from numba.core.cgutils import ir
from numba.extending import intrinsic, models, overload, register_model

BITS = 230
"""Of a product or a quotient at most, the sign aside."""

ONE_BITS = 128
"""A share of the whole cell is 2^this, as in `tree.py`."""

Wide = Any
"""What a compiled function takes and returns; only such a function can have one."""

Function = TypeVar("Function", bound=Callable[..., Any])

_W, _DOUBLE, _LIMB, _TWO_LIMBS, _BIT = (ir.IntType(bits) for bits in (256, 512, 64, 128, 1))
_LIMBS = 4


def compiled(function: Function) -> Function:
    """Compile a function that only compiled ones call, along with them."""
    made: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)
    template = made.get_call_template

    def once(args: Sequence[Any], options: Any) -> Any:
        # Not once more for every number that somebody writes out: that made compiling three times as long.
        return template(tuple([types.unliteral(each) for each in args]), options)

    made.get_call_template = once
    return cast(Function, made)


def entry(function: Function) -> Function:
    """Compile a function at its first call, and keep that on disk: beside its file or, where that cannot be written,
    in the user's cache folder; in neither, every process compiles it."""
    try:
        made: Function = njit(cache=True, _nrt=False)(function)
    except RuntimeError:
        made = njit(_nrt=False)(function)
    return made


def source_of(*modules: Any) -> int:
    """A number that changes with the text of these modules. What is kept on disk is forgotten when the file of an entry
    changes, not when those do that it compiles along: an entry that closes over this number is made anew then."""
    texts = "".join([module.__loader__.get_source(module.__name__) for module in modules])
    return int.from_bytes(texts.encode(), "little") % ((1 << 61) - 1)


class _WideType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Wide")


_wide = _WideType()


@register_model(_WideType)
class _WideModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _W)


# ---------------------------------------------------------------- words and wides
def _words(context: Any, builder: Any, kind: Any, words: Any) -> Any:
    return context.make_array(kind)(context, builder, words).data


def _place(context: Any, builder: Any, kind: Any, words: Any, at: Any) -> Any:
    return builder.gep(builder.bitcast(_words(context, builder, kind, words), _W.as_pointer()), [at])


@intrinsic
def load(typing: Any, words: Any, at: Any) -> Any:
    """The wide at a place of an array, counted in wides."""

    def built(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *args), align=8)

    return _wide(words, types.intp), built


@intrinsic
def store(typing: Any, words: Any, at: Any, value: Any) -> Any:
    """Put a wide there."""

    def built(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, signature.args[0], *args[:2]), align=8)
        return context.get_dummy_value()

    return types.void(words, types.intp, _wide), built


@intrinsic
def widened(typing: Any, value: Any) -> Any:
    """A whole number of 64 bits as a wide."""
    return _wide(types.int64), lambda context, builder, signature, args: builder.sext(args[0], _W)


@intrinsic
def low_word(typing: Any, value: Any) -> Any:
    """The last 64 bits of a wide."""
    return types.int64(_wide), lambda context, builder, signature, args: builder.trunc(args[0], _LIMB)


def constant(value: int) -> Any:
    """A function that returns this wide."""

    @intrinsic
    def given(typing: Any) -> Any:
        return _wide(), lambda context, builder, signature, args: _W(value)

    return given


_zero, _one = constant(0), constant(1 << ONE_BITS)


def _define(name: Any, build: Callable[[Any, Any, Any], Any], result: Any) -> None:
    """An operator of two wides."""

    @intrinsic
    def applied(typing: Any, left: Any, right: Any) -> Any:
        return result(_wide, _wide), lambda context, builder, signature, args: build(builder, *args)

    @overload(name, strict=False)
    def chosen(left: Any, right: Any) -> Any:
        both = isinstance(left, _WideType) and isinstance(right, _WideType)
        return (lambda left, right: applied(left, right)) if both else None


_define(operator.add, lambda builder, left, right: builder.add(left, right), _wide)
_define(operator.sub, lambda builder, left, right: builder.sub(left, right), _wide)
_define(operator.lt, lambda builder, left, right: builder.icmp_signed("<", left, right), types.boolean)
_define(operator.le, lambda builder, left, right: builder.icmp_signed("<=", left, right), types.boolean)
_define(operator.gt, lambda builder, left, right: builder.icmp_signed(">", left, right), types.boolean)
_define(operator.ge, lambda builder, left, right: builder.icmp_signed(">=", left, right), types.boolean)
_define(operator.eq, lambda builder, left, right: builder.icmp_signed("==", left, right), types.boolean)


# ---------------------------------------------------------------- products and quotients
@compiled
def times(words: Any, left: Wide, right: Wide) -> Wide:
    """`left * right`."""
    return _multiplied(words, left, right)


@compiled
def scaled(words: Any, left: Wide, right: Wide) -> Wide:
    """`left * right >> ONE_BITS`."""
    return _multiplied_and_scaled(words, left, right)


@compiled
def ratio(words: Any, amount: Wide, whole: Wide) -> Wide:
    """`(amount << ONE_BITS) // whole`; trouble unless `whole` is above 0."""
    if amount < _zero():
        # Rounded up and turned round it is rounded down.
        return _zero() - _divided(words, _zero() - amount, _one(), whole - widened(1), whole)
    return _divided(words, amount, _one(), _zero(), whole)


@compiled
def part(words: Any, amount: Wide, up: Wide, down: Wide) -> Wide:
    """`amount * up // down`; trouble unless `down` is above 0 and the others are not below."""
    return _divided(words, amount, up, _zero(), down)


@compiled
def _divided(words: Any, amount: Wide, up: Wide, more: Wide, down: Wide) -> Wide:
    return _quotient(words, amount, up, more, down)


def _product(shift: int) -> Any:
    """A function that multiplies, and drops the last `shift` bits."""

    @intrinsic
    def multiplied(typing: Any, words: Any, left: Any, right: Any) -> Any:
        def built(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words, left, right = args
            negative = builder.xor(_is_negative(builder, left), _is_negative(builder, right))
            product = builder.mul(*[builder.zext(_absolute(builder, each), _DOUBLE) for each in (left, right)])
            product = builder.select(negative, builder.neg(product), product)
            result = builder.ashr(product, _DOUBLE(shift))
            span = _DOUBLE(1 << BITS)
            bad = builder.icmp_unsigned(">=", builder.add(result, span), _DOUBLE(2 << BITS))
            _note(context, builder, signature.args[0], words, [bad])
            return builder.trunc(result, _W)

        return _wide(words, _wide, _wide), built

    return multiplied


_multiplied, _multiplied_and_scaled = _product(0), _product(ONE_BITS)


@intrinsic
def _quotient(typing: Any, words: Any, amount: Any, up: Any, more: Any, down: Any) -> Any:
    """`(amount * up + more) // down`."""

    def built(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, *factors, more, down = args
        number = builder.mul(*[builder.zext(each, _DOUBLE) for each in factors])
        found, bad = _divide(builder, builder.add(number, builder.zext(more, _DOUBLE)), down)
        _note(context, builder, signature.args[0], words, [*bad, *[_is_negative(builder, each) for each in factors]])
        return found

    return _wide(words, _wide, _wide, _wide, _wide), built


def _is_negative(builder: Any, value: Any) -> Any:
    return builder.icmp_signed("<", value, _W(0))


def _absolute(builder: Any, value: Any) -> Any:
    return builder.select(_is_negative(builder, value), builder.neg(value), value)


def _note(context: Any, builder: Any, kind: Any, words: Any, bad: Sequence[Any]) -> None:
    """Trouble, if one of these holds."""
    first = _words(context, builder, kind, words)
    noted = builder.load(first)
    for each in bad:
        noted = builder.or_(noted, builder.zext(each, _LIMB))
    builder.store(noted, first)


def _divide(builder: Any, number: Any, divisor: Any) -> tuple[Any, list[Any]]:
    """`number // divisor`, of 512 and 256 bits, and what may be wrong with it. Both without a sign."""
    low = builder.icmp_signed("<=", divisor, _W(0))
    divisor = builder.select(low, _W(1), divisor)
    shift = builder.ctlz(divisor, _BIT(0))
    by = _limbs(builder, builder.shl(divisor, shift))
    inverse = _reciprocal(builder, by[-1])
    # As many digits as the lengths of both allow. What has more than four has too many bits anyway.
    spare = builder.trunc(builder.sub(builder.ctlz(number, _BIT(0)), builder.zext(shift, _DOUBLE)), _LIMB)
    digits = builder.ashr(builder.sub(_LIMB(256 + 64), spare), _LIMB(6))
    long = builder.icmp_signed(">", digits, _LIMB(_LIMBS))
    digits = builder.select(long, _LIMB(_LIMBS), digits)
    digits = builder.select(builder.icmp_signed("<", digits, _LIMB(0)), _LIMB(0), digits)
    place = builder.bitcast(cgutils.alloca_once(builder, _DOUBLE), _LIMB.as_pointer())
    builder.store(builder.shl(number, builder.zext(shift, _DOUBLE)), builder.bitcast(place, _DOUBLE.as_pointer()))
    found = cgutils.alloca_once_value(builder, _W(0))
    first = builder.bitcast(builder.gep(place, [digits]), _W.as_pointer())
    rest = cgutils.alloca_once_value(builder, builder.load(first, align=8))
    with cgutils.for_range(builder, digits) as loop:
        at = builder.sub(builder.sub(digits, _LIMB(1)), loop.index)
        ahead = builder.load(builder.gep(place, [at]))
        digit, left = _digit(builder, [ahead, *_limbs(builder, builder.load(rest))], by, inverse)
        builder.store(builder.or_(builder.shl(builder.load(found), _W(64)), builder.zext(digit, _W)), found)
        builder.store(_joined(builder, left), rest)
    result = builder.load(found)
    return result, [low, long, builder.icmp_unsigned(">=", result, _W(1 << BITS))]


def _joined(builder: Any, limbs: Sequence[Any]) -> Any:
    value = _W(0)
    for at, limb in enumerate(limbs):
        value = builder.or_(value, builder.shl(builder.zext(limb, _W), _W(64 * at)))
    return value


def _digit(builder: Any, number: Sequence[Any], by: Sequence[Any], inverse: Any) -> tuple[Any, list[Any]]:
    """The next digit of a quotient, and what is left of `number`, which has one limb more than `by`."""
    digit = _guess(builder, number[-1], number[-2], by[-1], inverse)
    left, carry = [], _LIMB(0)
    for limb, each in zip(number, by, strict=False):
        product = builder.add(_long(builder, digit, each), builder.zext(carry, _TWO_LIMBS))
        taken = builder.trunc(product, _LIMB)
        left.append(builder.sub(limb, taken))
        borrow = builder.zext(builder.icmp_unsigned("<", limb, taken), _LIMB)
        carry = builder.add(_high(builder, product), borrow)
    top = builder.sub(number[-1], carry)
    for _ in range(2):  # A guess is at most two too high.
        over = builder.icmp_signed("<", top, _LIMB(0))
        digit = builder.select(over, builder.sub(digit, _LIMB(1)), digit)
        total = _TWO_LIMBS(0)
        for at, each in enumerate(by):
            back = builder.select(over, each, _LIMB(0))
            total = builder.add(builder.zext(_high(builder, total), _TWO_LIMBS), builder.zext(back, _TWO_LIMBS))
            total = builder.add(total, builder.zext(left[at], _TWO_LIMBS))
            left[at] = builder.trunc(total, _LIMB)
        top = builder.add(top, _high(builder, total))
    return digit, left


def _guess(builder: Any, high: Any, low: Any, by: Any, inverse: Any) -> Any:
    """The quotient of two limbs by one whose first bit is set: algorithm 4; all ones where it would have more bits."""
    wide = builder.add(_long(builder, inverse, high), _pair(builder, high, low))
    found = builder.add(_high(builder, wide), _LIMB(1))
    rest = builder.sub(low, builder.mul(found, by))
    over = builder.icmp_unsigned(">", rest, builder.trunc(wide, _LIMB))
    found = builder.select(over, builder.sub(found, _LIMB(1)), found)
    rest = builder.select(over, builder.add(rest, by), rest)
    found = builder.select(builder.icmp_unsigned(">=", rest, by), builder.add(found, _LIMB(1)), found)
    return builder.select(builder.icmp_unsigned(">=", high, by), _LIMB((1 << 64) - 1), found)


def _reciprocal(builder: Any, by: Any) -> Any:
    """`(2^128 - 1) // by - 2^64`, the first bit of `by` being set: algorithm 2, with its names."""
    small = ir.IntType(32)
    d0 = builder.and_(by, _LIMB(1))
    d40 = builder.add(builder.lshr(by, _LIMB(24)), _LIMB(1))
    d63 = builder.add(builder.lshr(by, _LIMB(1)), d0)
    d9 = builder.trunc(builder.lshr(by, _LIMB(55)), small)
    v0 = builder.zext(builder.udiv(small((1 << 19) - 3 * (1 << 8)), d9), _LIMB)
    v1 = builder.sub(builder.shl(v0, _LIMB(11)), builder.lshr(builder.mul(builder.mul(v0, v0), d40), _LIMB(40)))
    v1 = builder.sub(v1, _LIMB(1))
    rest = builder.mul(v1, builder.sub(_LIMB(1 << 60), builder.mul(v1, d40)))
    v2 = builder.add(builder.shl(v1, _LIMB(13)), builder.lshr(rest, _LIMB(47)))
    e = builder.sub(builder.mul(builder.lshr(v2, _LIMB(1)), d0), builder.mul(v2, d63))
    v3 = builder.add(builder.shl(v2, _LIMB(31)), builder.lshr(_high(builder, _long(builder, v2, e)), _LIMB(1)))
    product = builder.add(_long(builder, v3, by), _pair(builder, by, by))
    return builder.sub(v3, _high(builder, product))


def _limbs(builder: Any, value: Any) -> list[Any]:
    return [builder.trunc(builder.lshr(value, _W(64 * at)), _LIMB) for at in range(_LIMBS)]


def _long(builder: Any, left: Any, right: Any) -> Any:
    return builder.mul(builder.zext(left, _TWO_LIMBS), builder.zext(right, _TWO_LIMBS))


def _pair(builder: Any, high: Any, low: Any) -> Any:
    return builder.or_(builder.shl(builder.zext(high, _TWO_LIMBS), _TWO_LIMBS(64)), builder.zext(low, _TWO_LIMBS))


def _high(builder: Any, value: Any) -> Any:
    return builder.trunc(builder.lshr(value, _TWO_LIMBS(64)), _LIMB)
