"""Write a posterior as a SavedModel in the layout of TF Serving; TensorFlow alone loads it."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ..core.arguments import check_arguments
from ..core.files import as_path, to_json
from ..posteriors import FittedModel, Posterior, TemperedPosterior
from .card import model_card
from .fitted import serve
from .served import ServedModel
from .signatures import DEFAULT_SIGNATURE, SEEDED, build_signatures, choose_signatures
from .warmup import write_warmup_requests

__all__ = ["CARD_FILE", "Export", "export"]

CARD_FILE = "model_card.json"


class Export(NamedTuple):
    """What :func:`export` wrote."""

    path: pathlib.Path  # of the version: path/<version>
    signatures: tuple[str, ...]
    size_bytes: int  # of the version's folder
    served: ServedModel  # the same computations in Python


@check_arguments()
def export(
    posterior: Posterior | TemperedPosterior | FittedModel,
    path: str | os.PathLike[str],
    version: int = 1,
    signatures: Sequence[str] | None = None,
    *,
    name: str | None = None,
    num_samples: int | None = None,
    dtype: str = "float32",
    samples_per_request: int = 32,
    encoders_per_request: int = 4,
    num_draws: int = 32,
    max_rows: int = 8192,
    seed: int = 0,
    examples: Mapping[str, np.ndarray] | None = None,
    notes: Mapping[str, Any] | None = None,
    verbose: bool = True,
) -> Export:
    """Write ``path/<version>/`` for TF Serving, and ``path/model_card.json`` beside it.

    Signatures, each with rows in and rows out; the number of rows is free:

    - ``encode`` (also ``serving_default``): ``y [rows, P]`` to ``mean`` and ``standard_deviation``
      [rows, L] of the codes, and ``draws`` [rows, K, L];
    - ``decode``: ``latents [rows, L]`` to ``mean``, ``noise_std``, ``epistemic_std`` [rows, P];
    - ``reconstruct``: ``y`` to the same three;
    - ``generate``: ``x [rows, D]`` to the same three, where the prior has inputs;
    - ``impute``: ``y`` with NaN to ``filled`` and ``standard_deviation`` [rows, P].

    Rows are encoded by themselves, by the amortised encoder: the Gaussian process over several
    rows is in :class:`~gpflow_bae.posteriors.Posterior`, and here only in ``generate``. Each has a
    twin, such as ``encode_seeded``, with a further input ``seed`` (int64 [rows], or [1]).

    :param posterior: of any model of the package; a GPLVM's, and a
        :class:`~gpflow_bae.posteriors.FittedModel` of a deep SVIGP, decode (and generate) alone.
    :param path: folder of the model; TF Serving's ``base_path``.
    :param version: a positive integer; the server takes the highest.
    :param signatures: those to export; None for all that the model can serve.
    :param name: of the model in warm-up requests and card; by default that of the folder.
    :param num_samples: posterior samples to bake in, evenly spaced; None for all.
    :param dtype: that network weights are stored in: float32, float16, bfloat16 or float64.
    :param samples_per_request: posterior samples that an answer averages over; the seed decides
        which of those baked in.
    :param encoders_per_request: samples whose encoders an ``encode`` asks.
    :param num_draws: draws of each row's code, at least, over all samples of a request.
    :param max_rows: longest request; longer ones are refused with a message.
    :param seed: that requests without one have.
    :param examples: rows for the warm-up requests, by input name ("y", "x", "latents"); by
        default a row of zeros for observations and codes and the mean of the training inputs, so
        that no training data are published.
    :param notes: further JSON values for the card, such as the units of ``y``.
    :param verbose: print where the export is, and its size.
    :raises ValueError: for arguments out of range, a signature that the model cannot serve, or
        example rows that do not fit.
    :raises FileExistsError: if that version exists.
    """
    folder = as_path(path)
    if version < 1:
        raise ValueError(f"version must be a positive integer, got {version!r}.")
    final = folder / str(version)
    if final.exists():
        raise FileExistsError(
            f"{final} exists; servers may hold it open, so choose another version or delete it."
        )
    served = serve(
        posterior,
        num_samples=num_samples,
        dtype=dtype,
        samples_per_request=samples_per_request,
        encoders_per_request=encoders_per_request,
        num_draws=num_draws,
        max_rows=max_rows,
    )
    names = choose_signatures(served, signatures)
    name = folder.resolve().name if name is None else name
    requests = _requests(served, names, posterior, examples or {}, seed)
    functions = build_signatures(served, names, seed)
    folder.mkdir(parents=True, exist_ok=True)
    # A server looks for new versions all the time, and must never see half of one.
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{version}-", dir=folder))
    try:
        tf.saved_model.save(served, str(temporary), signatures=functions)
        write_warmup_requests(temporary, name, requests)
        temporary.chmod(0o755)
        os.replace(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    size = sum(f.stat().st_size for f in final.rglob("*") if f.is_file())
    card = model_card(
        served,
        posterior,
        functions,
        name=name,
        version=version,
        seed=seed,
        size_bytes=size,
        warmed_up=tuple(requests),
    )
    if notes:
        card["notes"] = dict(notes)
    (folder / CARD_FILE).write_text(to_json(card, indent=1) + "\n", encoding="utf-8")
    if verbose:
        print(
            f"{final}: {size / 1e6:.2f} MB, {served.bank.num_samples} posterior samples, "
            f"signatures {', '.join(names)}"
        )
    return Export(final, names, size, served)


def _requests(
    served: ServedModel,
    names: Sequence[str],
    posterior: Posterior | TemperedPosterior | FittedModel,
    examples: Mapping[str, np.ndarray],
    seed: int,
) -> dict[str, dict[str, np.ndarray]]:
    """Warm-up requests by signature, of example rows or of plain ones."""
    widths = {key: w for name in names for key, w in served.inputs(name).items()}
    unknown = sorted(set(examples) - set(widths))
    if unknown:
        raise ValueError(f"examples has {unknown}, which are no inputs; they are {sorted(widths)}.")
    rows = {}
    for key, width in widths.items():
        kind = gpflow.default_float() if key == "x" else np.float32
        value = np.zeros((1, width), kind)
        if key == "x":
            # Of a fitted model the inducing inputs lie where the training inputs did.
            if isinstance(posterior, Posterior):
                near = posterior.X
            else:
                near = posterior.model.inducing_variable.Z
            near = np.asarray(near)  # with a column more, where some are missing
            value += np.reshape(near, [-1, near.shape[-1]])[:, :width].mean(0)
        if key in examples:
            value = np.asarray(examples[key], kind)
            if value.ndim != 2 or value.shape[1] != width or not len(value):
                raise ValueError(
                    f"examples[{key!r}] must have shape [rows, {width}], got {value.shape}."
                )
        rows[key] = value
    count = min(len(v) for v in rows.values())
    requests: dict[str, dict[str, np.ndarray]] = {}
    for name in [DEFAULT_SIGNATURE, *names]:
        actual = name if name in names else ("encode" if "encode" in names else names[0])
        requests[name] = {key: rows[key][:count] for key in served.inputs(actual)}
    for name in names:
        requests[name + SEEDED] = requests[name] | {"seed": np.array([seed], np.int64)}
    return requests
