"""The tables with missing cells: initial values of their models, flags and data."""

from __future__ import annotations

from typing import Any, NamedTuple

from absl import flags

FLAGS = flags.FLAGS


MODELS = ("sgp_vae", "sgp_bae", "dsgp_bae", "gppvae", "vae")
SAMPLED = ("sgp_bae", "dsgp_bae")
NETS = ("zeros", "pointnet", "pointnet_one_hot", "indexnet", "factornet", "free")


class Published(NamedTuple):
    """Settings of the preset "paper" of a table.

    - layers, units: of networks (Ashman et al. 2020, appendix E), half as many layers of the parts
      of PointNet and IndexNet.
    - num_steps: of Adam, as many as the published epochs have.
    - num_inducing: None for an exact GP.
    - batch_size: tasks per step, or points of a single one.
    - free_from: the network from whose codes free-form ones start, the best one.
    - prior_rate: learning rate of kernels; None for that of all else. The released code takes steps
      of 0.001 in lengthscales themselves, a hundredth of 0.1; here steps are in their logarithms.
    - step_size: of the sampler of Tran et al. (2023); None for tables that they have not.
    - noise: standard deviation of the noise of their models where their released code fixes it.
    """

    layers: int
    units: int
    num_steps: int
    num_inducing: int | None
    batch_size: int
    free_from: str = "factornet"
    prior_rate: float | None = None
    step_size: float | None = None
    noise: float | None = None


class Table(NamedTuple):
    """Initial settings of the models of a data set."""

    latent_dim: int
    init_lengthscale: float
    num_inducing: int = 64
    published: Published | None = None


TABLES = {
    # 3000 epochs of 256 points, and of 359, 100 at a time.
    "eeg": Table(
        3, 0.1, 64, Published(2, 20, 9000, None, 100, "indexnet", prior_rate=1e-2, step_size=0.003)
    ),
    "jura": Table(
        2,
        1.0,
        64,
        Published(2, 20, 12_000, None, 100, "factornet", 1e-3, step_size=0.002, noise=0.5),
    ),
    "eeg_large": Table(10, 0.1, 128, Published(4, 50, 100 * 30, 128, 1, prior_rate=1e-2)),
    "japan_weather": Table(3, 1.0, 100, Published(4, 20, 50 * 52, 100, 1)),
    "bouncing_ball": Table(4, 1.0, 32),
}


def define_flags(name: str) -> None:
    """Define the flags of a single table."""
    if name == "eeg_large":
        flags.DEFINE_enum(
            "regime",
            "50/50",
            ["50/50", "10/50"],
            "Per cent missing in training and test recordings.",
        )
    elif name == "japan_weather":
        flags.DEFINE_integer("test_year", 1981, "1981, or 1980 for the hidden cells of training.")
    elif name == "bouncing_ball":
        flags.DEFINE_integer("balls", 1, "One ball, or two of which one falls.", 1, 2)
        flags.DEFINE_integer(
            "num_context",
            None,
            "Frames that are seen of a test sequence. Default: 20 of 50 of one ball, 250 of 500 of "
            "two.",
            1,
        )


def load(name: str) -> tuple[Any, Any]:
    """Load the table to fit, and one of test tasks, or None if the first has the test cells."""
    from gpflow_bae.datasets import bouncing_ball, eeg, japan_weather, jura

    if name == "jura":
        return jura.load(FLAGS.data_dir), None
    if name == "eeg":
        return eeg.load_small(FLAGS.data_dir), None
    if name == "eeg_large":
        both = eeg.load_large(FLAGS.data_dir, FLAGS.regime, FLAGS.seed)
        return both.train, both.test
    if name == "japan_weather":
        data = japan_weather.load(FLAGS.data_dir)
        train = data.of_year(1980)
        test = data.of_year(1981) if FLAGS.test_year == 1981 else None
        scaled = with_scaled_inputs(train, train)
        return scaled, None if test is None else with_scaled_inputs(test, train)
    train, test = _balls()
    return train.table, bouncing_ball.hide_future(test.table, num_context())


def with_scaled_inputs(table: Any, train: Any) -> Any:
    """Scale inputs to zero mean and unit variance in the table that is fitted.

    Metres of elevation, degrees and days have no common initial lengthscale: with one of a metre
    all stations would be independent.
    """
    import dataclasses

    from gpflow_bae.data import Standardiser

    scale = Standardiser.fit(train.X[train.rows], train.input_names)
    return dataclasses.replace(table, X=scale.transform(table.X))


def _balls() -> Any:
    from gpflow_bae.datasets import bouncing_ball

    return {1: bouncing_ball.load_one, 2: bouncing_ball.load_two}[FLAGS.balls](FLAGS.seed)


def num_context() -> int:
    """Return the number of observed frames of a test sequence of bouncing balls."""
    return FLAGS.num_context or {1: 20, 2: 250}[FLAGS.balls]


def errors_ahead(mean: Any, test: Any) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return mean absolute errors of images of balls by the number of frames ahead.

    Errors are those of images without noise, which can reach zero; the score with ``noisy`` is that
    of noisy pixels that were not removed. If pixels were removed from observed frames (two balls),
    ``mae_removed`` is the error there.

    :return: scores, and the curve ``mae_ahead`` over all frames ahead.
    """
    import numpy as np

    from gpflow_bae.datasets import bouncing_ball

    width = {1: bouncing_ball.ONE_WIDTH, 2: bouncing_ball.TWO_WIDTH}[FLAGS.balls]
    images = bouncing_ball.render(_balls()[1].heights, mean.shape[-1], width)
    error, context = np.abs(mean - images), num_context()
    ahead = error[:, context:].mean((0, 2))
    steps = [n for n in (1, 10, 50, 100, 250) if n <= len(ahead)]
    scores = {f"mae_{n}_steps": float(ahead[n - 1]) for n in steps}
    noisy = np.abs(mean - test.truth)[:, context:]
    scores["mae_10_steps_noisy"] = float(np.nanmean(noisy[:, min(9, len(ahead) - 1)]))
    removed = np.isnan(test.Y[:, :context])
    if removed.any():
        scores["mae_removed"] = float(error[:, :context][removed].mean())
    return scores, {"mae_ahead": ahead.tolist()}
