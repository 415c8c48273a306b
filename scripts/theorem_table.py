"""Write the generated parts of ``docs/theorems.md``: who proves what, and what each assumption is for.

python scripts/theorem_table.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from checker.prove import Proof, prove, witness
from models.gates import GATES, Gate
from properties.theorems import Obligation, obligations
from properties.verdict import Verdict

PAGE = Path(__file__).parent.parent / "docs" / "theorems.md"
WORD = {Verdict.PROVED: "proved", Verdict.VIOLATED: "refuted"}
NOT_ASKED = "-"
CORRECTED = [GATES["first-decode-step"], GATES["first-decode-step-always"]]


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def current(page: str) -> str:
    """The page with its generated parts made anew."""
    parts = {"gates": gates(), "refuted": refuted(), "assumptions": assumptions()}
    for name, text in parts.items():
        page, count = re.subn(
            rf"(<!-- {name}, generated -->\n).*?(<!-- end -->)",
            lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"the page needs one part {name!r}")
    return page


# --- which gate has which --------------------------------------------------------------------


def gates() -> str:
    """A row for every obligation, a column for every gate."""
    titles = dict.fromkeys(title(o) for gate in GATES.values() for o in _of(gate))
    return _markdown([["obligation", *(f"`{name}`" for name in GATES)], *map(row, _sorted(titles))])


def row(named: str) -> list[str]:
    """An obligation's verdicts, by gate."""
    cells = []
    for gate in GATES.values():
        asked = [o for o in _of(gate) if title(o) == named]
        cells.append(WORD[_proof(gate.name, named).verdict] if asked else NOT_ASKED)
    return [named, *cells]


def refuted() -> str:
    """The least counterexample of every obligation that a gate does not have, with one group."""
    rows = []
    for gate in GATES.values():
        forms = {_form(o): o for o in reversed(obligations(gate, groups=(1,)))}
        for obligation in reversed(forms.values()):
            proof = _proof(gate.name, title(obligation))
            if proof.verdict is Verdict.VIOLATED:
                rows.append([f"`{gate.name}`", title(obligation), example(proof.example)])
    return _markdown([["gate", "obligation", "least counterexample"], *rows])


@cache
def _proof(policy: str, named: str) -> Proof:
    gate = GATES[policy]
    (obligation,) = (o for o in _of(gate) if title(o) == named)
    return prove(obligation, gate)


def _sorted(titles: Iterable[str]) -> list[str]:
    """By theorem; within one, in the order in which they come."""
    return sorted(titles, key=lambda named: int(named.split()[0]))


# --- what the assumptions are for ------------------------------------------------------------


def assumptions() -> str:
    """A section for every obligation of the corrected gates."""
    return "\n\n".join(section for gate in CORRECTED for section in sections(gate))


def sections(gate: Gate) -> Iterator[str]:
    """Those of one gate, without what an earlier gate has in the same form."""
    earlier = {_form(o): title(o) for each in CORRECTED[: CORRECTED.index(gate)] for o in _of(each)}
    for obligation in _of(gate):
        form = _form(obligation)
        if form not in earlier:
            yield section(obligation, gate)
        elif not CORRECTED.index(gate):
            yield f"**{title(obligation)}**: {earlier[form]} once more."
        earlier.setdefault(form, title(obligation))


def section(obligation: Obligation, gate: Gate) -> str:
    """An obligation, numbers that satisfy all its assumptions, and what happens without each."""
    of = "" if gate is CORRECTED[0] else f" of `{gate.name}`"
    obligation = replace(
        obligation, integers=False
    )  # natural numbers, of which there are least ones
    least = witness(obligation, gate)
    text = [
        f"**{title(obligation)}**{of}: {obligation.words}.",
        f"`{obligation.mathematics}`",
        f"All assumptions hold at {example(least)}.",
    ]
    if obligation.assumptions:
        rows = [
            [f"`{a.name}`", a.words, dropped(obligation, a.name, gate)]
            for a in obligation.assumptions
        ]
        text.append(_markdown([["assumption", "in words", "without it the goal fails at"], *rows]))
    else:
        text[-1] = f"No assumption; the least numbers are {example(least)}."
    return "\n\n".join(text)


def dropped(obligation: Obligation, name: str, gate: Gate) -> str:
    """The least counterexample without an assumption."""
    proof = prove(obligation.without(name), gate)
    return example(proof.example) if proof.verdict is Verdict.VIOLATED else "not needed"


def _form(obligation: Obligation) -> tuple[str, ...]:
    return (obligation.name, *(a.name for a in obligation.assumptions))


@cache
def _of(gate: Gate) -> list[Obligation]:
    return obligations(gate)


def title(obligation: Obligation) -> str:
    """Number of the theorem and name, as ``check prove`` has them."""
    return f"{obligation.theorem} {obligation.name}"


def example(values: dict[str, int] | None) -> str:
    """Numbers by letter."""
    assert values is not None
    return "`" + ", ".join(f"{name}={value}" for name, value in values.items()) + "`"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    main()
