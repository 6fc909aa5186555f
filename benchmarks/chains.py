"""Time and memory of several chains in one program, beside one chain.

python -m benchmarks.chains --model=eeg --threads=1 --out=docs/results/chains_eeg.json
python -m benchmarks.chains --model=moving_ball --threads=1 \\
    --out=docs/results/chains_moving_ball.json

The EEG model has the paper's sizes (3 channels of 128 inducing points, networks 20 and 5-5, batches
of 100 of 256 samples); its observations are noise, which no time depends on. The ball's is the
paper's too (35 videos at once). Rounds of one chain and of all are timed in turns.
"""

import dataclasses
import json
import pathlib
import resource
import time

from absl import app, flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_enum("model", "eeg", ["eeg", "moving_ball"], "Whose chains.")
    flags.DEFINE_integer("chains", 4, "Chains in one program.", lower_bound=2)
    flags.DEFINE_integer("repeats", 9, "Timed rounds of each.", lower_bound=1)
    flags.DEFINE_integer("threads", 2, "TensorFlow's intra-op threads.", lower_bound=1)
    flags.DEFINE_integer(
        "operations", 8, "Operations that TensorFlow runs at the same time.", lower_bound=1
    )
    flags.DEFINE_string("out", None, "JSON file to write; printed only where not given.")


def main(argv: list[str]) -> None:
    """Time, print, and maybe write."""
    del argv
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.operations)

    from benchmarks.cases import eeg_parts
    from experiments.common import provenance
    from gpflow_bae import inference
    from gpflow_bae.data import prepare_data

    model, data, settings, sampler = eeg_parts() if FLAGS.model == "eeg" else _moving_ball()
    prepared = prepare_data(model, data, settings.batch_size)
    timed, memory = {}, {}
    for count in (1, FLAGS.chains):
        algorithm = inference.AmortizedSampling(
            model, prepared, settings, sampler, num_chains=count
        )
        chains = algorithm.initial()

        def run(algorithm=algorithm, chains=chains) -> None:
            algorithm.round(chains, 0)[1].log_prior.numpy()

        run()  # trace and warm up
        timed[count] = run
        memory[count] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds: dict[int, list[float]] = {count: [] for count in timed}
    for _ in range(FLAGS.repeats):
        for count, run in timed.items():
            started = time.perf_counter()
            run()
            seconds[count].append(time.perf_counter() - started)
    ratios = np.divide(seconds[FLAGS.chains], seconds[1])
    result = {
        "model": FLAGS.model,
        "chains": FLAGS.chains,
        "threads": FLAGS.threads,
        "operations_at_a_time": FLAGS.operations,
        "steps_in_a_round": settings.num_sampler_steps,
        "encoder_steps_in_a_round": settings.num_encoder_steps,
        "round_s": {str(count): float(np.median(s)) for count, s in seconds.items()},
        "ratio": float(np.median(ratios)),
        "ratio_quartiles": [float(np.quantile(ratios, q)) for q in (0.25, 0.75)],
        "peak_memory_mib": {str(count): round(m) for count, m in memory.items()},
        "versions": provenance.versions(),
    }
    print(json.dumps(result, indent=1))
    if FLAGS.out:
        pathlib.Path(FLAGS.out).write_text(json.dumps(result, indent=1) + "\n")


def _moving_ball():
    """SGP-BAE with the paper's settings."""
    from experiments.moving_ball import study
    from experiments.moving_ball.plans import make_plan
    from gpflow_bae.datasets import moving_ball

    plan = make_plan("sgp_bae", "paper")
    train, _ = moving_ball.load(0)
    settings = dataclasses.replace(
        plan.schedule,
        num_sampler_steps=20,
        encoder=dataclasses.replace(plan.schedule.encoder, num_steps=12),
    )
    return study.build_model(plan, train), (train.X, train.Y), settings, plan.sampler


if __name__ == "__main__":
    define_flags()
    app.run(main)
