"""``check prove``: the theorems alone, for all sizes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.gates import GATES, Gate

if TYPE_CHECKING:
    from checker.prove import Proof
    from properties.theorems import Obligation

NAME = "prove"
HELP = "prove the theorems on a gate, for every size, with two solvers"
EPILOG = """\
A line for every obligation: verdict, theorem and name, what each solver said and how long it took.
A refuted one is followed by its least counterexample and by what the model does with it.

exit codes
  0 everything required is proved   1 something is refuted   2 the input is wrong
  3 inconclusive: a solver gave up, they disagree, or the gate cannot be run on symbols
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "--policy",
        default="first-decode-step",
        metavar="GATE",
        help=f"{', '.join(GATES)}, package.module:Class or file.py:Class "
        "(default: first-decode-step)",
    )
    parser.add_argument(
        "--theorem",
        type=int,
        choices=range(8),
        metavar="N",
        help="only theorem N, 1 to 7; 0: the lemmas on ceilings",
    )
    parser.add_argument(
        "--smt2", type=Path, metavar="DIR", help="leave each obligation as an SMT-LIB 2 file"
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=5000,
        metavar="MS",
        help="of each solver, for each obligation (default: 5000)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Prove; 0 if everything required of the gate is proved, 1 if something is refuted, 3 else."""
    from checker.policy import PolicyError, load_gate
    from checker.prove import UnprovableGateError, UnsoundError, encode, prove, smt2
    from properties.theorems import obligations
    from properties.verdict import Verdict, worst

    try:
        gate = load_gate(args.policy)
        chosen = [o for o in obligations(gate) if args.theorem in (None, o.theorem)]
        if not chosen:
            raise PolicyError(f"theorem {args.theorem} says nothing about {gate.name}")
        if args.smt2 is not None:
            _leave(args.smt2, [(o, smt2(encode(o, gate))) for o in chosen])
        results: list[tuple[Proof, str | None]] = []
        for obligation in chosen:
            proof = prove(obligation, gate, timeout_ms=args.timeout)
            results.append((proof, _replayed(proof, gate)))
            if args.format == "text":
                print(_lines(*results[-1]), flush=True)
    except PolicyError as error:
        print(f"check prove: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"check prove: --smt2 {args.smt2}: {error.strerror}", file=sys.stderr)
        return 2
    except UnprovableGateError as error:
        print(f"check prove: {args.policy} cannot be run on symbols: {error}", file=sys.stderr)
        print("check prove: explore it instead: check --policy ...", file=sys.stderr)
        return 3
    except UnsoundError as error:
        print(f"check prove: {error}", file=sys.stderr)
        print("check prove: no verdict: a fault of the checker, please report it", file=sys.stderr)
        return 3
    required = [proof.verdict for proof, _ in results if proof.obligation.required]
    verdict = worst(required or [proof.verdict for proof, _ in results])
    if args.format == "json":
        print(json.dumps(_document(args.policy, results, verdict.value), indent=1))
    else:
        seconds = sum(sum(proof.seconds) for proof, _ in results)
        print(f"{verdict.value}: {gate.name}, {len(results)} obligations, {seconds:.2f} s")
    return {Verdict.PROVED: 0, Verdict.VIOLATED: 1}.get(verdict, 3)


def _leave(folder: Path, scripts: list[tuple[Obligation, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for obligation, script in scripts:
        path = folder / f"{obligation.theorem}-{obligation.name}.smt2"
        path.write_text(f"; {obligation.mathematics}\n; unsat = proved\n{script}", encoding="utf-8")


def _lines(proof: Proof, replayed: str | None) -> str:
    ours, theirs = proof.seconds
    title = f"{proof.obligation.theorem} {proof.obligation.name}"
    lines = [
        f"{proof.verdict.value:<12}  {title:<42}  z3 {proof.z3} {ours:.2f} s, "
        f"cvc5 {proof.cvc5} {theirs:.2f} s"
    ]
    if proof.example is not None:
        lines.append(14 * " " + "least: " + _words(proof.example))
    if replayed is not None:
        lines.append(14 * " " + "in the model: " + replayed)
    return "\n".join(lines)


def _replayed(proof: Proof, gate: Gate) -> str | None:
    """What the model does with an example, where the theorem is about one request's window."""
    from checker.bridge import reproduce

    if proof.example is None or proof.obligation.theorem not in (1, 3, 5):
        return None
    return reproduce(proof, gate)


def _words(example: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in example.items())


def _document(policy: str, results: list[tuple[Proof, str | None]], verdict: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "policy": policy,
        "verdict": verdict,
        "obligations": [
            {
                "theorem": proof.obligation.theorem,
                "name": proof.obligation.name,
                "statement": proof.obligation.words,
                "mathematics": proof.obligation.mathematics,
                "assumptions": {a.name: a.words for a in proof.obligation.assumptions},
                "required": proof.obligation.required,
                "verdict": proof.verdict.value,
                "z3": {"answer": proof.z3, "seconds": round(proof.seconds[0], 4)},
                "cvc5": {"answer": proof.cvc5, "seconds": round(proof.seconds[1], 4)},
                "example": proof.example,
                "in_the_model": replayed,
            }
            for proof, replayed in results
        ],
    }


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


_positive.__name__ = "integer"
