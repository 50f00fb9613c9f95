"""Rows in blocks."""

from __future__ import annotations

import pytest

from onefit.estimators import of_sources


@pytest.fixture(autouse=True)
def in_passes(monkeypatch):
    """Small sources are tuned in passes, as those are that do not fit into memory."""
    monkeypatch.setattr(of_sources, "fits_into_memory", lambda *_: False)
