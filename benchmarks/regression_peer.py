"""Bayesian neural regression beside sklearn-contrib-bde: same network, prior, data and seconds.

pip install sklearn-contrib-bde  # may have an environment of its own: the peer needs no TensorFlow
python -m benchmarks.regression_peer --method=peer --out=peer.json
python -m benchmarks.regression_peer --method=ours --peer=peer.json \
    --out=docs/results/regression_peer.json

scikit-learn's diabetes table (442 rows, 10 columns), standardised; two hidden layers of 16 units,
mean and standard deviation (softplus) of a Gaussian; N(0, 1) on all weights; eight chains, each
from an optimum of its own, on five splits into 80 and 20 per cent. The peer is microcanonical
Langevin after Adam (Sommer et al. 2025). Ours is the same sampler under XLA, for as many steps as
fit into the seconds that the peer took, compilation included. Scores are the log density of the
test rows under the mixture over all samples, and effective samples of mean and log standard
deviation at the test rows, within chains, for each second of the whole fit. Our two settings, the
variance of the energy error and the share of its direction that a chain forgets in a step, were
chosen by the effective samples on a split that is not among the five.
"""

import importlib.metadata
import json
import pathlib
import time
from typing import Any

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
CHAINS, HIDDEN = 8, (16, 16)
DRAWS = 500  # of each of the peer's chains; ours are as many as the seconds allow
MIN_SCALE = 1e-6


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_enum("method", "ours", ["ours", "peer"], "What to run.")
    flags.DEFINE_enum("activation", "silu", ["relu", "silu", "tanh"], "Of the hidden units.")
    flags.DEFINE_integer("splits", 5, "Splits into training and test rows.", lower_bound=1)
    flags.DEFINE_integer("epochs", 1000, "Of Adam, before chains.", lower_bound=1)
    flags.DEFINE_integer("warmup", 5000, "Steps that adapt, of the peer.", lower_bound=1)
    flags.DEFINE_integer("thinning", 20, "Steps between the peer's draws.", lower_bound=1)
    flags.DEFINE_float("desired", 2.0, "Our variance of the energy error per dimension.")
    flags.DEFINE_string("peer", None, "What --method=peer wrote: its seconds are ours.")
    flags.DEFINE_string("out", None, "JSON file to write.", required=True)


def load(split: int) -> dict[str, np.ndarray]:
    """Standardised by the training rows: X, y, X_test, y_test."""
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=split)
    columns, target = (X.mean(0), X.std(0)), (y.mean(), y.std())
    found = {
        "X": (X - columns[0]) / columns[1],
        "y": (y - target[0]) / target[1],
        "X_test": (X_test - columns[0]) / columns[1],
        "y_test": (y_test - target[0]) / target[1],
    }
    return {name: np.asarray(v, np.float32) for name, v in found.items()}


def scores(mean: np.ndarray, scale: np.ndarray, y: np.ndarray, seconds: float) -> dict[str, float]:
    """Of predictions [C, S, rows] for the test rows."""
    import arviz
    from scipy.special import logsumexp

    z = (y - mean) / scale
    each = -0.5 * z**2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi)
    density = logsumexp(each, axis=(0, 1)) - np.log(mean.shape[0] * mean.shape[1])
    functions = np.concatenate([mean, np.log(scale)], -1).astype(float)  # [C, S, 2 rows]
    # Chains stand in modes of their own: effective draws within each, added up.
    ess = np.array(
        [
            sum(float(arviz.ess(chain[None, :, i])) for chain in functions)
            for i in range(functions.shape[-1])
        ]
    )
    half = functions.shape[1] // 2
    rhat = np.array(
        [
            max(float(arviz.rhat(c[: 2 * half, i].reshape(2, half))) for c in functions)
            for i in range(functions.shape[-1])
        ]
    )
    mixture = mean.mean((0, 1))
    return {
        "nll": -float(density.mean()),
        "rmse": float(np.sqrt(np.mean((mixture - y) ** 2))),
        "ess_median": float(np.median(ess)),
        "ess_per_second": float(np.median(ess) / seconds),
        "rhat_chainwise_q95": float(np.quantile(rhat, 0.95)),
        "seconds": seconds,
    }


def peer(split: int) -> dict[str, Any]:
    """The peer's fit, and its predictions."""
    from bde import BdeRegressor
    from bde.loss.loss import GaussianNLL

    data = load(split)
    started = time.perf_counter()
    model = BdeRegressor(
        n_members=CHAINS,
        hidden_layers=list(HIDDEN),
        seed=split,
        loss=GaussianNLL(min_sigma=MIN_SCALE),
        activation=FLAGS.activation,
        epochs=FLAGS.epochs,
        patience=20,
        validation_split=0.15,
        warmup_steps=FLAGS.warmup,
        n_samples=DRAWS * FLAGS.thinning,  # of which every n_thinning-th is kept
        n_thinning=FLAGS.thinning,
    )
    model.fit(data["X"], data["y"])
    seconds = time.perf_counter() - started
    raw = np.asarray(model.predict(data["X_test"], raw=True))  # [C, S, rows, 2]
    scale = np.logaddexp(raw[..., 1], 0.0) + MIN_SCALE
    return scores(raw[..., 0], scale, data["y_test"], seconds) | {"draws": raw.shape[1]}


def ours(split: int, budget: float) -> dict[str, Any]:
    """Adam and microcanonical Langevin, until the seconds are used."""
    import tensorflow as tf

    from gpflow_bae.inference.chains import stack_chains
    from gpflow_bae.mcmc import Step, Target, mclmc, targets
    from gpflow_bae.mcmc.energy_variance import from_energy_variance
    from gpflow_bae.mcmc.noise import split as split_seed

    data, started = load(split), time.perf_counter()
    X, y = tf.constant(data["X"]), tf.constant(data["y"])
    activation = {"relu": tf.nn.relu, "silu": tf.nn.silu, "tanh": tf.tanh}[FLAGS.activation]
    sides = list(zip((X.shape[1], *HIDDEN), (*HIDDEN, 2), strict=True))

    def outputs(weights: Any, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = X
        for i, (W, b) in enumerate(weights):
            hidden = tf.linalg.matmul(hidden, W) + b
            hidden = activation(hidden) if i + 1 < len(weights) else hidden
        return hidden[..., 0], tf.nn.softplus(hidden[..., 1]) + MIN_SCALE

    def log_likelihood(weights: Any) -> tf.Tensor:
        mean, scale = outputs(weights, X)
        return tf.reduce_sum(-0.5 * tf.square((y - mean) / scale) - tf.math.log(scale))

    def log_prior(weights: Any) -> tf.Tensor:
        return -0.5 * tf.add_n([tf.reduce_sum(tf.square(v)) for v in tf.nest.flatten(weights)])

    evaluate = targets.target(log_likelihood, log_prior)

    def gradient(weights: Any, seed: Any = None) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            density = log_likelihood(weights) + log_prior(weights)
        return tape.gradient(density, weights)

    rng = np.random.default_rng(split)
    weights = tuple(
        (
            tf.constant(rng.normal(size=(CHAINS, m, n)) / np.sqrt(m), tf.float32),
            tf.zeros([CHAINS, 1, n]),
        )
        for m, n in sides
    )

    @tf.function(jit_compile=True, autograph=False)
    def climb(weights: Any) -> Any:
        """Adam on the log posterior of each chain; its moments by hand, for XLA."""
        moments = tf.nest.map_structure(tf.zeros_like, (weights, weights))

        def body(i: tf.Tensor, weights: Any, first: Any, second: Any) -> Any:
            g = tf.vectorized_map(gradient, weights)
            first = tf.nest.map_structure(lambda m, g: 0.9 * m + 0.1 * g, first, g)
            second = tf.nest.map_structure(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)
            t = tf.cast(i + 1, tf.float32)
            a, b = 1.0 - 0.9**t, 1.0 - 0.999**t
            weights = tf.nest.map_structure(
                lambda q, m, v: q + 0.01 * (m / a) / (tf.sqrt(v / b) + 1e-8),
                weights,
                first,
                second,
            )
            return i + 1, weights, first, second

        loop = (tf.constant(0), weights, *moments)
        return tf.while_loop(lambda i, *_: i < FLAGS.epochs, body, loop)[1]

    target = Target(gradient, evaluate)
    sampler = from_energy_variance(mclmc.build(0.005, 0.002), FLAGS.desired, every=2)

    @tf.function(jit_compile=True, autograph=False)
    def block(states: Any, seeds: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor) -> Any:
        """A draw's steps of all chains, and their predictions of the test rows."""

        def body(i: tf.Tensor, states: Any) -> Any:
            number = first + i
            at = Step(number, adapt)
            moved = tf.vectorized_map(
                lambda part: sampler.step(part[0], target, part[1] + number, at), (states, seeds)
            )
            return i + 1, moved

        _, states = tf.while_loop(lambda i, _: i < FLAGS.thinning, body, (tf.constant(0), states))
        return states, outputs(states.position, tf.constant(data["X_test"]))

    states = [
        sampler.init(tf.nest.map_structure(lambda v, c=c: v[c], climb(weights)), target)
        for c in range(CHAINS)
    ]
    states = stack_chains(states)
    seeds = split_seed(tf.constant([split, 7]), CHAINS)
    kept: list[Any] = []
    number, adapting = 0, True
    while (spent := time.perf_counter() - started) < budget:
        adapting = spent < 0.25 * budget
        at = (tf.constant(number * FLAGS.thinning), tf.constant(adapting))
        states, predicted = block(states, seeds, *at)
        number += 1
        if not adapting:
            kept.append([v.numpy() for v in predicted])
    seconds = time.perf_counter() - started
    mean, scale = (np.stack(v, 1) for v in zip(*kept, strict=True))  # [C, S, rows]
    return scores(mean, scale, data["y_test"], seconds) | {
        "draws": len(kept),
        "steps": number * FLAGS.thinning,
        "step_size_median": float(np.median(states.shared["step_size"])),
    }


def main(argv: list[str]) -> None:
    """Run every split, print, and write."""
    del argv
    budgets = [60.0] * FLAGS.splits
    record: dict[str, Any] = {}
    if FLAGS.peer is not None:
        record["peer"] = json.loads(pathlib.Path(FLAGS.peer).read_text(encoding="utf-8"))
        budgets = [row["seconds"] for row in record["peer"]["rows"]]
    rows = []
    for split in range(FLAGS.splits):
        rows.append(peer(split) if FLAGS.method == "peer" else ours(split, budgets[split]))
        print(f"{FLAGS.method}, split {split}: {rows[-1]}", flush=True)
    own = {"ours": "desired", "peer": "warmup"}[FLAGS.method]
    names = ("activation", "epochs", "thinning", own)
    record |= {"method": FLAGS.method, "settings": {n: FLAGS[n].value for n in names}, "rows": rows}
    if FLAGS.method == "ours":
        from experiments.common import provenance

        record |= {"commit": provenance.git_commit(), "versions": provenance.versions()}
    else:
        packages = ("sklearn-contrib-bde", "jax", "blackjax")
        record["versions"] = {name: importlib.metadata.version(name) for name in packages}
    text = json.dumps(record, indent=1) + "\n"
    pathlib.Path(FLAGS.out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    define_flags()
    app.run(main)
