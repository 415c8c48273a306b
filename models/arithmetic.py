"""Numbers that are either Python ints or symbols of a prover.

Gates and block arithmetic are written once, with these functions in place of ``min``, ``max``,
``//`` and ``if``. Exploration calls them with ints; the prover calls the same code with its own
subclass of :class:`Symbol`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self, TypeAlias, overload


class Symbol(ABC):
    """An integer whose value is not known yet; the prover supplies the concrete class.

    Arithmetic (``+ - *``) and order work as on ints, but a comparison yields a symbolic condition,
    which has no truth value: code that branches on one cannot be proved. ``==`` is not defined.
    """

    @abstractmethod
    def __add__(self, other: Num) -> Self: ...
    @abstractmethod
    def __radd__(self, other: int) -> Self: ...
    @abstractmethod
    def __sub__(self, other: Num) -> Self: ...
    @abstractmethod
    def __rsub__(self, other: int) -> Self: ...
    @abstractmethod
    def __mul__(self, other: Num) -> Self: ...
    @abstractmethod
    def __rmul__(self, other: int) -> Self: ...
    @abstractmethod
    def __lt__(self, other: Num) -> Condition: ...
    @abstractmethod
    def __le__(self, other: Num) -> Condition: ...
    @abstractmethod
    def __gt__(self, other: Num) -> Condition: ...
    @abstractmethod
    def __ge__(self, other: Num) -> Condition: ...

    @abstractmethod
    def cdiv(self, numerator: Num, divisor: Num) -> Self:
        """The ceiling of ``numerator / divisor``; at least one of the two is a symbol."""


class SymbolicCondition(ABC):
    """The outcome of comparing symbols. It has no truth value."""

    @abstractmethod
    def where(self, then: Num, otherwise: Num) -> Num:
        """``then`` if this holds, else ``otherwise``."""

    @abstractmethod
    def both(self, other: Condition) -> Condition:
        """This and the other."""

    @abstractmethod
    def negated(self) -> Condition:
        """Not this."""


Num: TypeAlias = int | Symbol
Condition: TypeAlias = bool | SymbolicCondition


@overload
def cdiv(numerator: int, divisor: int) -> int: ...
@overload
def cdiv(numerator: Num, divisor: Num) -> Num: ...
def cdiv(numerator: Num, divisor: Num) -> Num:
    """Ceiling division (vLLM ``utils/math_utils.py cdiv``).

    >>> cdiv(33, 16)
    3
    """
    if isinstance(numerator, Symbol):
        return numerator.cdiv(numerator, divisor)
    if isinstance(divisor, Symbol):
        return divisor.cdiv(numerator, divisor)
    return -(-numerator // divisor)


@overload
def minimum(a: int, b: int) -> int: ...
@overload
def minimum(a: Num, b: Num) -> Num: ...
def minimum(a: Num, b: Num) -> Num:
    """The smaller of two numbers."""
    if type(a) is int and type(b) is int:
        return a if a <= b else b
    return where(a <= b, a, b)


@overload
def maximum(a: int, b: int) -> int: ...
@overload
def maximum(a: Num, b: Num) -> Num: ...
def maximum(a: Num, b: Num) -> Num:
    """The larger of two numbers."""
    if type(a) is int and type(b) is int:
        return a if a >= b else b
    return where(a >= b, a, b)


@overload
def where(condition: bool, then: int, otherwise: int) -> int: ...
@overload
def where(condition: Condition, then: Num, otherwise: Num) -> Num: ...
def where(condition: Condition, then: Num, otherwise: Num) -> Num:
    """``then`` if ``condition`` holds, else ``otherwise``: an ``if`` that can also be proved over.

    >>> where(3 > 0, 1, 2)
    1
    """
    if condition is True:
        return then
    if condition is False:
        return otherwise
    return condition.where(then, otherwise)


def both(*conditions: Condition) -> Condition:
    """Whether all hold.

    >>> both(1 < 2, 2 < 3)
    True
    """
    result: Condition = True
    for condition in conditions:
        if isinstance(condition, SymbolicCondition):
            result = condition.both(result)
        elif isinstance(result, SymbolicCondition):
            result = result.both(condition)
        else:
            result = result and condition
    return result


def negate(condition: Condition) -> Condition:
    """Whether it does not hold."""
    if isinstance(condition, SymbolicCondition):
        return condition.negated()
    return not condition


def either(*conditions: Condition) -> Condition:
    """Whether at least one holds."""
    return negate(both(*(negate(condition) for condition in conditions)))


def implies(premise: Condition, conclusion: Condition) -> Condition:
    """Whether the conclusion holds if the premise does."""
    return either(negate(premise), conclusion)


def same(a: Num, b: Num) -> Condition:
    """Whether two numbers are equal (``==`` on symbols would compare their names)."""
    return both(a <= b, b <= a)


def equivalent(a: Condition, b: Condition) -> Condition:
    """Whether both hold or neither does."""
    return both(implies(a, b), implies(b, a))
