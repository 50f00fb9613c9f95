"""What is printed: a reader that leaves, or a disk that is full, takes nothing from the work."""

from __future__ import annotations

import os
import sys

import click

_lost: list[OSError] = []  # why something could not be printed


def say(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print on standard output or error; where that fails, the rest is not printed and the work goes on.

    Characters that the terminal does not have become question marks.  Bytes are printed as they are.
    """
    try:
        click.echo(message, err=err, nl=nl)
    except UnicodeEncodeError as error:
        shown = str(message).encode(error.encoding, errors="replace").decode(error.encoding)
        say(shown, err=err, nl=nl)
    except OSError as error:
        _lost.append(error)
        mute(sys.stderr if err else sys.stdout)


def mute(stream: object) -> None:
    """Send what is still to be printed nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
    os.close(nowhere)


def take_failure() -> OSError | None:
    """Return why something was not printed, once; that nobody wanted to read it is no failure."""
    failures = [error for error in _lost if not isinstance(error, BrokenPipeError)]
    _lost.clear()
    return failures[0] if failures else None
