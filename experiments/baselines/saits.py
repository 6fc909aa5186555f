"""SAITS (Du et al. 2023), as PyPOTS has it, on TSI-Bench.

Hyperparameters are those that the benchmark's repository lists for its tables, but for ETT_h1
(:data:`SETTINGS`), with its batches of 32 windows, 100 epochs and patience of 10 epochs on the
validation windows. Matrix products in training are in bfloat16, which is four times as fast on a
CPU that has them; weights and predictions are in float32.

PyTorch and TensorFlow do not get along in one process: this file is the program of another one, and
imports nothing of the project.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

__all__ = ["SETTINGS", "fill", "is_installed"]

#: Arguments of PyPOTS's class, and Adam's rate, by data set. The lists have d_model of 64, which
#: PyPOTS replaces by n_heads * d_k. For ETT_h1 they have d_k of 256 and d_v of 128, which are 88
#: million weights for 213 windows, no dropout and a rate of 0.00014, which is hours on a CPU; this
#: one was chosen by its error on validation windows (block05).
SETTINGS = {
    "italy_air": {
        "n_layers": 3,
        "d_model": 1024,
        "d_ffn": 64,
        "n_heads": 8,
        "d_k": 128,
        "d_v": 32,
        "dropout": 0.1,
        "attn_dropout": 0.2,
        "rate": 7.565260478606772e-05,
    },
    "ett_h1": {
        "n_layers": 3,
        "d_model": 512,
        "d_ffn": 512,
        "n_heads": 8,
        "d_k": 64,
        "d_v": 64,
        "dropout": 0.2,
        "attn_dropout": 0.2,
        "rate": 0.0003,
    },
}


def is_installed() -> bool:
    """Whether PyPOTS is there."""
    return importlib.util.find_spec("pypots") is not None


def fill(
    dataset: str,
    windows: dict[str, np.ndarray],
    seed: int = 0,
    settings: dict[str, float] | None = None,
) -> np.ndarray:
    """Train on windows in a process of its own, and fill others.

    :param dataset: of :data:`SETTINGS`.
    :param windows: ``train``, ``val`` and ``test`` [T, N, P] with NaN where cells are hidden, and
        ``val_complete``, by which training stops early.
    :param seed: of the first weights, and of the batches.
    :param settings: replace some of :data:`SETTINGS`, or of ``epochs`` and ``patience``.
    :return: the test windows [T, N, P], filled.
    :raises ModuleNotFoundError: without PyPOTS.
    :raises subprocess.CalledProcessError: if that process fails; what it said is above.
    """
    if not is_installed():
        raise ModuleNotFoundError("The method saits needs PyPOTS: pip install '.[pypots]'.")
    how = SETTINGS[dataset] | {"epochs": 100, "patience": 10} | (settings or {})
    with tempfile.TemporaryDirectory() as folder:
        given, found = (pathlib.Path(folder) / name for name in ("given.npz", "found.npy"))
        np.savez(given, **windows)
        words = [json.dumps(how), str(seed), str(given), str(found)]
        subprocess.run([sys.executable, __file__, *words], check=True)
        return np.load(found)


def _work(how: dict[str, float], seed: int, windows: dict[str, np.ndarray]) -> np.ndarray:
    """Train and fill, in the other process."""
    # PyPOTS imports transformers, which would import TensorFlow.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    import torch
    from pypots import imputation

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (PyPOTS draws from it)
    _, num_steps, num_features = windows["train"].shape
    rate = how.pop("rate")
    network = imputation.SAITS(
        n_steps=num_steps,
        n_features=num_features,
        batch_size=32,
        device="cpu",
        **how,
    )
    weights = network.model.parameters()
    network.optimizer.torch_optimizer = torch.optim.Adam(weights, lr=rate, fused=True)
    train, val, truth, test = (
        windows[name].astype(np.float32) for name in ("train", "val", "val_complete", "test")
    )
    # With its cache of casts, autocast would go on with the first weights.
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        network.fit({"X": train}, {"X": val, "X_ori": truth})
    return network.predict({"X": test})["imputation"]


if __name__ == "__main__":
    how_text, seed_text, given_path, found_path = sys.argv[1:]
    with np.load(given_path) as file:
        np.save(found_path, _work(json.loads(how_text), int(seed_text), dict(file)))
