"""Problems in processes of their own, so that one that takes too long can be stopped."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from threadpoolctl import threadpool_limits

from zoo.draw import draw
from zoo.families import FAMILIES
from zoo.record import Record, judge

LIMIT = 300.0  # seconds on the clock for a problem with all of its refits


def one_problem(number: int, **size: Any) -> Record:
    """Draw, run and judge one problem; ``size`` is for ``draw``."""
    family = family_of(number)
    try:
        case = draw(number, **size)
    except FileNotFoundError as error:
        return Record(number, family, "", status="no data", message=str(error))
    except Exception as error:  # of a fit: ours should have one, others may not
        own = "onefit" in type(error).__module__ or "+" in family
        message = f"fit: {type(error).__name__}: {error}"
        return Record(number, family, "", status="crash" if own else "no fit", message=message)
    return judge(case)


def family_of(number: int) -> str:
    """Name of the family of a problem: they take turns."""
    return list(FAMILIES)[number % len(FAMILIES)]


def run(numbers: Sequence[int], jobs: int, size: dict[str, Any]) -> Iterator[Record]:
    """Run some problems of a size, and return each record as soon as it is there."""
    waiting = list(reversed(numbers))
    workers = [_Worker(waiting.pop(), size) for _ in range(min(jobs, len(waiting)))]
    while workers:
        ready = wait([worker.pipe for worker in workers], timeout=1.0)
        for place, worker in enumerate(workers):
            if worker.pipe not in ready and not worker.is_late:
                continue
            yield worker.answer()
            if not waiting:
                worker.stop()
            elif worker.process.is_alive():
                worker.ask(waiting.pop())
            else:
                workers[place] = _Worker(waiting.pop(), size)
        workers = [worker for worker in workers if worker.process.is_alive()]


class _Worker:
    """A process that takes numbers and returns records."""

    def __init__(self, number: int, size: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, size), daemon=True)
        self.process.start()
        theirs.close()
        self.ask(number)

    def ask(self, number: int) -> None:
        self.number, self.started = number, time.monotonic()
        self.pipe.send(number)

    def answer(self) -> Record:
        """The record, or one that says why there is none; the process is gone then."""
        status, message = "too slow", f"over {LIMIT:g} s"
        if self.pipe.poll():
            try:
                return self.pipe.recv()
            except (EOFError, ConnectionError):
                status, message = "crash", "the process died"
        self.stop()
        return Record(self.number, family_of(self.number), "", status=status, message=message)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.started > LIMIT


def _serve(pipe: Connection, size: dict[str, Any]) -> None:
    with threadpool_limits(1):
        while True:
            pipe.send(one_problem(pipe.recv(), **size))
