"""Options from a file, onefit.toml: a table for each command, or keys for all of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from onefit.cli.errors import TableError, listed, suggest


def read_config(context: click.Context, _option: click.Parameter, path: str | None) -> None:
    """Take defaults of a command from a file; what is on the command line wins.

    Raises
    ------
    TableError
        If there is no such file, it is not TOML, or names a command that there is not, or an option that the
        command does not have.
    """
    if path is None:
        return
    options, commands = _parsed(path), _commands(context)
    for given in (options, *(one for one in options.values() if isinstance(one, dict))):
        _refuse_twice(path, given)
    _refuse_values(path, options, commands)
    tables = {key: value for key, value in options.items() if _is_table(value)}
    common = {key: value for key, value in options.items() if key not in tables}
    _refuse_unknown(path, tables, list(commands), "command")
    for name, own in tables.items():
        _refuse_unknown(path, own, list(_options(commands[name])), f"option of {name}")
    every = [name for command in commands.values() for name in _options(command)]
    _refuse_unknown(path, common, every, "option of any command")
    known = _options(context.command)
    given = {_name(key): value for key, value in {**common, **tables.get(str(context.info_name), {})}.items()}
    context.default_map = {
        str(known[key].name): _value(key, known[key], value, path)
        for key, value in given.items()
        if key in known
    }


def _parsed(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # as editors on Windows write it
    except FileNotFoundError as error:
        raise TableError(f"{path}: no such file of options") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{path} is not TOML: {error}") from error


def _name(key: str) -> str:
    return key.replace("-", "_")


def _options(command: click.Command) -> dict[str, click.Parameter]:
    """Parameters of a command by their names on its line, without dashes in front."""
    names = {_name(max(one.opts, key=len).lstrip("-")): one for one in command.params}
    return {name: one for name, one in names.items() if name != "config"}


def _commands(context: click.Context) -> dict[str, click.Command]:
    group = context.parent.command if context.parent is not None else context.command
    return dict(group.commands) if isinstance(group, click.Group) else {str(group.name): group}


def _refuse_values(path: str, options: dict[str, Any], commands: Iterable[str]) -> None:
    """Refuse a value in place of the options of a command."""
    for command in commands:
        if not isinstance(options.get(command, {}), dict):
            raise TableError(
                f"{path}: {command!r} must be a table of the options of onefit {command}, got "
                f"{options[command]!r}: write a line [{command}], and its options below it, one a line, such "
                "as force = true"
            )


def _refuse_twice(path: str, given: Iterable[str]) -> None:
    """Refuse a name that is written in two ways."""
    written: dict[str, str] = {}
    for key in given:
        if (other := written.setdefault(_name(key), key)) != key:
            raise TableError(f"{path}: {other!r} and {key!r} are the same option: leave out one of them")


def _is_table(value: Any) -> bool:
    """Whether a value is a table of TOML, or several of one name."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )


def _refuse_unknown(path: str, given: Iterable[str], known: list[str], what: str) -> None:
    for key in given:
        if _name(key) not in known:
            hint = suggest(_name(key), known) or f"; known are {listed(known, 20)}"
            raise TableError(f"{path}: {key!r} is no {what}{hint}")


def _value(name: str, option: click.Parameter, value: Any, path: str) -> Any:
    """What stands on the command line in place of a value."""
    several, is_flag = getattr(option, "multiple", False), getattr(option, "is_flag", False)
    if isinstance(value, list) != several:
        wanted = "a list" if several else "a single value"
        raise TableError(f"{path}: {name!r} must be {wanted}, got {value!r}")
    if any(isinstance(one, bool) != is_flag for one in (value if several else [value])):
        wanted = "true or false" if is_flag else "text or a number"
        raise TableError(f"{path}: {name!r} must be {wanted}, got {value!r}")
    if is_flag:
        return value
    return list(map(str, value)) if several else str(value)
