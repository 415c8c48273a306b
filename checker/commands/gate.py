"""``check gate``: every proof obligation of a repository."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from checker.outputs import FILE_HELP, REPORTS

if TYPE_CHECKING:
    from checker.gating import ObligationResult
    from checker.obligations import Obligation
    from checker.outputs import Renderers
    from checker.store import Store
    from checker.tasks import Task
    from checker.workers import Done

NAME = "gate"
HELP = "run a repository's proof obligations, for CI"
STORE = Path(".kvgate_cache") / "verdicts.sqlite"
PLAIN_EVERY = 10.0  # seconds between two lines of progress where stderr is not a terminal


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit codes\n  0 every expectation is met   1 one is not   2 the input is wrong\n"
        "  3 something is inconclusive and nothing is wrong   130 interrupted"
    )
    parser.add_argument("file", type=Path, metavar="obligations.toml", help="see docs/ci.md")
    parser.add_argument(
        "--select",
        action="append",
        metavar="GLOB",
        help="only the obligations whose name matches; may be repeated",
    )
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="processes (default: one for each core)"
    )
    parser.add_argument(
        "--no-cache", action="store_true", help="read no verdicts from the store and keep none"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="PATH",
        help=f"where verdicts are kept (default: {STORE.as_posix()} beside the file)",
    )
    parser.add_argument(
        "--format",
        choices=("text", *REPORTS),
        default="text",
        help="what stdout has; github is the text with annotations",
    )
    parser.add_argument("-o", dest="output", action="append", metavar="FILE", help=FILE_HELP)


def run(args: argparse.Namespace) -> int:
    """Run the obligations; returns the exit code."""
    from checker.obligations import ObligationError, read_obligations
    from checker.outputs import OutputError, targets

    try:
        if args.no_cache and args.store:
            raise ObligationError("--no-cache and --store: give one of the two")
        files = targets(args.output)
        obligations = _selected(read_obligations(args.file), args.select, args.file)
    except (ObligationError, OutputError) as error:
        return _wrong_input(error)
    if args.format in ("text", "github"):
        _tolerant_stdout()
    session = _Session(args, obligations)
    interrupted = False
    started = time.monotonic()
    try:
        with _terminable():
            session.run()
    except KeyboardInterrupt:
        interrupted = True
    if session.policy_error is not None:
        return _wrong_input(session.policy_error)
    results = session.results()
    reports = _reports(results, args.file, complete=not interrupted)
    if args.format in ("text", "github"):
        session.print_rest()
        _print_details(results)
        _print_summary(results, time.monotonic() - started)
    if args.format != "text":
        print(reports[args.format](), end="")
    try:
        from checker.outputs import write

        for file in files:
            write(file, reports[file.format]())
    except OutputError as error:
        return _wrong_input(error)
    if interrupted:
        print("interrupted", file=sys.stderr)
        return 130
    return _exit_code(results)


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; must be an integer of at least 1")
    return value


def _wrong_input(error: object) -> int:
    print(f"check gate: {error}", file=sys.stderr)
    return 2


def _tolerant_stdout() -> None:
    import io

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show every name


def _selected(
    obligations: list[Obligation], patterns: list[str] | None, path: Path
) -> list[Obligation]:
    """The obligations that match; a pattern that matches nothing is an error."""
    from difflib import get_close_matches
    from fnmatch import fnmatchcase

    from checker.obligations import ObligationError

    names = [one.name for one in obligations]
    for pattern in patterns or ():
        if not any(fnmatchcase(name, pattern) for name in names):
            close = get_close_matches(pattern, names, 1)
            hint = f"did you mean {close[0]!r}?" if close else "there are " + ", ".join(names)
            raise ObligationError(f"--select {pattern}: matches nothing in {path}; {hint}")
    if patterns is None:
        return obligations
    return [one for one in obligations if any(fnmatchcase(one.name, p) for p in patterns)]


@contextmanager
def _terminable() -> Iterator[None]:
    """A request to end (as a cancelled CI job sends) ends as Ctrl-C does, children first."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Session:
    """One run: what is known of each task so far, and which obligations have been printed."""

    def __init__(self, args: argparse.Namespace, obligations: Sequence[Obligation]) -> None:
        from checker.store import Keys

        self.args = args
        self.keys = Keys()
        self.obligations = obligations
        self.done: dict[Task, Done] = {}
        self.stored: set[Task] = set()
        self.printed = 0
        self.policy_error: str | None = None
        self.width = max(len(one.name) for one in obligations)

    def run(self) -> None:
        """Look every task up in the store, and carry out what is not there."""
        from contextlib import closing

        from checker.workers import carry_out, cores

        names: dict[Task, set[str]] = {}
        for one in self.obligations:
            for cell in one.cells:
                names.setdefault(cell.task, set()).update(cell.names)
        store = self._open()
        keys = {} if store is None else self._keys(names)
        try:
            store = self._look_up(store, names, keys)
            self._print_ready()
            pending = [task for task in names if task not in self.done]
            working = closing(carry_out(pending, self.args.jobs or cores()))
            with _progress(len(names), len(names) - len(pending)) as advance, working as ended:
                for done in ended:
                    if done.policy_error is not None:
                        self.policy_error = done.policy_error
                        return
                    self.done[done.task] = done
                    store = self._keep(store, keys, done)
                    advance()
                    self._print_ready()
        finally:
            if store is not None:
                store.close()

    def _keys(self, tasks: Iterable[Task]) -> dict[Task, str]:
        from checker.store import engine_digest

        engine = engine_digest()
        return {task: self.keys.of(task, engine) for task in tasks}

    def _open(self) -> Store | None:
        if self.args.no_cache:
            return None
        from checker.store import Store, StoreError

        try:
            return Store(self.args.store or self.args.file.parent / STORE)
        except StoreError as error:
            _say_store(error)
            return None

    def _look_up(
        self, store: Store | None, names: dict[Task, set[str]], keys: dict[Task, str]
    ) -> Store | None:
        from checker.store import StoreError
        from checker.workers import Done

        for task, wanted in names.items():
            if store is None:
                break
            try:
                found = store.get(keys[task], sorted(wanted))
            except StoreError as error:
                store.close()
                store = None
                _say_store(error)
                self.done.clear()  # nothing from a damaged file
                self.stored.clear()
                break
            if found is not None:
                self.done[task] = Done(task, tuple(found))
                self.stored.add(task)
        return store

    def _keep(self, store: Store | None, keys: dict[Task, str], done: Done) -> Store | None:
        from checker.store import StoreError

        if store is None or done.fault is not None:
            return store
        try:
            # If not, the code was changed during the run.
            if self._keys([done.task]) == {done.task: keys[done.task]}:
                store.put(keys[done.task], done.findings)
        except StoreError as error:
            store.close()
            _say_store(error)
            return None
        return store

    def results(self) -> list[ObligationResult]:
        """What became of every obligation, as far as is known."""
        from checker.gating import judge

        return [judge(one, self.done, self.stored) for one in self.obligations]

    def _print_ready(self) -> None:
        """Print the obligations that are decided, in the order of the file."""
        if self.args.format not in ("text", "github"):
            return
        for one in self.obligations[self.printed :]:
            if not all(cell.task in self.done for cell in one.cells):
                return
            self._print(one)

    def print_rest(self) -> None:
        """Print what an interrupt left undecided."""
        for one in self.obligations[self.printed :]:
            self._print(one)

    def _print(self, one: Obligation) -> None:
        from checker.gating import WORDS, judge, line

        result = judge(one, self.done, self.stored)
        word = WORDS[result.outcome]
        word = word if word == "met" else word.upper()
        _clear_progress()
        print(f"{word:<12}  {one.name:<{self.width}}  {line(result)}", flush=True)
        self.printed += 1


def _say_store(error: Exception) -> None:
    print(f"check gate: store: {error}; going on without it", file=sys.stderr)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def _progress(total: int, before: int) -> Iterator[Callable[[], None]]:
    """A line on stderr that says how many tasks are done."""
    done, last = before, time.monotonic()

    def advance() -> None:
        nonlocal done, last
        done += 1
        words = f"{done} of {total} decided"
        if sys.stderr.isatty():
            print(f"\r{words}\x1b[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last >= PLAIN_EVERY:
            last = time.monotonic()
            print(words, file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        _clear_progress()


def _reports(results: list[ObligationResult], path: Path, *, complete: bool) -> Renderers:
    import json

    from checker.gating import gate_cases, gate_document
    from checker.outputs import renderers

    file = path.as_posix()
    return renderers(
        lambda: gate_cases(results, file),
        lambda: json.dumps(gate_document(results, file, complete=complete), indent=1) + "\n",
    )


def _print_details(results: Sequence[ObligationResult]) -> None:
    """What is not as expected, with the run that shows it."""
    from checker.gating import SHOWN, difference
    from checker.outputs.cases import trace_text

    for result in results:
        different = result.different
        if not different:
            continue
        print(f"\n{result.obligation.name}")
        for cell in different[:SHOWN]:
            print(f"  {difference(result, cell)}")
        if len(different) > SHOWN:
            print(f"  {len(different) - SHOWN} more are not as expected")
        trace = next((cell.finding.trace for cell in different if cell.finding.trace), None)
        for line in trace_text(trace) if trace is not None else ():
            print(f"    {line}")


def _print_summary(results: Sequence[ObligationResult], seconds: float) -> None:
    from checker.outputs.cases import Outcome

    outcomes = [result.outcome for result in results]
    words = f"{outcomes.count(Outcome.PASSED)} of {len(results)} obligations met"
    if count := outcomes.count(Outcome.FAILED):
        words += f", {count} not met"
    if count := outcomes.count(Outcome.INCONCLUSIVE):
        words += f", {count} inconclusive"
    cells = sum(len(result.cells) for result in results)
    stored = sum(result.stored for result in results)
    verdicts = f"{cells} verdict{'s' * (cells != 1)}"
    print(f"\n{words}: {verdicts}, {stored} from the store, {seconds:.1f} s")


def _exit_code(results: Sequence[ObligationResult]) -> int:
    from checker.gating import worst_outcome
    from checker.outputs.cases import Outcome

    outcome = worst_outcome([result.outcome for result in results])
    return {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.INCONCLUSIVE: 3}[outcome]
