"""Tasks carried out by several processes at once.

Each worker is a fresh interpreter at the other end of a pipe. A worker that dies takes one task with
it, which is then said to have failed; leaving the generator ends them all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from checker.policy import PolicyError
from checker.tasks import Finding, Task, find


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a task: its findings, or why there are none.

    ``policy_error``: the person's own code is at fault. ``fault``: anything else.
    """

    task: Task
    findings: tuple[Finding, ...] = ()
    policy_error: str | None = None
    fault: str | None = None


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def carry_out(tasks: Sequence[Task], jobs: int) -> Generator[Done, None, None]:
    """Carry tasks out, in whatever order they end; in this process if one job is enough."""
    if min(jobs, len(tasks)) <= 1:
        yield from map(_attempt, tasks)
        return
    workers: list[_Worker] = []
    pending = list(reversed(tasks))
    try:
        workers += [_Worker() for _ in range(min(jobs, len(tasks)))]
        for worker in workers:
            worker.start(pending.pop())
        while busy := {worker.pipe: worker for worker in workers if worker.task is not None}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                done, alive = worker.result()
                if not alive:
                    worker.end()
                    workers[workers.index(worker)] = worker = _Worker()
                if pending:
                    worker.start(pending.pop())
                yield done
    finally:
        for worker in workers:
            worker.end()


def _attempt(task: Task) -> Done:
    try:
        return Done(task, tuple(find(task)))
    except PolicyError as error:
        return Done(task, policy_error=str(error))
    except (OverflowError, MemoryError) as error:
        return Done(task, fault=f"no verdict: {error or type(error).__name__}")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        words = f"a fault of the checker, please report it: {type(error).__name__}: {error}"
        return Done(task, fault=words)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C waits; a process started meanwhile never hears it, not even while it imports."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """A process and the task that it is at."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _no_interrupts():
            self.process.start()
        theirs.close()
        self.task: Task | None = None

    def start(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # dead already; the pipe says so when it is read
            self.pipe.send(task)

    def result(self) -> tuple[Done, bool]:
        """What became of the task, and whether the worker lives."""
        task, self.task = self.task, None
        assert task is not None
        try:
            done: Done = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(1)
            words = f"the process that worked on it ended (exit code {self.process.exitcode})"
            return Done(task, fault=f"{words}; was there enough memory?"), False
        return done, True

    def end(self) -> None:
        self.process.terminate()
        self.process.join(2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _serve(pipe: Connection[Any, Any]) -> None:
    """Carry out what comes through the pipe until it is closed; Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_attempt(pipe.recv()))
