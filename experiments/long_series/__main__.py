"""Series with holes, filled under priors over time: an exact one that costs N, and others.

python -m experiments.long_series --model=markov_gp --series=made --preset=quick --out_dir=runs/made
python -m experiments.long_series --model=all --series=healing_mnist --preset=quick \\
    --data_dir=DATA --out_dir=runs/healing

``made``: eight outputs at irregular times with a known truth (:mod:`experiments.long_series.made`),
of which gaps, a fifth of the times, are hidden wholly, and a tenth of the other cells at random.
``healing_mnist``: binary sequences of a turning digit (:mod:`gpflow_bae.datasets.healing_mnist`),
of which two frames in five are missing; sequences of digits that the fit has not seen are filled.

``markov_gp`` has the exact GP over time as a Markov process, ``gp_vae`` the same prior at a cost of
N^3 for each series, and ``svgp_vae`` inducing points and minibatches; networks, likelihood, start
and kernel are the same. ``--seconds`` gives each as long; ``--num_steps`` as many steps. Scores are
of what was hidden: ``rmse``, ``nll`` and ``coverage_90`` (not of binary pixels) as it would have
been seen, ``rmse_truth`` without its noise; ``rmse_truth_gaps`` in wholly hidden rows alone.
``rmse_interpolated`` is that of straight lines between the values beside a hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from absl import flags

from experiments.common import driver
from experiments.common import flags as common_flags

FLAGS = flags.FLAGS
MODELS = ["markov_gp", "svgp_vae", "gp_vae"]
_LARGEST_DENSE = 1000  # times of one series under gp_vae, whose steps then take half a second


def define_flags() -> None:
    """The shared flags, and this study's own."""
    common_flags.define([*MODELS, "all"])
    common_flags.define_num_steps()
    flags.DEFINE_enum("series", "made", ["made", "healing_mnist"], "What to fill.")
    flags.DEFINE_float(
        "seconds",
        None,
        "Of each fit, instead of --num_steps: as many steps as a step's time, measured first, "
        "allows.",
        lower_bound=0.0,
    )
    flags.DEFINE_integer("num_points", None, "Times of made. Default: 2000; 100,000 for paper.", 50)
    flags.DEFINE_float("noise", 0.3, "Of made: its standard deviation; the outputs have 1.")
    flags.DEFINE_integer(
        "num_train", None, "Training sequences of healing_mnist. Default: 200; 4000 for paper.", 1
    )
    flags.DEFINE_float("flips", 0.1, "Share of the pixels of healing_mnist that are flipped.")
    flags.DEFINE_float("missing", 0.4, "Share of the frames of healing_mnist that are missing.")
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Sequences of healing_mnist per step (default 32), and times of made of svgp_vae (512; the "
        "others see all times in every step).",
        1,
    )
    flags.DEFINE_integer(
        "num_inducing",
        None,
        "Of svgp_vae. Default: one for 200 times of made, and at least 200; 5 of healing_mnist.",
        1,
    )


def runs() -> Iterator[driver.Run]:
    """One model, or all that can be had at this size, each in a folder of its own."""
    # TensorFlow takes seconds to import, and --help does not need it.
    from experiments.long_series import study

    models = MODELS if FLAGS.model == "all" else [FLAGS.model]
    if FLAGS.series == "made" and _num_points() > _LARGEST_DENSE:
        if FLAGS.model == "gp_vae":
            raise ValueError(
                f"--model is gp_vae with {_num_points()} times; its steps cost N^3: expected at "
                f"most {_LARGEST_DENSE}. Lower --num_points, or take --model=markov_gp."
            )
        models = [name for name in models if name != "gp_vae"]
    for name in models:
        plan = _plan(name)
        words = [] if plan.num_points is None else [f"{plan.num_points} times"]
        if plan.num_train is not None:
            words = [f"{plan.num_train} sequences"]
        words += [] if plan.seconds is None else [f"{plan.seconds:g} s"]
        yield driver.Run(
            model=name,
            plan=plan,
            execute=lambda options, plan=plan: study.run(plan, options, FLAGS.data_dir),
            words=[plan.series, *words],
            folder=name if FLAGS.model == "all" else "",
        )


def _num_points() -> int:
    return FLAGS.num_points or {"quick": 2000, "paper": 100_000}[FLAGS.preset]


def _plan(model: str) -> Any:
    """The plan that the flags describe."""
    from experiments.long_series import study

    shared = {"seconds": FLAGS.seconds, "num_steps": FLAGS.num_steps}
    shared |= {"batch_size": FLAGS.batch_size, "num_inducing": FLAGS.num_inducing}
    if FLAGS.series == "made":
        return study.made_plan(model, _num_points(), FLAGS.noise, **shared)
    num_train = FLAGS.num_train or {"quick": 200, "paper": 4000}[FLAGS.preset]
    num_test = {"quick": 100, "paper": 1000}[FLAGS.preset]
    return study.healing_plan(model, num_train, num_test, FLAGS.flips, FLAGS.missing, **shared)


STUDY = driver.Study("priors", "long_series", define_flags, runs)

if __name__ == "__main__":
    driver.start(STUDY)
