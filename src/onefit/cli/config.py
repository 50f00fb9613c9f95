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
        If there is no such file, it is not TOML, or names an option that the command does not have.
    """
    if path is None:
        return
    options = _parsed(path)
    _refuse_values(path, options, _commands(context))
    command = str(context.info_name)
    common = {key: value for key, value in options.items() if not isinstance(value, dict)}
    own = options.get(command, {})
    known = {one.name: one for one in context.command.params if one.name and one.name != "config"}
    _refuse_unknown(path, command, own, list(known))
    _refuse_unknown(path, "any command", common, _every_option(context))
    given = {_name(key): value for key, value in {**common, **own}.items()}
    context.default_map = {
        key: _value(known[key], value, path) for key, value in given.items() if key in known
    }


def _parsed(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TableError(f"{path}: no such file of options") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{path} is not TOML: {error}") from error


def _name(key: str) -> str:
    return key.replace("-", "_")


def _every_option(context: click.Context) -> list[str]:
    return [str(one.name) for command in _commands(context).values() for one in command.params]


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


def _refuse_unknown(path: str, command: str, given: dict[str, Any], known: list[str]) -> None:
    for key in given:
        if _name(key) not in known:
            hint = suggest(_name(key), known) or f"; known are {listed(known, 20)}"
            raise TableError(f"{path}: {key!r} is no option of {command}{hint}")


def _value(option: click.Parameter, value: Any, path: str) -> Any:
    if isinstance(value, list) != option.multiple if isinstance(option, click.Option) else False:
        wanted = "a list" if getattr(option, "multiple", False) else "a single value"
        raise TableError(f"{path}: {option.name!r} must be {wanted}, got {value!r}")
    return value
