"""What the benchmark of nearest neighbours measures."""

from __future__ import annotations

from benchmarks import neighbours_scaling


def test_calls_are_timed_after_two_and_memory_is_that_of_a_fit() -> None:
    """Four calls leave two. In a process that has held more before, a fit may need nothing new."""
    fit = neighbours_scaling.Fit(600)
    assert fit.data.neighbours.shape == (600, 20)
    steps = fit.run(4)
    assert len(steps) == 2 and min(steps) > 0.0
    assert 0.0 <= fit.working_memory(1) < 2000.0
