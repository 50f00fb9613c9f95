"""How the source is laid out: a name says one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import onefit

PACKAGE = Path(onefit.__file__).parent


def test_no_two_classes_share_a_name():
    homes = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{file.relative_to(PACKAGE)}:{node.lineno}")
    assert len(homes) > 100
    assert not {name: places for name, places in homes.items() if len(places) > 1}
