"""A regression network sampled by this package and by its nearest peer, in equal seconds.

python -m venv peer && peer/bin/pip install sklearn-contrib-bde
python -m benchmarks.regression_peer --peer_python=peer/bin/python

The peer is ``sklearn-contrib-bde``: ensembles of warm-started microcanonical Langevin chains (MILE,
Sommer et al. 2025), with the settings of its own documentation; it needs JAX, and so an environment
of its own. The data are scikit-learn's diabetes patients (442 rows, 10 inputs), a fifth of which is
held out; inputs and output are standardised by the training rows. Network (10, 16, 16, 2; ReLU),
likelihood (a Gaussian whose mean and, by a softplus, standard deviation the network gives) and
prior, N(0, 1) on every weight, are the same. So are the number of chains and the seconds: the peer
runs first, compilation included, and ours takes what it took, compilation and starts included. Of
these ours spends 30 % on burn-in. For each seed one after the other.

``nll`` is that of the mixture over all samples, on the held-out rows, in nats per row; R-hat and
effective sample sizes are of the network's outputs there.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
from typing import Any

from absl import app, flags

FLAGS = flags.FLAGS

HIDDEN = (16, 16)
_BURNIN = 0.3  # of the seconds
_DRAWS = 1000  # of each chain, about
_START_STEPS = 500
_STEPS_PER_CALL = 200

# What runs in the peer's environment: no package of ours is there.
_PEER = """
import json, sys, time
import numpy as np
settings, path = json.loads(sys.argv[1]), sys.argv[2]
arrays = np.load(path)
began = time.perf_counter()
from bde import BdeRegressor
from bde.loss import GaussianNLL
fitted = BdeRegressor(loss=GaussianNLL(), **settings).fit(x=arrays["X"], y=arrays["y"])
raw = np.asarray(fitted.predict(arrays["Xnew"], raw=True))
seconds = time.perf_counter() - began
import importlib.metadata as metadata
versions = {n: metadata.version(n) for n in ("sklearn-contrib-bde", "jax", "blackjax")}
np.savez(sys.argv[3], raw=raw, seconds=seconds, versions=json.dumps(versions))
"""


def define_flags() -> None:
    """The benchmark's flags."""
    flags.DEFINE_string("peer_python", None, "Python with sklearn-contrib-bde.", required=True)
    flags.DEFINE_integer("chains", 8, "Of each side.", lower_bound=2)
    flags.DEFINE_integer("num_seeds", 3, "Splits of the rows, and runs.", lower_bound=1)
    flags.DEFINE_string("out_file", "docs/results/regression_peer.json", "JSON to write.")


def main(argv: list[str]) -> None:
    """Run both for every seed, print, and write."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from experiments.common import provenance
    from gpflow_bae.terminal import load_tensorflow_quietly

    load_tensorflow_quietly()
    rows = []
    for seed in range(FLAGS.num_seeds):
        data = _data(seed)
        raw, seconds, versions = _peer(data, seed)
        rows.append({"seed": seed, "who": "sklearn-contrib-bde", "versions": versions})
        rows[-1] |= _scores(raw, data["ynew"], seconds)
        raw, seconds, more = _ours(data, seed, seconds)
        rows.append({"seed": seed, "who": "gpflow_bae", "versions": provenance.versions()})
        rows[-1] |= _scores(raw, data["ynew"], seconds) | more
        for row in rows[-2:]:
            print(", ".join(f"{k} {v}" for k, v in row.items() if k != "versions"), flush=True)
        command = f"python -m benchmarks.regression_peer --num_seeds={FLAGS.num_seeds}"
        command += f" --chains={FLAGS.chains} --peer_python=PEER/bin/python"
        record = {"command": command, "commit": provenance.git_commit(), "rows": rows}
        pathlib.Path(FLAGS.out_file).write_text(json.dumps(record, indent=1) + "\n")


def _data(seed: int) -> dict[str, Any]:
    import numpy as np
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])

    def standardised(values: Any) -> Any:
        mean, deviation = values[train].mean(0), values[train].std(0)
        return ((values - mean) / deviation).astype(np.float32)

    X, y = standardised(X), standardised(y)
    return {"X": X[train], "y": y[train], "Xnew": X[test], "ynew": y[test]}


def _peer(data: dict[str, Any], seed: int) -> tuple[Any, float, dict[str, str]]:
    """Outputs [C, S, N, 2], seconds and versions."""
    import tempfile

    import numpy as np

    settings = {
        "hidden_layers": list(HIDDEN),
        "n_members": FLAGS.chains,
        "seed": seed,
        "epochs": 200,
        "validation_split": 0.15,
        "lr": 1e-3,
        "weight_decay": 1e-4,
        "warmup_steps": 5000,
        "n_samples": 2000,
        "n_thinning": 2,
        "patience": 10,
    }
    with tempfile.TemporaryDirectory() as folder:
        given, found = pathlib.Path(folder) / "data.npz", pathlib.Path(folder) / "found.npz"
        np.savez(given, **data)
        command = [FLAGS.peer_python, "-c", _PEER, json.dumps(settings), str(given), str(found)]
        subprocess.run(command, check=True)
        with np.load(found) as arrays:
            versions = json.loads(str(arrays["versions"]))
            return arrays["raw"].astype(np.float64), float(arrays["seconds"]), versions


def _scores(raw: Any, truth: Any, seconds: float) -> dict[str, float]:
    """Of outputs [C, S, N, 2]: mean, and standard deviation before the softplus."""
    import numpy as np
    from scipy import stats
    from scipy.special import logsumexp

    from gpflow_bae import diagnostics

    mean, deviation = raw[..., 0], np.logaddexp(0.0, raw[..., 1]) + 1e-6
    log_density = stats.norm.logpdf(truth, mean, deviation).reshape(-1, len(truth))
    mixture = logsumexp(log_density, axis=0) - np.log(len(log_density))
    by_chain = logsumexp(stats.norm.logpdf(truth, mean, deviation), axis=1) - np.log(raw.shape[1])
    agreement = diagnostics.function_space_diagnostics(raw)
    return {
        "seconds": round(seconds, 2),
        "nll": -float(mixture.mean()),
        "nll_of_one_chain": -float(by_chain.mean()),
        "rmse": float(np.sqrt(np.mean((mean.mean((0, 1)) - truth) ** 2))),
        "draws": int(raw.shape[0] * raw.shape[1]),
        "rhat_median": agreement.rhat_median,
        "rhat_q95": agreement.rhat_q95,
        "ess_median": agreement.ess_bulk_median,
        "ess_q05": agreement.ess_bulk_q05,
        "ess_per_second": agreement.ess_bulk_median / seconds,
    }


def _ours(data: dict[str, Any], seed: int, budget: float) -> tuple[Any, float, dict[str, float]]:
    """Outputs [C, S, N, 2], seconds, and what the sampler says of itself."""
    began = time.perf_counter()
    import keras
    import numpy as np
    import tensorflow as tf

    from gpflow_bae.mcmc import State, Step, Target, sghmc
    from gpflow_bae.mcmc.step_size import from_curvature

    tf.config.threading.set_inter_op_parallelism_threads(1)
    sizes = [data["X"].shape[1], *HIDDEN, 2]
    X, y, Xnew = (tf.constant(data[name]) for name in ("X", "y", "Xnew"))

    def network(weights: Any, X: tf.Tensor) -> tf.Tensor:
        """Of all chains: [C, N, 2]."""
        values = tf.broadcast_to(X, [FLAGS.chains, *X.shape])
        for i, (kernel, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            values = tf.linalg.matmul(values, kernel) + bias
            values = tf.nn.relu(values) if i < len(HIDDEN) else values
        return values

    def log_density(weights: Any) -> tf.Tensor:
        outputs = network(weights, X)
        deviation = tf.nn.softplus(outputs[..., 1]) + 1e-6
        errors = tf.square((y - outputs[..., 0]) / deviation)
        likelihood = tf.reduce_sum(-0.5 * errors - tf.math.log(deviation))
        return likelihood - 0.5 * tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights])

    def gradient(weights: Any, seed: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = log_density(weights)
        return tape.gradient(value, weights)

    rng = np.random.default_rng(seed)
    weights = []
    for rows, columns in zip(sizes[:-1], sizes[1:], strict=True):
        kernel = rng.standard_normal((FLAGS.chains, rows, columns)) / np.sqrt(rows)
        weights += [kernel, np.zeros((FLAGS.chains, 1, columns))]
    # Each chain from a mode of its own: Adam, in the sampler's own function.
    variables = [tf.Variable(w.astype(np.float32)) for w in weights]
    optimiser = keras.optimizers.Adam(1e-2)
    optimiser.build(variables)

    @tf.function
    def started() -> None:
        for _ in tf.range(_START_STEPS):
            uphill = gradient([v.value() for v in variables], None)
            optimiser.apply([-g for g in uphill], variables)

    started()
    # Critical damping of directions that only the prior informs: a = 2 h.
    sampler = from_curvature(sghmc.build(0.01, 0.02, integrator="baoab"), 0.5)
    target = Target(gradient)
    state = sampler.init(tuple(v.value() for v in variables), target)

    @tf.function(jit_compile=True)
    def advanced(state: State, first: tf.Tensor, adapt: tf.Tensor) -> tuple[State, tf.Tensor]:
        def body(i: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
            at = Step(first + i, adapt)
            return i + 1, sampler.step(state, target, tf.stack([seed, first + i]), at)

        state = tf.while_loop(lambda i, _: i < _STEPS_PER_CALL, body, (tf.constant(0), state))[1]
        return state, network(state.position, Xnew)

    draws, kinetic, steps = [], [], 0
    while (spent := time.perf_counter() - began) < budget:
        adapt = spent < _BURNIN * budget
        state, outputs = advanced(state, tf.constant(steps), tf.constant(adapt))
        steps += _STEPS_PER_CALL
        if not adapt:
            draws.append(outputs.numpy())
            kinetic.append(np.mean([float(t) for t in sampler.temperatures(state)]))
    draws = draws[:: max(1, len(draws) // _DRAWS)]
    more = {"steps": steps, "step_size": float(state.shared["step_size"])}
    more["kinetic_temperature"] = float(np.mean(kinetic))
    return np.stack(draws, 1).astype(np.float64), time.perf_counter() - began, more


if __name__ == "__main__":
    define_flags()
    app.run(main)
