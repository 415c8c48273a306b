"""Admission gates by name, or from a person's own code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from models.arithmetic import Symbol
from models.gates import GATES, Admission, Gate


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
    gate = _instance(policy, found)
    _try(policy, gate)
    return gate


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


def _try(policy: str, gate: Gate) -> None:
    """Run the gate once or twice, so that a fault in it is reported as its author's."""
    request = Admission(num_tokens=30, num_spec_tokens=3, num_lookahead_tokens=3, max_model_len=96)
    try:
        first, second = gate.tokens(request), gate.tokens(request)
    except Exception as error:
        raise PolicyError(f"policy {policy!r}: {_where(error)}") from error
    if isinstance(first, Symbol) or not isinstance(first, int | None) or isinstance(first, bool):
        raise PolicyError(
            f"policy {policy!r}: tokens() returned {first!r} for {request}; "
            "it must return an int or None"
        )
    if first != second:
        raise PolicyError(
            f"policy {policy!r}: tokens() returned {first} and then {second} for the same request; "
            "it must be a pure function"
        )


def _where(error: Exception) -> str:
    """The last line of the author's code in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = f"{last.filename}, line {last.lineno}: " if last else ""
    return f"{place}{type(error).__name__}: {error}"
