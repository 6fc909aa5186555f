"""Which columns of the inputs kernels read."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_bae.kernels.reading import check_kernel_inputs


def test_lengthscales_of_other_columns_are_refused() -> None:
    """One for each column that the kernel reads, or one for all, also within a sum."""
    X = np.arange(12.0).reshape(4, 3)
    three = gpflow.kernels.Matern52(lengthscales=[1.0, 2.0, 3.0])
    check_kernel_inputs([three, gpflow.kernels.Matern52(lengthscales=[1.0])], X)
    words = r"Matern52 has 3 lengthscales, and reads 2 column\(s\)"
    for kernel in (three, three + gpflow.kernels.White()):
        with pytest.raises(ValueError, match=words):
            check_kernel_inputs([kernel], X[:, :2])
