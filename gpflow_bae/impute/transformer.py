"""The imputer as a transformer of scikit-learn, for pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .imputer import Imputer
from .reading.other_frames import is_other_frame, to_pandas

__all__ = ["TableTransformer"]


class TableTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing cells inside of a scikit-learn pipeline.

    ``fit`` learns how the columns of a table go together, and ``transform`` fills the missing cells
    of rows with the same columns. Rows have no order unless ``time`` or ``inputs`` name what orders
    them. Words, and True and False, are categories, of which the most probable is filled in.

    Observed cells stay as they are. For intervals of filled cells and probabilities of categories
    call ``impute`` and ``probabilities`` of ``imputer_``, the fitted
    :class:`~gpflow_bae.impute.Imputer`.

    >>> rows = np.random.default_rng(0).standard_normal((40, 1)) * [1.0, 2.0, 3.0]
    >>> rows[3, 1] = np.nan
    >>> filled = TableTransformer(method="gp").fit_transform(rows)
    >>> bool(abs(filled[3, 1] - 2.0 * rows[3, 0]) < 0.2)
    True
    """

    def __init__(
        self,
        *,
        time: Any = None,
        inputs: Sequence[Any] = (),
        task: Any = None,
        kinds: Mapping[Any, Any] | None = None,
        method: str = "auto",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = 0,
    ):
        """
        :param time, inputs, task: names of columns of a DataFrame, as of
            :class:`~gpflow_bae.impute.Imputer`; all other columns are filled.
        :param kinds: kinds of columns by name, as of the Imputer.
        :param method: the method that fills, as of the Imputer.
        :param settings: settings of the fit, as of the Imputer.
        :param random_state: an integer, for equal fits to equal data; a ``RandomState``; or None
            for new random numbers in each fit.
        """
        self.time = time
        self.inputs = inputs
        self.task = task
        self.kinds = kinds
        self.method = method
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TableTransformer:
        """Fit rows [N, P]; ``y`` is ignored.

        Sets ``imputer_``, ``n_features_in_`` and ``feature_names_in_`` of DataFrames.

        :param X: a DataFrame, or numbers [N, P] with NaN where missing; N >= 2.
        :raises ValueError: for a column without any observation; for infinite cells; for names of
            columns beside an array.
        """
        X = self._checked(X, reset=True)
        named = {self.time, self.task, *self.inputs}
        self.imputer_ = Imputer(
            [name for name in getattr(X, "columns", ()) if name not in named],
            time=self.time,
            inputs=list(self.inputs),
            task=self.task,
            kinds=self.kinds,
            method=self.method,
            settings=self.settings,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            progress=False,
        )
        self.imputer_.fit(X)
        self.imputer_.table_ = None  # transform gets its rows
        return self

    def transform(self, X: Any) -> Any:
        """Rows with their missing cells filled, an array [N, P].

        With ``set_output(transform="pandas")`` a DataFrame, whose columns keep their types.

        :param X: as in :meth:`fit`.
        """
        check_is_fitted(self)
        X = self._checked(X)
        found = self.imputer_.impute(X)
        if not hasattr(X, "iloc"):
            return found.filled
        filled = found[list(X.columns)]
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
        chosen = sklearn.get_config()["transform_output"] if chosen is None else chosen
        return filled.to_numpy() if chosen == "default" else filled

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _checked(self, X: Any, reset: bool = False) -> Any:
        """DataFrames as they are, where columns have roles or are no numbers; else arrays."""
        if not isinstance(X, np.ndarray) and is_other_frame(X):
            X = to_pandas(X)
        limits = {"ensure_min_samples": 2} if reset else {}
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        if hasattr(X, "iloc") and hasattr(X, "columns") and self._needs_names(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(self, X, reset=reset, **options, **limits)

    def _needs_names(self, X: Any) -> bool:
        roles = self.time is not None or self.task is not None or len(self.inputs) > 0
        return roles or bool(self.kinds) or any(t.kind not in "fiu" for t in X.dtypes)
