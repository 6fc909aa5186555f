"""The tables with missing cells: where their models start, what flags they have, what is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import flags

__all__ = ["TABLES", "Table"]

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Table:
    """A data set, with defaults of its own for the flags that all of them have.

    load: the table to fit, and one of other tasks to predict; None where the first has test cells.
    define_flags: those that only this table has.
    words: of the variant.
    more: further scores, of the predicted means [T, N, P] of the other tasks.
    """

    load: Callable[[], tuple[Any, Any]]
    latent_dim: int
    init_lengthscale: float
    num_inducing: int = 64
    define_flags: Callable[[], None] = lambda: None
    words: Callable[[], str] = lambda: ""
    more: Callable[[Any, Any], dict[str, float]] | None = None


def _eeg() -> tuple[Any, Any]:
    from gpflow_bae.datasets import eeg

    return eeg.load_small(FLAGS.data_dir), None


def _jura() -> tuple[Any, Any]:
    from gpflow_bae.datasets import jura

    return jura.load(FLAGS.data_dir), None


def _eeg_large() -> tuple[Any, Any]:
    from gpflow_bae.datasets import eeg

    both = eeg.load_large(FLAGS.data_dir, FLAGS.regime, FLAGS.seed)
    return both.train, both.test


def _define_eeg_large() -> None:
    flags.DEFINE_enum(
        "regime", "50/50", ["50/50", "10/50"], "Per cent missing in training and test recordings."
    )


def _japan_weather() -> tuple[Any, Any]:
    from gpflow_bae.datasets import japan_weather

    data = japan_weather.load(FLAGS.data_dir)
    return data.of_year(1980), data.of_year(1981) if FLAGS.test_year == 1981 else None


def _define_japan_weather() -> None:
    flags.DEFINE_integer("test_year", 1981, "1981, or 1980 for the hidden cells of training.")


def _bouncing_ball() -> tuple[Any, Any]:
    from gpflow_bae.datasets import bouncing_ball

    if FLAGS.balls == 2:
        return bouncing_ball.two_balls(FLAGS.seed).table, None
    train, test = bouncing_ball.load_one(FLAGS.seed)
    return train.table, bouncing_ball.hide_future(test.table, FLAGS.num_context)


def _define_bouncing_ball() -> None:
    flags.DEFINE_integer("balls", 1, "One ball, or two of which one falls.", 1, 2)
    flags.DEFINE_integer("num_context", 20, "Frames that are seen of a test sequence.", 1)


def _errors_ahead(mean: Any, test: Any, steps: int = 10) -> dict[str, float]:
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


TABLES = {
    "eeg": Table(_eeg, 3, 0.1),
    "jura": Table(_jura, 2, 1.0),
    "eeg_large": Table(_eeg_large, 10, 0.1, 128, _define_eeg_large, lambda: FLAGS.regime),
    "japan_weather": Table(_japan_weather, 3, 1.0, 100, _define_japan_weather),
    "bouncing_ball": Table(_bouncing_ball, 4, 1.0, 32, _define_bouncing_ball, more=_errors_ahead),
}
