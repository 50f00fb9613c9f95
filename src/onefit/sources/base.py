"""Tables whose rows come in blocks: from an array, from files, from the machines of a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any, TypeVar, final

from onefit.blocks import Block, Rows
from onefit.blocks.rows import in_threads
from onefit.sources.checks import Layout

Part = TypeVar("Part")


class LocalSource(Rows):
    """A source that this process reads, one block at a time, and judges on the threads of ``n_jobs``."""

    _layout: Layout

    @property
    def shape(self) -> tuple[int | None, int]:  # type: ignore[override]
        return None, self._layout.width

    @abstractmethod
    def named_blocks(self) -> Iterator[tuple[str, Block]]:
        """Yield each block, in the order of the rows, and what messages call it."""

    @final
    def total(self, of: Callable[[Block], Part]) -> Part:
        parts = self.each(of)
        whole: Any = next(parts, None)
        if whole is None:
            raise ValueError("the source has no rows")
        return reduce(add, parts, whole)

    @final
    def each(self, of: Callable[[Block], Part]) -> Iterator[Part]:
        held = ((name, of, block) for name, block in self.named_blocks() if len(block.y))
        yield from in_threads(located, held)


def located(name: str, of: Callable[[Block], Part], block: Block) -> Part:
    """``of(block)``, whose complaints name the block."""
    try:
        return of(block)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
