"""The tables with missing cells: where their models start, what flags they have, what is loaded."""

from __future__ import annotations

from typing import Any, NamedTuple

from absl import flags

__all__ = ["TABLES", "define_flags", "errors_ahead", "load"]

FLAGS = flags.FLAGS


class Table(NamedTuple):
    """Where the models of a data set start."""

    latent_dim: int
    init_lengthscale: float
    num_inducing: int = 64


TABLES = {
    "eeg": Table(3, 0.1),
    "jura": Table(2, 1.0),
    "eeg_large": Table(10, 0.1, 128),
    "japan_weather": Table(3, 1.0, 100),
    "bouncing_ball": Table(4, 1.0, 32),
}


def define_flags(name: str) -> None:
    """Flags that one table alone has."""
    if name == "eeg_large":
        flags.DEFINE_enum(
            "regime",
            "50/50",
            ["50/50", "10/50"],
            "Per cent missing in training and test recordings.",
        )
    elif name == "japan_weather":
        flags.DEFINE_integer("test_year", 1981, "1981, or 1980 for the hidden cells of training.")
        flags.DEFINE_bool("made", False, "A made archive of the same size instead of NOAA's files.")
    elif name == "bouncing_ball":
        flags.DEFINE_integer("balls", 1, "One ball, or two of which one falls.", 1, 2)
        flags.DEFINE_integer("num_context", 20, "Frames that are seen of a test sequence.", 1)


def load(name: str) -> tuple[Any, Any]:
    """The table to fit, and one of other tasks to predict; None where the first has test cells."""
    from gpflow_bae.datasets import bouncing_ball, eeg, japan_weather, jura

    if name == "jura":
        return jura.load(FLAGS.data_dir), None
    if name == "eeg":
        return eeg.load_small(FLAGS.data_dir), None
    if name == "eeg_large":
        both = eeg.load_large(FLAGS.data_dir, FLAGS.regime, FLAGS.seed)
        return both.train, both.test
    if name == "japan_weather":
        data = _made_weather() if FLAGS.made else japan_weather.load(FLAGS.data_dir)
        return data.of_year(1980), data.of_year(1981) if FLAGS.test_year == 1981 else None
    if FLAGS.balls == 2:
        return bouncing_ball.two_balls(FLAGS.seed).table, None
    train, test = bouncing_ball.load_one(FLAGS.seed)
    return train.table, bouncing_ball.hide_future(test.table, FLAGS.num_context)


def _made_weather() -> Any:
    """Written and read as files, which nobody needs afterwards."""
    import tempfile

    from gpflow_bae.datasets import japan_weather, made_weather

    with tempfile.TemporaryDirectory() as folder:
        made_weather.write_archive(folder)
        return japan_weather.load(folder)


def errors_ahead(mean: Any, test: Any, steps: int = 10) -> dict[str, float]:
    """Mean absolute errors of the images ``steps`` frames ahead of what is seen of one ball.

    Beside the noisy pixels they are of the image without noise, whose error can reach zero.
    """
    import numpy as np

    from gpflow_bae.datasets import bouncing_ball

    frame = FLAGS.num_context + steps - 1
    clean = bouncing_ball.load_one(FLAGS.seed)[1]
    image = bouncing_ball.render(clean.heights[:, frame], mean.shape[-1], bouncing_ball.ONE_WIDTH)
    return {
        f"mae_{steps}_steps": float(np.abs(mean[:, frame] - image).mean()),
        f"mae_{steps}_steps_noisy": float(np.abs(mean[:, frame] - test.truth[:, frame]).mean()),
    }
