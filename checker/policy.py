"""Admission gates by name, or from a person's own code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
import traceback
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from models.arithmetic import Num, Symbol
from models.gates import GATES, Admission, Gate

SLOWEST = 2.0  # seconds for one answer; a search asks for every length that a request may have


class PolicyError(ValueError):
    """A policy that cannot be loaded or used; the message says where the fault is."""


def load_gate(policy: str) -> Gate:
    """The gate that ``--policy`` names.

    ``policy`` is the name of a gate of ``models.gates``, ``package.module:Class`` or
    ``path/to/file.py:Class``.

    Raises
    ------
    PolicyError
        If there is no such gate, its code fails, or it is no gate.
    """
    if policy in GATES:
        return GATES[policy]
    module_name, colon, class_name = policy.rpartition(":")
    if not colon or not module_name or not class_name:
        raise PolicyError(
            f"policy {policy!r}: no such gate; there are {', '.join(GATES)}, or name your own as "
            "package.module:Class or path/to/file.py:Class"
        )
    module = _import(policy, module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise PolicyError(f"policy {policy!r}: {module_name} has no {class_name}")
    return own_gate(policy, found)


def own_gate(policy: str, found: Any) -> Gate:
    """A gate of a person's own, a class or an object; from here on it is held to its contract.

    Raises
    ------
    PolicyError
        If it is no gate, or its code fails on a first request.
    """
    gate = _Checked(policy, _instance(policy, found))
    gate.tokens(
        Admission(num_tokens=30, num_spec_tokens=3, num_lookahead_tokens=3, max_model_len=96)
    )
    return cast(Gate, gate)


def _import(policy: str, module_name: str) -> ModuleType:
    try:
        if module_name.endswith(".py"):
            return _import_file(policy, Path(module_name))
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(module_name)
    except PolicyError:
        raise
    except ModuleNotFoundError as error:
        raise PolicyError(f"policy {policy!r}: no module {error.name!r}") from error
    except Exception as error:
        raise PolicyError(f"policy {policy!r}: {_where(error)}") from error


def _import_file(policy: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise PolicyError(f"policy {policy!r}: no file {path}")
    name = f"kvgate_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _instance(policy: str, found: Any) -> Gate:
    try:
        gate = found() if isinstance(found, type) else found
    except Exception as error:
        raise PolicyError(f"policy {policy!r}: {_where(error)}") from error
    if not callable(getattr(gate, "tokens", None)):
        raise PolicyError(f"policy {policy!r}: not a gate; it needs a method tokens(self, request)")
    if not isinstance(getattr(gate, "name", None), str):
        raise PolicyError(f"policy {policy!r}: not a gate; it needs a class attribute name: str")
    result: Gate = gate
    return result


class _Checked:
    """A gate of a person's own, held to its contract in every call with ints.

    Each request is put to it twice; then its answer is known, so a slow gate costs no more. Symbols
    go straight through.
    """

    def __init__(self, policy: str, gate: Gate) -> None:
        self.name = gate.name
        self._policy = policy
        self._gate = gate
        self._known: dict[Admission, Num | PolicyError | None] = {}

    def tokens(self, request: Admission) -> Num | None:
        numbers = (getattr(request, field.name) for field in fields(request))
        if any(isinstance(number, Symbol) for number in numbers):
            return self._gate.tokens(request)
        if request not in self._known:
            self._known[request] = self._ask(request)
        known = self._known[request]
        if isinstance(known, PolicyError):
            raise known
        return known

    def _ask(self, request: Admission) -> Num | PolicyError | None:
        started = time.perf_counter()
        try:
            first = self._gate.tokens(request)
            halfway = time.perf_counter()
            second = self._gate.tokens(request)
        except Exception as error:
            fault = PolicyError(f"policy {self._policy!r}: {_where(error)}")
            fault.__cause__ = error
            return fault
        ended = time.perf_counter()
        for answer in (first, second):
            if isinstance(answer, bool) or not isinstance(answer, int | None):
                return PolicyError(
                    f"policy {self._policy!r}: tokens() returned {answer!r} for {request}; "
                    "it must return an int or None"
                )
        if first != second:
            return PolicyError(
                f"policy {self._policy!r}: tokens() returned {first} and then {second} for "
                f"{request}; it must be a pure function"
            )
        seconds = min(halfway - started, ended - halfway)  # the first may have imported something
        if seconds > SLOWEST:
            return PolicyError(
                f"policy {self._policy!r}: tokens() took {seconds:.1f} s for {request}; it is asked "
                f"for every length that a request may have, and may take {SLOWEST:.0f} s"
            )
        return first


def _where(error: Exception) -> str:
    """The last line of the author's code in a traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen ")
    ]
    theirs = [frame for frame in frames if frame.filename == frames[0].filename]
    place = f"{theirs[-1].filename}, line {theirs[-1].lineno}: " if theirs else ""
    return f"{place}{type(error).__name__}: {error}"
