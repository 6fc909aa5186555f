"""Export of a posterior as a SavedModel for TF Serving, which needs only TensorFlow to load."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..core.files import as_path, check_folder, to_json
from ..posteriors import FittedModel, Posterior, TemperedPosterior
from .card import model_card
from .codes import inputs_seen
from .fitted import serve
from .served import ServedModel
from .signatures import DEFAULT_SIGNATURE, SEEDED, build_signatures, choose_signatures
from .warmup import write_warmup_requests

__all__ = ["CARD_FILE", "Export", "export"]

CARD_FILE = "model_card.json"


class Export(NamedTuple):
    """Result of :func:`export`."""

    path: pathlib.Path  # folder of the version: path/<version>
    signatures: tuple[str, ...]
    size_bytes: int  # size of that folder
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
    """Write ``path/<version>/`` for TF Serving, and ``path/model_card.json``.

    The signatures take and return any number of rows:

    - ``encode`` (also ``serving_default``): ``y [rows, P]`` to ``mean`` and ``standard_deviation``
      [rows, L] of the codes, and ``draws`` [rows, K, L];
    - ``decode``: ``latents [rows, L]`` to ``mean``, ``noise_std``, ``epistemic_std`` [rows, P];
    - ``reconstruct``: ``y`` to the same three;
    - ``generate``: ``x [rows, D]`` to the same three, if the prior has inputs;
    - ``impute``: ``y`` with NaN to ``filled`` and ``standard_deviation`` [rows, P].

    The encoder encodes each row separately: only :class:`~gpflow_bae.posteriors.Posterior`
    conditions the Gaussian process on several rows, and here only ``generate`` uses it. Each
    signature has a variant, such as ``encode_seeded``, with an input ``seed`` (int64 [rows], or
    [1]).

    :param posterior: of any model of the package; that of a GPLVM, and a
        :class:`~gpflow_bae.posteriors.FittedModel` of a deep SVIGP, only decode (and generate).
    :param path: folder of the model; TF Serving's ``base_path``.
    :param version: a positive integer; the server loads the highest.
    :param signatures: names of signatures to export; None for all that the model can serve.
    :param name: name of the model in warm-up requests and card; by default that of the folder.
    :param num_samples: number of posterior samples to store, evenly spaced; None for all.
    :param dtype: type to store network weights in: float32, float16, bfloat16 or float64.
    :param samples_per_request: number of posterior samples that a request averages over; the seed
        determines which of the stored ones.
    :param encoders_per_request: number of samples whose encoders ``encode`` uses.
    :param num_draws: least number of draws of each row's code, over all samples of a request.
    :param max_rows: maximal number of rows of a request; others get an error.
    :param seed: seed of requests without one.
    :param examples: rows for the warm-up requests, by input name ("y", "x", "latents"); by
        default a row of zeros for observations and codes and the mean of the training inputs, so
        that no training data are published.
    :param notes: further JSON values for the card, such as the units of ``y``.
    :param verbose: print the path and size of the export.
    :raises ValueError: for arguments out of range, a signature that the model cannot serve, example
        rows of other shapes, or the posterior of an estimator of tissue
        (:class:`~gpflow_bae.spatial.SpatialBAE`), which is saved and loaded instead.
    :raises TypeError: for another object than a posterior, or notes that are no JSON values.
    :raises FileExistsError: if that version exists, or a file of that name that is no such card.
    :raises OSError: if the folder cannot be written.
    """
    if not isinstance(posterior, Posterior | TemperedPosterior | FittedModel):
        raise TypeError(
            "posterior must be a Posterior, TemperedPosterior or FittedModel, got "
            f"{kind_of(posterior)}: fit or sample the model first."
        )
    folder = as_path(path)
    check_folder(folder)
    _check_card(folder / CARD_FILE)
    to_json(dict(notes or {}))  # notes that are no JSON are an error before anything is written
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
    # Renamed when complete, because a server polls for new versions.
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


def _check_card(path: pathlib.Path) -> None:
    """Check that a file in the place of the card is the card of another version.

    :raises FileExistsError: if not.
    """
    if not path.exists():
        return
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        card = None
    if not isinstance(card, dict) or not {"name", "version", "signatures"} <= set(card):
        raise FileExistsError(
            f"{path} exists and is no model card of an export, and the card would be written over "
            "it: export to another folder."
        )


def _requests(
    served: ServedModel,
    names: Sequence[str],
    posterior: Posterior | TemperedPosterior | FittedModel,
    examples: Mapping[str, np.ndarray],
    seed: int,
) -> dict[str, dict[str, np.ndarray]]:
    """Return warm-up requests by signature, with example or default rows."""
    widths = {key: w for name in names for key, w in served.inputs(name).items()}
    unknown = sorted(set(examples) - set(widths))
    if unknown:
        raise ValueError(f"examples has {unknown}, which are no inputs; they are {sorted(widths)}.")
    rows = {}
    for key, width in widths.items():
        kind = gpflow.default_float() if key == "x" else np.float32
        value = np.zeros((1, width), kind)
        if key == "x":
            # A fitted model has inducing inputs near the training inputs.
            if isinstance(posterior, Posterior):
                near = inputs_seen(posterior)
            else:
                near = posterior.model.inducing_variable.Z
            # There is one more column if some inputs are missing.
            value += np.asarray(near)[:, :width].mean(0)
            ids = [column for column, _ in served.ids]
            value[:, ids] = np.round(value[:, ids])
        if key in examples:
            value = np.asarray(examples[key], kind)
            if value.ndim != 2 or value.shape[1] != width or not len(value):
                raise ValueError(
                    f"examples[{key!r}] must have shape [rows, {width}], got {value.shape}."
                )
            if not np.isfinite(value).all():
                raise ValueError(f"examples[{key!r}] holds NaN or infinity.")
            for column, count in served.ids if key == "x" else ():
                if not np.isin(value[:, column], np.arange(count)).all():
                    raise ValueError(
                        f"examples['x'] must hold ids in column {column}, whole numbers from 0 to "
                        f"{count - 1}."
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
