"""A certificate for each model with sampled codes: do its chains sample its posterior?

python -m experiments.certificates --model=all --jit_compile=true --out_dir=runs/certificates
python -m experiments.report --collect runs/certificates

Simulation-based calibration (Talts et al. 2018) of chains that start anywhere, on data that the
model drew itself; on one such data set agreement with TFP's No-U-Turn sampler, kinetic
temperatures, R-hat and effective sample sizes of the noise-free outputs. A ``tempered_bae``, whose
rows are its inputs too, has no calibration and all the rest.
"""

import functools
from collections.abc import Iterator

from experiments.common import driver
from experiments.common import flags as common_flags

FLAGS = common_flags.FLAGS
MODELS = ["bae", "gp_bae", "sgp_bae", "sgp_bae_minibatch", "dsgp_bae", "tempered_bae", "all"]


def define_flags() -> None:
    """The shared flags."""
    common_flags.define(MODELS, default_model="all")


def runs() -> Iterator[driver.Run]:
    """A run for each model that was asked for."""
    if FLAGS.preset != "quick":
        raise ValueError("This study has no published counterpart: only --preset=quick.")
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.certificates import study, tempered

    for model in MODELS[:-1] if FLAGS.model == "all" else [FLAGS.model]:
        plan = study.make_plan(model)
        module = tempered if model == "tempered_bae" else study
        execute = functools.partial(module.run, plan)
        yield driver.Run(model=model, plan=plan, execute=execute, folder=model)


STUDY = driver.Study("certificates", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
