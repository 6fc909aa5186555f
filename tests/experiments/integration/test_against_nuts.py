"""SGP-BAE against the No-U-Turn sampler: the same joint density, explored by two samplers.

The problem (nuts_problem.py) is small enough for NUTS: 20 codes, 8 decoder
weights, lengthscale and noise variance, all sampled. TFP's sampler, whose answer is stored
(nuts_reference.py), saw the model's log prior and log likelihood and nothing of our engine.
Amortised SGHMC keeps each point's codes between rounds
(``codes="carried"``), so at temperature 1 its chain is to have the same stationary distribution,
whatever the encoder does; the encoder is not trained here. Compared are the predictions: the
decoder at the codes of the data, and its average over the codes at new inputs. A difference of
means is in units of the reference's own epistemic standard deviation (the noise, which is larger,
is left out of it), root mean square over 80 and 40 cells.

Monte Carlo error of such a difference is 1 / sqrt(ESS) for each side: about 0.02 for the
reference's 4800 draws, and 0.04 for the chain's 800, 40 steps apart. A ratio of standard
deviations has 0.7 times that. The step size h = 0.1 brings h^2 sqrt(A) / (2 (2 - a)), 0.8 % of a
variance where the precision A is 10. So 0.1 leaves room for noise of 0.04 and little else; at
temperature 1.5 the standard deviations are sqrt(1.5) = 1.22 times too large, or more.
"""

import functools

import arviz
import numpy as np
import pytest

from gpflow_bae import inference
from gpflow_bae.mcmc import adaptive_sghmc
from tests.experiments.integration import nuts_problem, nuts_reference

STEPS = 40  # of a round, whose last state is a sample


@functools.cache
def chain(temperature: float, burnin_rounds: int, num_samples: int) -> nuts_problem.Quantities:
    problem, model = nuts_problem.generate(), nuts_problem.build_model(seed=2)
    posterior = inference.sample_amortized(
        model,
        (problem.X, problem.Y),
        inference.AmortizedSettings(
            num_sampler_steps=STEPS,
            encoder=inference.EncoderSettings(num_steps=0),
            burnin=burnin_rounds * STEPS,
            num_samples=num_samples,
            thinning=STEPS,
            codes="carried",
        ),
        sampler=adaptive_sghmc.build(0.1, 0.05, temperature),
        seed=2,
        jit_compile=num_samples > 500,  # compiling takes as long as 400 rounds without
        progress=False,
        warm_start=None,
    )
    codes = posterior.latents
    assert codes is not None
    return nuts_problem.quantities(model, problem, tuple(posterior.parameters), codes)


def compared(found: nuts_problem.Quantities, group: str) -> dict[str, float]:
    """Root mean squares over cells, in standard deviations of the reference.

    ``mc_error`` is what Monte Carlo alone makes of the bias, from the effective sample sizes.
    """
    true_mean, true_scale = nuts_reference.load()[group]
    mean, scale = found.moments(group)
    draws = getattr(found, group)
    ess = arviz.ess(arviz.convert_to_dataset({"x": draws[None]}), method="mean").x.values
    errors = {
        "bias": (mean - true_mean) / true_scale,
        "sd_error": scale / true_scale - 1.0,
        "mc_error": draws.std(0) / true_scale / np.sqrt(ess),
    }
    ratio = {"sd_ratio": float(np.mean(scale / true_scale))}
    return ratio | {name: float(np.sqrt(np.mean(v**2))) for name, v in errors.items()}


@pytest.mark.parametrize("group", ["train", "new"])
def test_predictions_agree(group: str) -> None:
    """Mean and standard deviation within 10 % of the reference's standard deviation."""
    found = compared(chain(1.0, 100, 800), group)
    print(found)
    assert found["mc_error"] < 0.05, "The chain is too short for this test to mean anything."
    assert found["bias"] < 0.1
    assert found["sd_error"] < 0.1
    np.testing.assert_allclose(found["sd_ratio"], 1.0, atol=0.05)


def test_wrong_temperature_is_seen() -> None:
    """The same comparison refuses a chain at temperature 1.5."""
    found = compared(chain(1.5, 60, 150), "train")
    print(found)
    assert found["sd_ratio"] > 1.2
