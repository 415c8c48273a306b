"""A scenario as a Promela model, and its states and transitions as SPIN counts them.

``step.pml`` has the scheduler step; this module writes the constants of a scenario and the choices
of its environment into it, runs ``spin``, the C compiler and the resulting verifier, and reads
the counts. Nothing here uses the Python step functions, so the two semantics check each other.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.config import RequestSpec, Scenario

TEMPLATE = Path(__file__).with_name("step.pml")

# Gates by name, as expressions of a request's num_tokens `t`.
GATE_EXPRESSIONS: dict[str, str | None] = {
    "none": None,
    "prompt-only": "MIN(t, MAX_MODEL_LEN)",
    "lookahead-only": "MIN((t) + LOOKAHEAD, MAX_MODEL_LEN)",
    "first-decode-step": "MIN((t) + (K > 0 -> 1 + K + LOOKAHEAD : 0), MAX_MODEL_LEN)",
    "first-decode-step-always": "MIN((t) + 1 + K + LOOKAHEAD, MAX_MODEL_LEN)",
}

# -o1 and -o2 turn off what merges states that differ in a variable that is not read again.
SPIN_OPTIONS = ("-o1", "-o2")
# A plain depth-first search that stores every state whole: no partial order reduction, no
# compression of the state vector, no cycle detection.
COMPILE_OPTIONS = ("-O2", "-w", "-DNOREDUCE", "-DNOCOMP", "-DSAFETY", "-DNOFAIR", "-DMEMLIM=16000")


class SpinError(RuntimeError):
    """SPIN, the compiler or the verifier failed, or did not search everything."""


@dataclass(frozen=True, slots=True)
class SpinCounts:
    """What SPIN found, at the granularity of steps, and what it cost.

    ``num_states`` and ``num_transitions`` leave out SPIN's own start state and its transitions to
    the initial states of the scenario. ``seconds`` of processor time and ``wall_seconds`` are those
    of the search alone, ``build_seconds`` those of ``spin`` and the compiler. ``bytes_used``: states,
    hash table and stack, as SPIN reports them.
    """

    num_states: int
    num_transitions: int
    seconds: float
    wall_seconds: float
    build_seconds: float
    bytes_used: int
    report: str


def missing_tools() -> list[str]:
    """Which of the programs that are needed are not installed."""
    return [tool for tool in ("spin", "cc") if shutil.which(tool) is None]


# --- the model -------------------------------------------------------------------------------


def promela(scenario: Scenario) -> str:
    """The Promela model of a scenario."""
    before, after = TEMPLATE.read_text().split("\nCHOICES\n")
    return "\n".join((*_constants(scenario), "", before, *_choices(scenario), after))


def _constants(scenario: Scenario) -> Iterator[str]:
    engine, environment = scenario.engine, scenario.environment
    count, groups = len(scenario.requests), len(engine.block_sizes)
    spec_tokens = engine.num_spec_tokens
    most = environment.accepted[1]
    yield f"/* {scenario.name}: written by promela.py */"
    constants = {
        "N": count,
        "N_TABLES": count * groups,
        "K": spec_tokens,
        "LOOKAHEAD": engine.lookahead,
        "DRAFT_SLOTS": engine.draft_slots,
        "USABLE_BLOCKS": engine.usable_blocks,
        "WATERMARK_BLOCKS": engine.watermark_blocks,
        "MAX_MODEL_LEN": engine.max_model_len,
        "MAX_NUM_SEQS": engine.max_num_seqs,
        "MAX_NUM_BATCHED_TOKENS": engine.max_num_batched_tokens,
        "ACCEPT_LEAST": environment.accepted[0],
        "ACCEPT_MOST": spec_tokens if most is None else most,
        "HORIZON": scenario.horizon,
        "tokens_t": _type(engine.max_model_len),
        "blocks_t": _type(engine.usable_blocks),
        "clock_t": _type(scenario.horizon),
    }
    for name, value in constants.items():
        yield f"#define {name} {value}"
    flags = {
        "RBLN": engine.scheduler == "rbln",
        "PRIORITY": engine.priority_policy,
        "OUTLIVES_SELF_PREEMPTION": engine.outlives_self_preemption,
        "FIXED_ARRIVALS": scenario.fixed_arrivals,
        "EOS": environment.eos,
    }
    for name, wanted in flags.items():
        if wanted:
            yield f"#define {name}"
    if engine.gate.name not in GATE_EXPRESSIONS:
        raise ValueError(
            f"gate {engine.gate.name!r} has no Promela form; known: {', '.join(GATE_EXPRESSIONS)}"
        )
    gate = GATE_EXPRESSIONS[engine.gate.name]
    if gate is not None:
        yield f"#define GATE_TOKENS(t) {gate}"
    yield from _block_arithmetic(engine.block_sizes)


def _choices(scenario: Scenario) -> Iterator[str]:
    """Arrivals and answers, one option for each that leads to a state of its own."""
    yield from _ranks(scenario)
    yield from (_fixed_arrivals(scenario) if scenario.fixed_arrivals else _arrivals(scenario))
    yield from _answers(scenario)


def _type(largest: int) -> str:
    """The smallest type that holds 0 to ``largest``."""
    return "byte" if largest < 1 << 8 else "short" if largest < 1 << 15 else "int"


def _block_arithmetic(block_sizes: tuple[int, ...]) -> Iterator[str]:
    """Sums over the groups: new blocks, the table after them, blocks held, blocks given back."""
    count = len(block_sizes)
    tables = [f"blocks[(r) * {count} + {group}]" for group in range(count)]
    missing = [
        f"POS(CDIV(s, {size}) - {table})" for size, table in zip(block_sizes, tables, strict=True)
    ]
    grow = [f"{table} = {table} + {new}" for table, new in zip(tables, missing, strict=True)]
    yield f"#define NEED(r, s) ({' + '.join(missing)})"
    yield f"#define HELD(r) ({' + '.join(tables)})"
    yield f"#define GROW(r, s) {'; '.join(grow)}"
    yield f"#define RELEASE(r) {'; '.join(f'{table} = 0' for table in tables)}"


def _ranks(scenario: Scenario) -> Iterator[str]:
    """Who is more urgent: priority, then arrival, then the workload's order."""
    urgency = sorted(
        range(len(scenario.requests)),
        key=lambda i: (scenario.requests[i].priority, scenario.requests[i].arrival or 0, i),
    )
    ranks = [f"rank[{index}] = {rank}" for rank, index in enumerate(urgency)]
    yield f"inline set_ranks() {{ {'; '.join(ranks)} }}"


def _entries(index: int, spec: RequestSpec, guard: str, after: str) -> Iterator[str]:
    """One option for each prompt length with which a request may enter."""
    shortest, longest = spec.prompt
    for length in range(shortest, longest + 1):
        yield f"  :: d_step {{ {guard} -> arrive({index}, {length}){after} }}"


def _arrivals(scenario: Scenario) -> Iterator[str]:
    """Any number of the next requests arrive together; at least one if the engine sleeps."""
    entries = [
        entry
        for index, spec in enumerate(scenario.requests)
        for entry in _entries(index, spec, f"arrived == {index}", "; arrived++")
    ]
    yield "#define WAKES BUSY"
    yield from ("inline next_arrivals() {", "  do", "  :: break", *entries, "  od", "}")
    yield from ("inline first_arrivals() {", "  if", *entries, "  fi;", "  next_arrivals()", "}")


def _fixed_arrivals(scenario: Scenario) -> Iterator[str]:
    """Those that are due arrive. A sleeping engine's clock runs until the last has come."""
    yield "#define WAKES (BUSY || clock < HORIZON)"
    yield "inline first_arrivals() {"
    for index, spec in enumerate(scenario.requests):
        due = f"status[{index}] == UNARRIVED && {spec.arrival or 0} <= clock"
        yield from ("  if", *_entries(index, spec, due, ""), "  :: else", "  fi;")
    yield from ("  skip", "}")
    yield "inline next_arrivals() { clock = MIN(clock + 1, HORIZON); first_arrivals() }"


def _answers(scenario: Scenario) -> Iterator[str]:
    """Each request that sampled: every distinct outcome is one option.

    All the answers that end the request are one outcome; those that do not differ in the tokens
    emitted or in the drafts proposed.
    """
    spec_tokens = scenario.engine.num_spec_tokens
    up_to = scenario.environment.proposed == "up-to"
    yield "inline answers() {"
    for index, spec in enumerate(scenario.requests):
        most = spec.max_tokens
        yield "  if"
        yield f"  :: status[{index}] != SAMPLING"
        yield f"  :: d_step {{ MAY_FINISH({index}, {most}) -> finish({index}) }}"
        for accepted in range(spec_tokens + 1):
            guard = f"MAY_ACCEPT({index}, {most}, {accepted})"
            for proposed in range(0 if up_to else spec_tokens, spec_tokens + 1):
                yield f"  :: d_step {{ {guard} -> emit({index}, {accepted}, {proposed}) }}"
        yield "  fi;"
    yield from ("  skip", "}")


# --- running it ------------------------------------------------------------------------------


def count(
    scenario: Scenario,
    num_roots: int,
    directory: Path,
    *,
    depth: int = 10_000,
    hash_bits: int = 20,
    spin_options: tuple[str, ...] = SPIN_OPTIONS,
    compile_options: tuple[str, ...] = COMPILE_OPTIONS,
) -> SpinCounts:
    """Count the states and transitions of a scenario that has ``num_roots`` initial states.

    SPIN starts in a state of its own, before the first arrival, with one transition to each root:
    both are taken off. It also counts its start state as a transition. The search is repeated with
    ten times the ``depth`` of its stack, in transitions of SPIN's own, as long as that is too small.

    Raises:
        SpinError: a program failed, or the search was not exhaustive.
    """
    started = time.monotonic()
    (directory / "model.pml").write_text(promela(scenario))
    _run(["spin", *spin_options, "-a", "model.pml"], directory)
    _run(["cc", *compile_options, "-o", "pan", "pan.c"], directory)
    built = time.monotonic()
    while True:
        began, busy = time.monotonic(), _children_seconds()
        report = _run(["./pan", "-n", f"-m{depth}", f"-w{hash_bits}"], directory)
        wall_seconds, seconds = time.monotonic() - began, _children_seconds() - busy
        if "max search depth too small" not in report:
            break
        depth *= 10
    if _figure(report, r"errors: (\S+)") != 0 or "Search not completed" in report:
        raise SpinError(f"SPIN's search did not end well:\n{report}")
    return SpinCounts(
        num_states=_count(report, r"(\S+) states, stored") - 1,
        num_transitions=_count(report, r"(\S+) transitions \(= stored\+matched\)") - 1 - num_roots,
        seconds=seconds,
        wall_seconds=wall_seconds,
        build_seconds=built - started,
        bytes_used=round(_figure(report, r"(\S+)\s+memory usage \(Mbyte\)") * 2**20),
        report=report,
    )


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SpinError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _count(report: str, pattern: str) -> int:
    """A count; SPIN prints eight digits, so a larger one would be rounded."""
    figure = _figure(report, pattern)
    if figure >= 1e8:
        raise SpinError(f"SPIN rounds counts of 100,000,000 and more: {figure:g}")
    return int(figure)


def _figure(report: str, pattern: str) -> float:
    found = re.search(pattern, report)
    if found is None:
        raise SpinError(f"SPIN's report has no {pattern!r}:\n{report}")
    return float(found.group(1))
