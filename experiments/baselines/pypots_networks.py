"""SAITS (Du et al. 2023) and CSDI (Tashiro et al. 2021), as PyPOTS has them, on TSI-Bench.

Hyperparameters are those that the benchmark's repository lists for its tables, but for SAITS on
ETT_h1 (:data:`SETTINGS`), with its batches of 32 windows, 100 epochs and patience of 10 epochs on
the validation windows; CSDI is the mean of its 10 draws there. Matrix products of a SAITS in
training are in bfloat16, which is four times as fast on a CPU that has them; weights and
predictions are in float32.

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

#: Arguments of PyPOTS's classes, and Adam's rate, by model and data set. The lists have d_model
#: of 64 for SAITS, which PyPOTS replaces by n_heads * d_k. For ETT_h1 they have d_k of 256 and d_v
#: of 128, which are 88 million weights for 213 windows, no dropout and a rate of 0.00014, which is
#: hours on a CPU; this one was chosen by its error on validation windows (block05).
SETTINGS = {
    "saits": {
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
    },
    "csdi": {
        "italy_air": {
            "n_layers": 3,
            "n_heads": 16,
            "n_channels": 128,
            "d_time_embedding": 256,
            "d_feature_embedding": 8,
            "d_diffusion_embedding": 32,
            "rate": 0.000722830003844826,
        },
        "ett_h1": {
            "n_layers": 4,
            "n_heads": 4,
            "n_channels": 128,
            "d_time_embedding": 128,
            "d_feature_embedding": 16,
            "d_diffusion_embedding": 128,
            "rate": 0.0012659791476320047,
        },
    },
}
_NUM_DRAWS = {"saits": 1, "csdi": 10}


def is_installed() -> bool:
    """Whether PyPOTS is there."""
    return importlib.util.find_spec("pypots") is not None


def fill(
    model: str,
    dataset: str,
    windows: dict[str, np.ndarray],
    seed: int = 0,
    settings: dict[str, float] | None = None,
) -> np.ndarray:
    """Train on windows in a process of its own, and fill others.

    :param model: ``"saits"`` or ``"csdi"``.
    :param dataset: of :data:`SETTINGS`.
    :param windows: ``train``, ``val`` and ``test`` [T, N, P] with NaN where cells are hidden, and
        ``val_complete``, by which training stops early.
    :param seed: of the first weights, of the batches and of draws.
    :param settings: replace some of :data:`SETTINGS`, or of ``epochs`` and ``patience``.
    :return: draws [S, T, N, P] of the test windows, the one imputation of SAITS.
    :raises ModuleNotFoundError: without PyPOTS.
    :raises subprocess.CalledProcessError: if that process fails; what it said is above.
    """
    if not is_installed():
        raise ModuleNotFoundError(f"The method {model} needs PyPOTS: pip install '.[pypots]'.")
    how = SETTINGS[model][dataset] | {"epochs": 100, "patience": 10} | (settings or {})
    with tempfile.TemporaryDirectory() as folder:
        given, found = (pathlib.Path(folder) / name for name in ("given.npz", "found.npy"))
        np.savez(given, **windows)
        words = [model, json.dumps(how), str(seed), str(given), str(found)]
        subprocess.run([sys.executable, __file__, *words], check=True)
        return np.load(found)


def _work(
    model: str, how: dict[str, float], seed: int, windows: dict[str, np.ndarray]
) -> np.ndarray:
    """Train and fill, in the other process."""
    # PyPOTS imports transformers, which would import TensorFlow.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    import torch
    from pypots import imputation

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (PyPOTS draws from it)
    _, num_steps, num_features = windows["train"].shape
    rate = how.pop("rate")
    network = {"saits": imputation.SAITS, "csdi": imputation.CSDI}[model](
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
    with torch.autocast("cpu", torch.bfloat16, enabled=model == "saits", cache_enabled=False):
        network.fit({"X": train}, {"X": val, "X_ori": truth})
    if model == "saits":
        return network.predict({"X": test})["imputation"][None]
    draws = network.predict({"X": test}, n_sampling_times=_NUM_DRAWS[model])["imputation"]
    return np.moveaxis(draws, 1, 0)


if __name__ == "__main__":
    name, how_text, seed_text, given_path, found_path = sys.argv[1:]
    with np.load(given_path) as file:
        np.save(found_path, _work(name, json.loads(how_text), int(seed_text), dict(file)))
