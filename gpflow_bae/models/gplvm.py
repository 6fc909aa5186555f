"""Gaussian process latent variable models with minibatches, missing data and any likelihood."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingVariables

from ..base import Batch, Snapshot, VariationalModel, VariationalTerms
from ..bijectors import planar_flow
from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..decoders import GPDecoder
from ..encoders import BaseGaussianEncoder
from ..guides import BoundGuide, FlowGuide, MeanFieldGuide
from ..latent_priors import StandardNormal
from ..likelihoods import ByColumn, entrywise, masked

__all__ = ["FlowGPLVM", "StochasticGPLVM"]


class StochasticGPLVM(gpflow.Module, VariationalModel):
    r"""GPLVM with the uncollapsed bound (Lalchand et al. 2022, after Hensman et al. 2013).

    .. math::
        \sum_{n, p \text{ observed}} E_{q(x_n)} E_{q(f_p | x_n)}[\log p(y_{np} | f_p(x_n))]
        - \sum_n KL[q(x_n) || p(x_n)] - \sum_p KL[q(v_p) || p(v_p)] .

    The expectation over f is the likelihood's (closed form for a Gaussian, else quadrature); that
    over x is Monte Carlo, or in closed form with ``num_draws=None``. The bound is a sum over
    observed entries: missing ones cost nothing, and minibatches of rows, of columns, or of both
    estimate it (``VariationalSettings.batch_size``, ``num_columns``);
    :class:`gpflow_bae.data.SparseTable` holds triplets. GPflow's ``BayesianGPLVM`` is the
    full-batch, Gaussian, complete-data case with optimal q(v).

    Fit with :func:`gpflow_bae.inference.fit_variational`, with ``(None, Y)`` as data.
    """

    splits_over_outputs = True
    latent_prior_name = "StandardNormal"

    @check_arguments(output_dim=1, num_draws=1)
    def __init__(
        self,
        guide: BoundGuide | BaseGaussianEncoder,
        kernel: gpflow.kernels.Kernel,
        inducing_variable: InducingVariables | TensorType,
        likelihood: gpflow.likelihoods.Likelihood,
        output_dim: int,
        *,
        num_draws: int | None = 1,
        q_diag: bool = False,
        mean_function: gpflow.functions.MeanFunction | None = None,
    ):
        """
        :param guide: how codes are inferred; an encoder is used with a mean-field guide.
        :param kernel: any GPflow kernel over L inputs.
        :param inducing_variable: GPflow inducing variables in the latent space, or [M, L].
        :param likelihood: any scalar GPflow likelihood, shared by the outputs, so that each of its
            parameters is one number; or a :class:`~gpflow_bae.likelihoods.ByColumn` of such.
        :param output_dim: P, the number of columns of the data.
        :param num_draws: draws of each code in an estimate of the bound. None uses the exact
            expectation, for Gaussian codes, a Gaussian likelihood of one variance, a zero mean
            function and kernels whose expectations GPflow has in closed form (squared exponential,
            linear, and their sums and products over separate dimensions). Gradients then have no
            Monte Carlo noise from the codes, and a minibatch costs B M^2 (L + P).
        :param q_diag: whether q(v_p) has diagonal covariances, for thousands of columns.
        :param mean_function: mean of the functions; :class:`gpflow_bae.decoders.Biases` adds a
            bias for every column and every row.
        :raises ValueError: for more latent dimensions than columns, a likelihood with a parameter
            of each output, ``num_draws`` below 1, and ``num_draws=None`` where expectations have
            no closed form.
        :raises TypeError: for a likelihood that does not factorise over outputs, and a ``guide``
            that is neither a guide nor a Gaussian encoder.
        """
        super().__init__()
        if isinstance(guide, BaseGaussianEncoder):
            guide = MeanFieldGuide(guide)
        if not isinstance(guide, BoundGuide):
            raise TypeError(
                "guide must be a gpflow_bae.guides.BoundGuide, or a Gaussian encoder, got "
                f"{kind_of(guide)}."
            )
        if guide.latent_dim > output_dim:
            raise ValueError(
                f"The guide has {guide.latent_dim} latent dimensions, more than the {output_dim} "
                "columns of the data: the codes would be less than the data, not more. Lower "
                "latent_dim."
            )
        if not isinstance(likelihood, gpflow.likelihoods.ScalarLikelihood):
            raise TypeError(
                "likelihood must be a scalar GPflow likelihood (one that factorises over outputs), "
                f"got {kind_of(likelihood)}."
            )
        # One density for all cells: a parameter of each output would be counted for every cell.
        parts = [likelihood]
        if isinstance(likelihood, ByColumn):
            likelihood.check_outputs(output_dim, "the model")
            parts = likelihood.parts
        for part in parts:
            masked(part).check_outputs(1, "a cell, which a GPLVM takes by itself,")
        self.guide = guide
        self.latent_prior = StandardNormal(guide.latent_dim)
        self.decoder = GPDecoder(kernel, inducing_variable, output_dim, q_diag, mean_function)
        self.likelihood = likelihood
        self.latent_dim = guide.latent_dim
        self.num_draws = None if num_draws is None else int(num_draws)
        if num_draws is None:
            self._check_closed_form()

    # Interface of the variational engine.

    @property
    def observation_likelihood(self) -> Any:
        """The likelihood with masks, for objectives such as GECO."""
        return masked(self.likelihood)

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Trainable parameters that have a prior."""
        return tuple(p for p in self.trainable_parameters if p.prior is not None)

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the kernel and inducing inputs, which may have a separate learning rate."""
        of_inducing = self.decoder.inducing_variable.trainable_variables
        return (*self.decoder.kernel.trainable_variables, *of_inducing)

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables with one row per point; a minibatch updates only the rows of its points."""
        return self.guide.row_variables

    @property
    def is_amortized(self) -> bool:
        """Whether an encoder computes codes from complete rows."""
        return self.guide.is_amortized

    @property
    def natural_parameters(self) -> list[tuple[Parameter, Parameter]]:
        """``(q_mu, q_sqrt)`` of q(v), for natural gradients.

        :raises ValueError: with ``q_diag``, which GPflow's natural gradients do not support.
        """
        if self.decoder.q_diag:
            raise ValueError("Natural gradients need full covariances: build with q_diag=False.")
        return [(self.decoder.q_mu, self.decoder.q_sqrt)]

    @check_shapes("batch.Y: [1, N, P]")
    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return the terms of the bound for some rows and columns, in nats.

        The first is scaled to all columns, the second is the share of these rows.
        """
        columns = None if batch.cells is None else batch.cells.columns
        if self.num_draws is None:
            mean, expected, divergence = self._exact_terms(batch, columns)
        else:
            draws = self.guide.draw(self.latent_prior, batch, self.num_draws, seed)
            mean, variance = self.decoder.moments(draws.latents[:, 0], columns)
            expected = self.expected_log_density(mean, variance, batch)
            divergence = draws.divergence
        if columns is None or columns.shape.rank != 1:
            divergence += self.decoder.prior_kl() / batch.point_scale
        else:
            share = self.decoder.output_dim / columns.shape[0]
            divergence += share * self.decoder.prior_kl(columns) / batch.point_scale
        F = tf.reduce_mean(mean, 0, keepdims=True)
        return VariationalTerms(expected, divergence, F)

    def _check_closed_form(self) -> None:
        """
        :raises ValueError: if :meth:`_exact_terms` has no closed form.
        """
        words = {
            "guide, a MeanFieldGuide or an encoder": isinstance(self.guide, MeanFieldGuide),
            "likelihood, a Gaussian of one variance": isinstance(
                self.likelihood, gpflow.likelihoods.Gaussian
            )
            and self.likelihood.variance is not None,
            "mean_function, None": self.decoder.mean_function is None,
            "kernel, SquaredExponential or Linear, or a sum or product of these over separate "
            "dimensions": _has_closed_form(self.decoder.kernel),
        }
        wrong = [what for what, known in words.items() if not known]
        if wrong:
            raise ValueError(
                f"num_draws=None needs another {'; and another '.join(wrong)}: expectations are "
                "known in closed form there. Draw codes, with num_draws=1 or more."
            )

    def _exact_terms(
        self, batch: Batch, columns: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return E[f] [1, N, P], the expected log likelihood and the KL of the codes, exactly."""
        if columns is not None and columns.shape.rank != 1:
            raise ValueError("num_draws=None needs a table, not triplets: fit with num_draws=1.")
        q = self.guide.posterior(self.latent_prior, batch)
        mean, square = self.decoder.expected_moments(q.mean[0], q.variance[0], columns)
        # A Gaussian likelihood's expectation is linear in E[f] and E[f^2], so this is exact.
        variance = square - tf.square(mean)
        expected = self.expected_log_density(mean[None], variance[None], batch)
        return mean[None], expected, q.divergence

    def expected_log_density(self, mean: tf.Tensor, variance: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Return E[log p(y | f)] summed over observed entries, averaged over draws of the codes."""
        return tf.reduce_sum(tf.reduce_mean(self.expected_entries(mean, variance, batch), 0))

    def expected_entries(self, mean: tf.Tensor, variance: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Return weighted E[log p(y | f)] of each entry [S, N, P or E]; 0 where missing."""
        Y = tf.cast(batch.Y, mean.dtype)
        columns = None if batch.cells is None else batch.cells.columns
        entries = entrywise(
            self.likelihood, "variational_expectations", mean, variance, Y, columns=columns
        )
        if batch.cells is not None:
            entries *= tf.cast(batch.cells.weights, entries.dtype)
        if batch.mask is not None:
            entries = tf.where(batch.mask, entries, tf.zeros_like(entries))
        return entries

    # Predictions and ARD.

    @check_shapes("latents: [batch..., L]")
    def predict_f(self, latents: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean and variance [batch..., P] of the functions at given codes."""
        latents = tf.convert_to_tensor(latents, gpflow.default_float())
        mean, variance = self.decoder.moments(tf.reshape(latents, [1, -1, self.latent_dim]))
        shape = tf.concat([tf.shape(latents)[:-1], [self.decoder.output_dim]], 0)
        return tf.reshape(mean, shape), tf.reshape(variance, shape)

    def relevance(self) -> np.ndarray:
        """Return the relevance [L] of latent dimensions, 1 / lengthscale^2 normalised to sum 1.

        Dimensions outside of the kernel's ``active_dims`` have relevance 0.

        :raises ValueError: for a kernel without lengthscales.
        """
        lengthscales = getattr(self.decoder.kernel, "lengthscales", None)
        if lengthscales is None:
            raise ValueError(
                f"{type(self.decoder.kernel).__name__} has no lengthscales to prune by; use a "
                "kernel with ARD, such as SquaredExponential(lengthscales=np.ones(L))."
            )
        seen = np.arange(self.latent_dim)[self.decoder.kernel.active_dims]
        inverse = np.zeros(self.latent_dim)
        inverse[seen] = 1.0 / np.square(np.broadcast_to(lengthscales.numpy(), len(seen)))
        return inverse / inverse.sum()

    def pruning_report(self, threshold: float = 0.01) -> str:
        """Describe the latent dimensions; ARD keeps those with relevance >= ``threshold``."""
        relevance = self.relevance()
        lines = [
            f"dimension {i}: relevance {share:.3f}{'' if share >= threshold else ' (pruned)'}"
            for i, share in enumerate(relevance)
        ]
        kept = int((relevance >= threshold).sum())
        return "\n".join([*lines, f"{kept} of {self.latent_dim} dimensions are used."])


def _has_closed_form(kernel: gpflow.kernels.Kernel) -> bool:
    """Whether GPflow has the kernel's expectations in closed form, without quadrature."""
    if isinstance(kernel, gpflow.kernels.Combination):
        return kernel.on_separate_dims and all(map(_has_closed_form, kernel.kernels))
    return isinstance(kernel, gpflow.kernels.SquaredExponential | gpflow.kernels.Linear)


class FlowGPLVM(StochasticGPLVM):
    """GPLVM with flow posteriors (GPLVF, Lalchand, Ravuri and Lawrence).

    q of each point is a Gaussian transformed by one flow that all points share.
    """

    def __init__(
        self,
        encoder: BaseGaussianEncoder,
        kernel: gpflow.kernels.Kernel,
        inducing_variable: InducingVariables | TensorType,
        likelihood: gpflow.likelihoods.Likelihood,
        output_dim: int,
        flow: Any | None = None,
        **options: Any,
    ):
        """
        :param encoder: the Gaussian base distribution of each point, free-form as published.
        :param flow: by default twenty planar maps; see :mod:`gpflow_bae.bijectors`.
        :param options: ``num_draws``, ``q_diag`` and ``mean_function``, as in
            :class:`StochasticGPLVM`.
        """
        flow = planar_flow(encoder.latent_dim) if flow is None else flow
        guide = FlowGuide(encoder, flow)
        super().__init__(guide, kernel, inducing_variable, likelihood, output_dim, **options)
