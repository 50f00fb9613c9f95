"""Rows in blocks."""

from __future__ import annotations

import pytest

from onefit.estimators import in_blocks


@pytest.fixture(autouse=True)
def in_passes(monkeypatch):
    """Small sources are tuned in passes, as those are that do not fit into memory."""
    monkeypatch.setattr(in_blocks, "is_held", lambda *_: False)
