"""Time of one SGHMC step of the moving-ball model, beside the matrix products it cannot avoid.

python -m benchmarks.sghmc_step --threads=2 --out=docs/results/sghmc_step.json

The model is the paper's: decoder 2-500-500-1024, full batch of 35 videos x 30 frames, float32.
Steps and bare matrix products are timed in turns, so that a drift of the machine meets both.
"""

import json
import pathlib
import time

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_integer("threads", 2, "TensorFlow's intra-op threads.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Timed rounds of each variant.", lower_bound=1)
    flags.DEFINE_integer("steps", 20, "SGHMC steps in a round.", lower_bound=1)
    flags.DEFINE_boolean("jit_compile", False, "Time the XLA-compiled round too.")
    flags.DEFINE_string("out", None, "JSON file to write; printed only where not given.")


def main(argv: list[str]) -> None:
    """Time, print, and maybe write."""
    del argv
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    from benchmarks import machine
    from experiments.common import provenance
    from experiments.moving_ball import plans, study
    from gpflow_bae import inference, mcmc
    from gpflow_bae.data import prepare_data
    from gpflow_bae.datasets import moving_ball

    train, _ = moving_ball.load(0)
    model = study.build_model(plans.make_plan("sgp_bae", "quick"), train)
    data = prepare_data(model, (train.X, train.Y))
    variants = {}
    kinds = [("gaussian", False), ("binomial", False)]
    if FLAGS.jit_compile:
        kinds += [("gaussian", True), ("binomial", True)]
    for noise, jit in kinds:
        settings = inference.AmortizedSettings(
            num_sampler_steps=FLAGS.steps, encoder=inference.EncoderSettings(num_steps=0), burnin=0
        )
        sampler = mcmc.adaptive_sghmc.build(noise=noise)
        compiled = inference.AmortizedSampling(model, data, settings, sampler, jit_compile=jit)
        chains = compiled.initial()

        def run(compiled=compiled, chains=chains) -> None:
            compiled.round(chains, 0)[1].log_prior.numpy()

        variants[f"sghmc_{noise}{'_xla' if jit else ''}"] = run
    variants["matrix_products"] = machine.network_products(
        1050, [500, 500, 1024], steps=FLAGS.steps
    )

    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run()  # trace and warm up
    for _ in range(FLAGS.repeats):
        for name, run in variants.items():
            started = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - started) / FLAGS.steps)

    floor = np.median(seconds["matrix_products"])
    result = {
        "threads": FLAGS.threads,
        "step_ms": {n: round(1e3 * float(np.median(s)), 2) for n, s in seconds.items()},
        "step_ms_best": {n: round(1e3 * float(np.min(s)), 2) for n, s in seconds.items()},
        "ratio_to_matrix_products": {
            n: round(float(np.median(s) / floor), 2) for n, s in seconds.items()
        },
        "gflops_of_matrix_products": round(_FLOPS / floor / 1e9, 1),
        "versions": provenance.versions(),
    }
    print(json.dumps(result, indent=1))
    if FLAGS.out:
        pathlib.Path(FLAGS.out).write_text(json.dumps(result, indent=1) + "\n")


# Forward, and two products backward, of 1050 x 500 x 1024 and 1050 x 500 x 500; the first layer
# (2 x 500) is left out.
_FLOPS = 3 * 2 * 1050 * 500 * (1024 + 500)


if __name__ == "__main__":
    define_flags()
    app.run(main)
