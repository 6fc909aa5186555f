"""MovieLens 100K: predict ratings of users who are not in the fit.

python -m experiments.movielens --model=planar --num_layers=50 --preset=paper \\
    --data_dir=DATA --out_dir=runs/movielens

python -m experiments.movielens --made --likelihood=ordinal --biases --out_dir=runs/made

``rmse_reconstruction`` is the paper's: the codes of 100 test users are fitted to all of their
ratings, and the same ratings are scored. ``rmse_heldout`` is the error of the 20 % of each test
user's ratings that a second fit of the codes does not use, beside errors of film and user means.
``log_probability`` is that of the same held-out stars, in nats per rating; for a Gaussian
likelihood it is that of the interval of values that are rounded to them.
"""

from __future__ import annotations

from typing import Any

from absl import flags

from experiments.common import driver
from experiments.gplvm import command

FLAGS = flags.FLAGS
_HIDDEN = 0.2  # share of a test user's ratings


def define_flags() -> None:
    """Define the flags of all GPLVM studies, and those of this one."""
    command.define_flags(
        list(command.POSTERIORS),
        model="planar",
        latent_dim=10,
        num_inducing=50,
        batch_size=100,
    )
    flags.DEFINE_integer("num_test_users", 100, "Users that the fit does not see.", 1)
    flags.DEFINE_list(
        "genres", [], "Films of these genres alone (the paper's figure 4: Sci-Fi,Romance)."
    )
    flags.DEFINE_bool("made", False, "Made ratings of the same size instead of the files.")
    flags.DEFINE_enum("likelihood", "gaussian", ["gaussian", "ordinal"], "Of stars.")
    flags.DEFINE_bool("biases", False, "A bias of each film, and of each user.")
    flags.DEFINE_integer("max_entries", 64, "Ratings of a user that a step sees at most.", 1)


def make_plan() -> Any:
    """Return the plan of the flags.

    :raises ValueError: for genres of made ratings.
    """
    if FLAGS.made and FLAGS.genres:
        raise ValueError("--genres is of MovieLens: films of --made ratings have none.")
    return command.plan(
        FLAGS.model,
        {"quick": 1000, "paper": 10_000},
        noise_start=1.0,
        q_diag=True,
        levels=FLAGS.likelihood,
        biases=FLAGS.biases,
    )


def words(plan: Any) -> list[str]:
    """Return the variant's names of differences from the paper."""
    found = [plan.levels if plan.levels != "gaussian" else "", "biases" if plan.biases else ""]
    return [*found, " and ".join(FLAGS.genres), "made ratings" if FLAGS.made else ""]


def run(plan: Any, options: driver.Options) -> driver.Outcome:
    """Fit to some users, and score the ratings of the others."""
    import numpy as np

    from experiments.gplvm import figures, models
    from gpflow_bae import inference
    from gpflow_bae.data import SparseTable, prepare_data
    from gpflow_bae.datasets import movielens
    from gpflow_bae.posteriors import GPLVMPosterior

    if FLAGS.made:
        ratings = movielens.make()
    else:
        ratings = movielens.load(FLAGS.data_dir, FLAGS.genres)
    train, seen, hidden = movielens.split(ratings, FLAGS.num_test_users, _HIDDEN, options.seed)
    mean_stars = float(train.values.mean())
    is_ordinal = plan.levels == "ordinal"
    centre = 1.0 if is_ordinal else mean_stars  # levels of an ordinal likelihood count from 0

    def table(*parts: Any) -> SparseTable:
        users, films, values = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("users", "films", "values")
        )
        return SparseTable(
            users,
            films,
            values - centre,
            train.num_users if parts[0] is train else seen.num_users,
            train.num_films,
            FLAGS.max_entries,
            allow_empty_columns=parts[0] is not train,
        )

    codes = models.sparse_codes(
        train.users,
        train.films,
        train.values,
        (train.num_users, train.num_films),
        plan.latent_dim,
    )
    if plan.biases:
        of_users = _means(train.users, train.values - mean_stars, train.num_users)
        codes = np.column_stack([codes, of_users / of_users.std()])
    model = models.build(plan, codes, train.num_films, options.seed, train.values - 1.0)
    losses = command.fit(plan, model, table(train), options)

    def stars(posterior: Any, part: Any) -> np.ndarray:
        mean, _ = posterior.predict_y(part.users, part.films, num_draws=50)
        return np.clip(mean + centre, 1, 5)

    def squares(posterior: Any, part: Any) -> np.ndarray:
        return np.square(stars(posterior, part) - part.values)

    of_all = inference.latents_for_new(model, table(seen, hidden), seed=options.seed)
    of_seen = inference.latents_for_new(model, table(seen), seed=options.seed)
    all_squares = np.concatenate([squares(of_all, part) for part in (seen, hidden)])
    scores = {
        "rmse_reconstruction": float(np.sqrt(all_squares.mean())),
        "rmse_heldout": float(np.sqrt(squares(of_seen, hidden).mean())),
        "log_probability": float(np.mean(_log_probability(of_seen, hidden, centre, is_ordinal))),
    }
    film_means = _means(train.films, train.values - mean_stars, train.num_films)
    above = seen.values - mean_stars - film_means[seen.films]
    user_means = _means(seen.users, above, seen.num_users)
    for name, guess in (
        ("rmse_film_means", film_means[hidden.films]),
        ("rmse_user_and_film_means", film_means[hidden.films] + user_means[hidden.users]),
    ):
        guess = np.clip(guess + mean_stars, 1, 5)
        scores[name] = float(np.sqrt(np.mean(np.square(guess - hidden.values))))
    return driver.Outcome(
        metrics=scores,
        num_parameters=command.count(model),
        curves={"loss": losses},
        figures={"loss": figures.losses(losses)},
        posterior=GPLVMPosterior(model, prepare_data(model, table(train))),
    )


def _log_probability(posterior: Any, part: Any, centre: float, is_ordinal: bool) -> Any:
    """Return the log probability of the stars of each cell, in nats."""
    import numpy as np
    from scipy.stats import norm

    cells = part.users, part.films
    if is_ordinal:
        return posterior.predict_log_density(*cells, part.values - centre, num_draws=50)
    mean, variance = posterior.predict_y(*cells, num_draws=50)
    edges = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5, np.inf])
    low, high = (edges[part.values.astype(int) - below] for below in (1, 0))
    low, high = ((edge - mean - centre) / np.sqrt(variance) for edge in (low, high))
    return np.log(np.maximum(norm.cdf(high) - norm.cdf(low), 1e-12))


def _means(index: Any, values: Any, size: int, prior_count: float = 5.0) -> Any:
    """Return means of groups, shrunk to zero for groups with few values."""
    import numpy as np

    return np.bincount(index, values, size) / (np.bincount(index, minlength=size) + prior_count)


STUDY = command.study("movielens", define_flags, make_plan, run, words)

if __name__ == "__main__":
    driver.start(STUDY)
