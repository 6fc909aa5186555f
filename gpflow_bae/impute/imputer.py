"""An estimator that fills the missing cells of a table, and checks itself on hidden cells."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.annotations import check_types
from ..core.arguments import check_integer
from ..core.files import as_path
from . import saved_fits
from .check.hidden_gaps import check
from .check.result import CheckResult
from .method_names import AUTO, check_names
from .model import TablePosterior
from .model.fitted import Fit, fit_table, make_plan
from .reading.columns import FittedColumns
from .reading.problems import warn
from .reading.table_format import TableFormat
from .reading.user_table import CellPredictions, UserTable, from_arrays

__all__ = ["Imputer"]


@dataclasses.dataclass(eq=False)
class Imputer:
    """Fill the missing cells of a table, each column by the method that predicts it best.

    The methods are a Gaussian process autoencoder of its rows, whose decoder is linear and whose
    codes are integrated out (:mod:`gpflow_bae.impute.model`), and simple ones. They are compared on
    gaps that are hidden from all of them.

    A table is a DataFrame of pandas, polars or another library that narwhals knows, whose columns
    the arguments name, or two arrays: inputs X [N, D] or [T, N, D], and outputs Y [N, P] or
    [T, N, P] with NaN where missing. Tasks are independent series that share everything but their
    latent functions.

    Without time and inputs (of arrays, rows [N, P] alone) the rows have no order: a cell is
    predicted from the others of its row, by a Gaussian of the columns.

    :param outputs: columns to fill; names of the columns of ``Y``, for arrays. Names may be text,
        numbers, timestamps, or tuples of these.
    :param time: column of numbers or ISO dates; the first input of the GP.
    :param inputs: further columns that every row has, such as coordinates. Categories (words, True
        and False) may be missing.
    :param task: column that names the series a row belongs to; one series if None.
    :param latent_dim: latent channels; if None as many as outputs, at most twenty.
    :param num_steps: steps of L-BFGS; 40 if None.
    :param seed: seed of all random numbers.
    :param settings: fields of :class:`~gpflow_bae.impute.Plan` and of
        :class:`~gpflow_bae.inference.BlockFit` that replace those that follow from the table.
    :param progress: whether ``fit`` shows a progress bar.
    :param kinds: kinds of outputs by name: ``"continuous"``, ``"positive"``, ``"count"``,
        ``"binary"``, ``"category"``, or the two bounds of a bounded column, such as ``(0, 100)``.
        Others follow from the observed values, see
        :func:`~gpflow_bae.impute.reading.kinds.column_kind.decide_kind`.
    :param table_format: how a DataFrame's text writes numbers, dates and missing cells.
    :param method: ``"auto"`` for the method that predicts hidden gaps of a column best, or one for
        all columns: ``"gp"`` (the Gaussian processes; without time and inputs one multivariate
        Gaussian of all rows), ``"iterative"`` (scikit-learn's IterativeImputer, with linear
        regressions), ``"trees"`` (the same with forests), ``"linear"`` (interpolation), ``"hour"``
        (interpolation between the same hours of other days) or ``"mean"``.
    :param periods: periods of the calendar that columns may have, of ``"hour"``, ``"weekday"`` and
        ``"season"``; those of which the table spans two if None. A column has one only where hidden
        gaps are predicted better with it.

    Attributes after ``fit``: ``plan_``; ``methods_``, the method of each output in words;
    ``posterior_``, of standardised outputs given scaled inputs, None if no column is filled by the
    Gaussian processes; ``standardiser_``; and ``columns_``, the kinds of the outputs and the
    scaling of the inputs, by which other tables are read.

    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> Y = np.concatenate([np.sin(X), np.cos(X)], axis=1)
    >>> Y[10:13, 0] = np.nan
    >>> imputer = Imputer(num_steps=5, progress=False).fit(X, Y)
    >>> filled = imputer.impute()
    >>> bool(np.isfinite(filled.filled).all()), int(np.count_nonzero(filled.sd))
    (True, 3)
    """

    outputs: Sequence[Any] = ()
    time: Any = None
    inputs: Sequence[Any] = ()
    task: Any = None
    latent_dim: int | None = None
    num_steps: int | None = None
    seed: int = 0
    settings: Mapping[str, Any] | None = None
    progress: bool = True
    kinds: Mapping[str, Any] | None = None
    table_format: TableFormat | None = None
    method: str = AUTO
    periods: Sequence[str] | None = None

    def __post_init__(self) -> None:
        with contextlib.suppress(ValueError):  # raised by read, as errors of all arguments are
            self._list_names()
        self.posterior_: TablePosterior | None = None
        self._fit_: Fit | None = None
        self.checked_: Fit | None = None
        self.table_: UserTable | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def set_params(self, **arguments: Any) -> Imputer:
        """Set constructor arguments for the next ``fit``.

        :raises ValueError: for an argument that the constructor does not have.
        """
        unknown = sorted(set(arguments) - set(self.get_params()))
        if unknown:
            raise ValueError(
                f"Imputer has no parameter {unknown}; it has {sorted(self.get_params())}."
            )
        for name, value in arguments.items():
            setattr(self, name, value)
        return self

    def read(self, table: Any, Y: Any = None) -> UserTable:
        """Read and check a table; after ``fit``, by the kinds and the scaling of its columns.

        :param table: a DataFrame, or inputs X; or what this method returned.
        :param Y: outputs, if ``table`` is X. If None, an array ``table`` has rows without inputs.
        :raises ValueError: for a column that is not there, text in a numeric column, infinities,
            missing inputs, two rows of a task with the same inputs, arrays of other shapes, or
            columns ``<output>_sd``, ``<output>_lower`` or ``<output>_upper``, which
            :meth:`impute` would write over.
        """
        return self._read(table, Y, None if self._fit_ is None else self.columns_)

    def fit(self, table: Any, Y: Any = None, *, start: Fit | None = None) -> Imputer:
        """Fit the methods to the observed cells of a table; arguments as in :meth:`read`.

        Without ``start``, methods are compared on gaps that this hides by itself.

        :param start: ``checked_`` of a :meth:`check` of this table, whose methods are taken, and
            which saves three quarters of the steps.
        :raises ValueError: as :meth:`read`; for an output that is constant or never observed; for
            unknown settings; for a start that is a fit of another table.
        """
        user = self._read(table, Y)
        fitted = self._fit(user)(user.table, start)
        self._keep(fitted)
        self.table_ = user
        warn(fitted.warnings())
        return self

    def predict_y(self, table: Any = None, Y: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of all cells in their units, observation noise included.

        :param table: other rows than those of ``fit``, of the same columns, as in :meth:`read`;
            their tasks are taken as new ones. None for the table of ``fit``.
        :raises RuntimeError: before ``fit``; after ``load``, without a table.
        """
        moments = self.predict_cells(table, Y)
        return moments.mean, moments.variance

    def predict_cells(self, table: Any = None, Y: Any = None) -> CellPredictions:
        """Moments and 90 % intervals [T, N, P] of all cells; arguments as in :meth:`predict_y`.

        Intervals lie between quantiles, which are no Gaussian's where the model sees a column
        transformed.
        """
        return self._fitted().predict_cells(self._table(table, Y))

    def impute(self, table: Any = None, Y: Any = None) -> Any:
        """The table with its missing cells filled; arguments and errors as in :meth:`predict_y`.

        :return: the DataFrame, of the given library, unchanged but for missing cells, with the
            columns ``<output>_sd``, ``<output>_lower`` and ``<output>_upper`` (a 90 % interval) for
            filled cells, or ``<output>_probability`` of categories; of arrays, an
            :class:`~gpflow_bae.impute.Imputed`.
        """
        user = self._table(table, Y)
        return user.fill(*self._fitted().predict_cells(user, ~user.table.observed))

    def draws(
        self, number: int = 10, table: Any = None, Y: Any = None, *, seed: int = 0
    ) -> list[Any]:
        """Filled tables whose missing cells are drawn together, for multiple imputation.

        Each cell is drawn from the distribution of which :meth:`impute` has the mean and the 90 %
        interval. Cells of a row, and of a series, are drawn together, so that an analysis of each
        table, pooled by Rubin's rules, has the right uncertainty. Tables without inputs are drawn
        with parameters of their own.

        :param number: of tables.
        :param table, Y: as in :meth:`predict_y`.
        :param seed: of the draws.
        :return: DataFrames as :meth:`impute` has them, without columns beside the outputs; of
            arrays, arrays of the shape of ``Y``.
        """
        from .model.draws import draw

        check_integer("number", number, 1)
        user = self._table(table, Y)
        return [user.fill_with(values) for values in draw(self._fitted(), user, number, seed)]

    def probabilities(self, table: Any = None) -> dict[Any, Any]:
        """Probabilities of the categories of each output that has some, as DataFrames [rows, K].

        :param table: other rows than those of ``fit``, a DataFrame; arguments and errors as in
            :meth:`predict_y`.
        """
        user = self._table(table, None)
        moments = self._fitted().predict_cells(user)
        return user.probabilities(moments.mean, moments.variance)

    def check(self, table: Any, Y: Any = None, *, fraction: float = 0.1) -> CheckResult:
        """Compare methods on hidden gaps, and say how far filled values can be trusted.

        Gaps shaped like the table's own are hidden, and all methods are fitted to the rest. An
        earlier fit stays as it is; that of the check is ``checked_``, which :meth:`fit` can start
        from.

        :param table, Y: as in :meth:`read`.
        :param fraction: share of the observed cells of the columns with holes, in (0, 1); at most
            40,000 cells are hidden.
        :raises ValueError: as :meth:`fit`, or for a fraction that leaves an output without cells.
        """
        user = self._read(table, Y)
        fit = functools.partial(self._fit(user), compared=True)
        result, self.checked_ = check(
            user, fit, fraction, self.seed, self.progress, method=self.method
        )
        return result

    def score(self, table: Any, Y: Any = None, *, fraction: float = 0.1) -> Any:
        """The summary of :meth:`check`: a DataFrame, or for arrays a dictionary of dictionaries."""
        found = {
            name: dict(row) for name, row in self.check(table, Y, fraction=fraction).summary.items()
        }
        return type(table).from_dict(found, orient="index") if hasattr(table, "iloc") else found

    def save(self, folder: str | pathlib.Path) -> None:
        """Write the fit, without its table: ``fit.json`` and ``posterior.npz``.

        :param folder: made if it is not there; both files of an earlier fit in it are replaced.
        :raises RuntimeError: before ``fit``.
        """
        self._fitted().save(folder, self.get_params())

    @classmethod
    def load(cls, folder: str | pathlib.Path) -> Imputer:
        """Read what :meth:`save` wrote.

        :raises FileNotFoundError: if the folder holds no fit.
        :raises ValueError: for a damaged fit, or one of an earlier version.
        """
        folder = as_path(folder)
        record = saved_fits.read_record(folder)
        imputer = cls(**saved_fits.arguments(record))
        imputer._keep(Fit.load(folder, record))
        return imputer

    def _read(self, table: Any, Y: Any, fitted: FittedColumns | None = None) -> UserTable:
        native = None
        if not isinstance(table, UserTable | np.ndarray):
            from .reading.other_frames import is_other_frame, to_pandas

            if is_other_frame(table):
                table, native = to_pandas(table), table
        if isinstance(table, Mapping):
            raise TypeError(
                f"table must be a DataFrame or an array, got {type(table).__name__}: "
                "pandas.DataFrame(table) makes one of it."
            )
        is_frame = hasattr(table, "iloc")
        if Y is not None and (isinstance(table, UserTable) or is_frame):
            raise ValueError(
                f"Y is given beside a {type(table).__name__}, which holds the outputs itself: "
                "leave Y out, and name columns of one DataFrame as outputs; or pass two arrays."
            )
        self._list_names()
        # Columns may have names that are no strings.
        plain = {k: v for k, v in self.get_params().items() if k not in saved_fits.ROLES}
        least = {"latent_dim": 1, "num_steps": 1, "seed": 0}
        check_types(plain, type(self).__annotations__, globals(), least)
        check_names(self.method, self.periods)
        if isinstance(table, UserTable):
            return table
        kinds: Any = self.kinds
        if kinds is None and (self.settings or {}).get("log_outputs"):
            kinds = "positive"
        if is_frame:
            from .reading.frames import read_frame

            roles = {name: getattr(self, name) for name in (*saved_fits.ROLES, "table_format")}
            user = read_frame(table, **roles, kinds=kinds, fitted=fitted)
        elif self.time is not None or self.inputs or self.task is not None:
            raise ValueError("time, inputs and task name columns, which arrays do not have.")
        else:
            table, Y = (None, table) if Y is None else (table, Y)
            user = from_arrays(table, Y, tuple(self.outputs), kinds, fitted)
        _ = user.table  # which refuses inputs that no model can see
        warn(user.notes)
        return user if native is None else dataclasses.replace(user, native=native)

    def _list_names(self) -> None:
        """Make lists of the names of columns, which may come in an index, array or generator."""
        for name in ("outputs", "inputs"):
            given = getattr(self, name)
            if isinstance(given, str | Mapping) or not np.iterable(given):
                raise ValueError(f"{name} is {given!r}; it must be a list of column names.")
            names = list(given)
            if not isinstance(given, list | tuple) or any(isinstance(n, np.number) for n in names):
                # NumPy's numbers cannot be compared with tuples.
                setattr(self, name, [n.item() if isinstance(n, np.number) else n for n in names])
        roles = [self.time, self.task, *self.outputs, *self.inputs]
        wrong = [name for name in roles if not isinstance(name, Hashable)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no column name: pass one for time and task each.")

    def _table(self, table: Any, Y: Any) -> UserTable:
        self._fitted()
        if table is not None:
            return self.read(table, Y)
        if self.table_ is None:
            raise RuntimeError("A loaded Imputer does not have its table: pass it to this method.")
        return self.table_

    def _fit(self, user: UserTable) -> Callable[..., Fit]:
        """A function that fits a plan to the table as it is, or with further cells hidden."""
        if "periods" in (self.settings or {}):
            raise ValueError("settings holds 'periods', which are an argument: pass periods=[...].")
        periods = {} if self.periods is None else {"periods": self.periods}
        plan = make_plan(
            user,
            self.latent_dim,
            self.num_steps,
            {**(self.settings or {}), **periods},
            has_time=self.time is not None or user.X.shape[1] == 1,
        )
        return functools.partial(
            fit_table, plan, user, method=self.method, seed=self.seed, progress=self.progress
        )

    def _keep(self, fitted: Fit) -> None:
        self._fit_, self.columns_ = fitted, fitted.columns
        self.plan_, self.standardiser_ = fitted.plan, fitted.standardiser
        self.methods_ = fitted.describe()
        self.posterior_ = fitted.posterior

    def _fitted(self) -> Fit:
        if self._fit_ is None:
            raise RuntimeError(
                "This Imputer has no fit yet: call fit(table), or Imputer.load(folder)."
            )
        return self._fit_
