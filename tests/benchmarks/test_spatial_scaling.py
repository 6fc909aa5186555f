"""What the benchmark of counts in tissue measures."""

from __future__ import annotations

import pytest

pytest.importorskip("anndata", reason="anndata is not installed (extra spatial)")

from benchmarks import spatial_scaling


def test_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of cells that one step sees is a step."""
    monkeypatch.setattr(spatial_scaling, "GENES", 10)
    found = spatial_scaling.figures(40, 200)
    assert found["epoch_seconds"] == pytest.approx(found["step_ms"] / 1e3)
    assert 0.0 < found["fit_seconds"] and 0.1 < found["peak_memory_gb"] < 16.0
