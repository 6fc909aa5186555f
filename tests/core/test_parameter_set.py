"""Parameters by path: each once, read, replaced and weighed in the order of the paths."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.core.functional import functional_copy
from gpflow_bae.core.parameter_set import ParameterSet

tfd = tfp.distributions


def kernel() -> gpflow.kernels.Kernel:
    """Two kernels that share a variance of 2, under LogNormal(0, 1); one lengthscale is 3."""
    first = gpflow.kernels.SquaredExponential(variance=2.0, lengthscales=3.0)
    second = gpflow.kernels.Linear()
    second.variance = first.variance
    first.variance.prior = tfd.LogNormal(*gpflow.utilities.to_default_float([0.0, 1.0]))
    return first + second


def test_a_shared_parameter_is_there_once() -> None:
    found = ParameterSet(kernel())
    assert found.paths == (".kernels[0].variance", ".kernels[0].lengthscales")
    assert found.num_scalars == 2
    assert ParameterSet(kernel(), lambda p: p.prior is not None).paths == found.paths[:1]


def test_values_in_the_place_of_parameters() -> None:
    """The copy computes with the values that ``assign`` would set, and the module is as it was."""
    module, X = kernel(), np.array([[0.0], [1.0]])
    found = ParameterSet(module)
    values = [v + 0.3 for v in found.values()]
    copy = functional_copy(module, found.constrained(values))
    before = module(X).numpy()
    replaced = copy(X).numpy()
    np.testing.assert_array_equal(module(X), before)
    found.assign(values)
    np.testing.assert_allclose(module(X), replaced, rtol=1e-12)
    with pytest.raises(ValueError, match="zip"):
        found.assign(values[:1])


def test_log_prior_is_that_of_the_unconstrained_values() -> None:
    """log p(variance) + log |d variance / d value|, the logistic function of the value."""
    found = ParameterSet(kernel(), lambda p: p.prior is not None)
    (value,) = (float(v) for v in found.values())
    variance = np.log1p(np.exp(value))
    log_density = -0.5 * (np.log(variance) ** 2 + np.log(2 * np.pi)) - np.log(variance)
    expected = log_density - np.log1p(np.exp(-value))
    # GPflow's positive transform may keep 1e-6 of distance to zero.
    np.testing.assert_allclose(found.log_prior(found.values()), expected, rtol=1e-5)
    stacked = [tf.stack([v, v + 1.0]) for v in found.values()]
    assert found.log_prior(stacked, chain_ndims=1).shape == (2,)
