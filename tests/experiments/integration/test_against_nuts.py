"""SGP-BAE against the No-U-Turn sampler: the same joint density, explored by two samplers.

The problem (experiments/amortisation/problem.py) is small enough for NUTS: 20 codes, 8 decoder
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

import numpy as np
import pytest

from experiments.amortisation import problem as problems
from experiments.amortisation import study
from tests.experiments.integration import nuts_reference


@functools.cache
def chain(temperature: float, burnin_rounds: int, num_samples: int) -> problems.Quantities:
    problem = problems.generate(0)
    cell = study.Cell("carried", "energy", 40, 0, burnin_rounds, num_samples)
    posterior = study.run(
        cell,
        problem,
        start=None,
        seed=2,
        temperature=temperature,
        jit_compile=num_samples > 500,  # compiling takes as long as 400 rounds without
    )
    return problems.quantities(posterior.model, problem, study.draws(posterior))


@pytest.mark.parametrize("group", ["train", "new"])
def test_predictions_agree(group: str) -> None:
    """Mean and standard deviation within 10 % of the reference's standard deviation."""
    found = study.compare(chain(1.0, 100, 800), nuts_reference.load(), group)
    print(found)
    assert found["mc_error"] < 0.05, "The chain is too short for this test to mean anything."
    assert found["bias"] < 0.1
    assert found["sd_error"] < 0.1
    np.testing.assert_allclose(found["sd_ratio"], 1.0, atol=0.05)


def test_wrong_temperature_is_seen() -> None:
    """The same comparison refuses a chain at temperature 1.5."""
    found = study.compare(chain(1.5, 60, 150), nuts_reference.load(), "train")
    print(found)
    assert found["sd_ratio"] > 1.2
