"""Symbols and conditions over z3, for running gates and block arithmetic on unknown numbers.

A condition has no truth value: code that branches on one cannot be proved, and says where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import z3

from models.arithmetic import Condition, Num, Symbol, SymbolicCondition, cdiv


class SymbolicBranchError(TypeError):
    """Code needs the value of a symbol: it cannot be proved, only explored."""


@dataclass(slots=True)
class Context:
    """The symbols of one obligation, and what defines its ceilings.

    ``cdiv(x, b)`` is a fresh integer q with ``b * (q - 1) < x <= b * q``, for positive b: its
    ``definitions``. ``order``, ``bounds`` and ``sums`` follow from these, by the lemmas
    ``cdiv-monotone``, ``cdiv-fits`` and ``cdiv-subadditive`` of ``properties.theorems``, and save
    the solvers the search: of two ceilings of one divisor the one of the larger number is no
    smaller; cdiv(x, b) <= cdiv(y, b) if and only if x <= b * cdiv(y, b); and if z <= x + y then
    cdiv(z, b) <= cdiv(x, b) + cdiv(y, b).
    """

    definitions: list[z3.BoolRef] = field(default_factory=list)
    order: list[z3.BoolRef] = field(default_factory=list)
    bounds: list[z3.BoolRef] = field(default_factory=list)
    _ceilings: dict[tuple[int, int], tuple[z3.ArithRef, z3.ArithRef, z3.ArithRef]] = field(
        default_factory=dict
    )

    def symbol(self, name: str) -> Term:
        """An unknown integer."""
        return Term(self, z3.Int(name))

    @property
    def divisors(self) -> list[z3.ArithRef]:
        """The divisors of the ceilings."""
        return [divisor for _, _, divisor in self._ceilings.values()]

    def value(self, term: z3.ArithRef, numbers: Mapping[str, int]) -> int:
        """A term when its symbols are numbers; ceilings by ``cdiv`` on ints."""
        known = [(z3.Int(name), z3.IntVal(number)) for name, number in numbers.items()]

        def number(of: z3.ArithRef) -> int:
            result: int = z3.simplify(z3.substitute(of, *known)).as_long()
            return result

        for quotient, numerator, divisor in self._ceilings.values():
            known.append((quotient, z3.IntVal(cdiv(number(numerator), number(divisor)))))
        return number(term)

    @property
    def sums(self) -> list[z3.BoolRef]:
        """The ceiling of a sum is at most the sum of the ceilings."""
        ceilings = list(self._ceilings.values())
        return [
            z3.Implies(z <= x + y, r <= p + q)
            for r, z, b in ceilings
            for (p, x, c), (q, y, d) in combinations_with_replacement(ceilings, 2)
            if b.eq(c) and b.eq(d)
        ]

    def compare(self, blocks: z3.ArithRef) -> None:
        """Add to ``bounds`` when each ceiling is at most a number of blocks (``cdiv-fits``)."""
        self.bounds += [
            (quotient <= blocks) == (x <= divisor * blocks)
            for quotient, x, divisor in self._ceilings.values()
        ]

    def cdiv(self, numerator: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
        """The ceiling of a quotient, by its defining inequalities."""
        key = (numerator.get_id(), divisor.get_id())
        known = self._ceilings.get(key)
        if known is not None:
            return known[0]
        quotient = z3.Int(f"ceil!{len(self._ceilings)}")
        self.definitions += [
            divisor * (quotient - 1) < numerator,
            numerator <= divisor * quotient,
        ]
        for other, x, b in self._ceilings.values():
            if b.eq(divisor):
                self.order += [
                    z3.Implies(x <= numerator, other <= quotient),
                    z3.Implies(numerator <= x, quotient <= other),
                ]
                self.bounds += [
                    (other <= quotient) == (x <= divisor * quotient),
                    (quotient <= other) == (numerator <= divisor * other),
                ]
        self._ceilings[key] = (quotient, numerator, divisor)
        return quotient


class Term(Symbol):
    """A symbol: a z3 integer term and the context it belongs to."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("context", "term")

    def __init__(self, context: Context, term: z3.ArithRef) -> None:
        self.context = context
        self.term = term

    def __add__(self, other: Num) -> Term:
        return Term(self.context, self.term + raw(other))

    def __radd__(self, other: int) -> Term:
        return Term(self.context, other + self.term)

    def __sub__(self, other: Num) -> Term:
        return Term(self.context, self.term - raw(other))

    def __rsub__(self, other: int) -> Term:
        return Term(self.context, other - self.term)

    def __mul__(self, other: Num) -> Term:
        return Term(self.context, self.term * raw(other))

    def __rmul__(self, other: int) -> Term:
        return Term(self.context, other * self.term)

    def __lt__(self, other: Num) -> Truth:
        return Truth(self.context, self.term < raw(other))

    def __le__(self, other: Num) -> Truth:
        return Truth(self.context, self.term <= raw(other))

    def __gt__(self, other: Num) -> Truth:
        return Truth(self.context, self.term > raw(other))

    def __ge__(self, other: Num) -> Truth:
        return Truth(self.context, self.term >= raw(other))

    def __eq__(self, other: object) -> bool:
        raise SymbolicBranchError("== of a symbol; compare with same() of models.arithmetic")

    def __ne__(self, other: object) -> bool:
        raise SymbolicBranchError("!= of a symbol; compare with same() of models.arithmetic")

    def __bool__(self) -> bool:
        raise SymbolicBranchError("the truth of a symbol; use where() of models.arithmetic")

    def __index__(self) -> int:
        raise SymbolicBranchError("the value of a symbol; use cdiv() and the like")

    def __floordiv__(self, other: object) -> Term:
        raise SymbolicBranchError("// of a symbol; use cdiv() of models.arithmetic")

    def __rfloordiv__(self, other: object) -> Term:
        raise SymbolicBranchError("// of a symbol; use cdiv() of models.arithmetic")

    def __mod__(self, other: object) -> Term:
        raise SymbolicBranchError("% of a symbol; use cdiv() of models.arithmetic")

    def __repr__(self) -> str:
        return f"Term({self.term})"

    def cdiv(self, numerator: Num, divisor: Num) -> Term:
        return Term(self.context, self.context.cdiv(raw(numerator), raw(divisor)))


class Truth(SymbolicCondition):
    """A condition on symbols."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("context", "term")

    def __init__(self, context: Context, term: z3.BoolRef) -> None:
        self.context = context
        self.term = term

    def where(self, then: Num, otherwise: Num) -> Term:
        return Term(self.context, z3.If(self.term, raw(then), raw(otherwise)))

    def both(self, other: Condition) -> Truth:
        return Truth(self.context, z3.And(self.term, formula(other)))

    def negated(self) -> Truth:
        return Truth(self.context, z3.Not(self.term))

    def __bool__(self) -> bool:
        raise SymbolicBranchError(
            "a branch on a symbolic condition; use where(), minimum() or maximum() of "
            "models.arithmetic instead of if, and, or, min and max"
        )

    def __eq__(self, other: object) -> bool:
        raise SymbolicBranchError("== of conditions")

    def __ne__(self, other: object) -> bool:
        raise SymbolicBranchError("!= of conditions")


def raw(number: Num) -> z3.ArithRef:
    """The z3 term of a number."""
    if isinstance(number, Term):
        return number.term
    if isinstance(number, int) and not isinstance(number, bool):
        return z3.IntVal(number)
    raise SymbolicBranchError(f"{number!r} is no integer")


def formula(condition: Condition) -> z3.BoolRef:
    """The z3 formula of a condition."""
    if isinstance(condition, Truth):
        return condition.term
    if isinstance(condition, bool):
        return z3.BoolVal(condition)
    raise SymbolicBranchError(f"{condition!r} is no condition")
