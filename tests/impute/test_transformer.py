"""The imputer in scikit-learn's pipelines."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_bae.impute import Imputer, TableTransformer


@parametrize_with_checks([TableTransformer(method="gp")])
@pytest.mark.filterwarnings("ignore:.*no better than column means", "ignore:.*wherever it is")
def test_what_scikit_learn_asks_of_estimators(estimator: Any, check: Any) -> None:
    """Nothing is excepted; of the methods, one is compared with no others, which takes long."""
    check(estimator)


def rows(number: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two numbers and a category that go together, with holes; and a target."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal(number)
    table = pd.DataFrame(
        {
            "a": hidden + 0.3 * rng.standard_normal(number),
            "b": 10.0 * hidden + 3.0 * rng.standard_normal(number),
            "c": np.where(hidden + 0.3 * rng.standard_normal(number) > 0.0, "high", "low"),
        }
    )
    return table.mask(rng.random(table.shape) < 0.2), hidden + 0.1 * rng.standard_normal(number)


def test_it_fills_what_the_imputer_fills_and_names_its_columns() -> None:
    table, _ = rows()
    transformer = TableTransformer(method="gp", random_state=1).set_output(transform="pandas")
    filled = transformer.fit_transform(table)
    seed = transformer.imputer_.seed
    expected = Imputer(["a", "b", "c"], method="gp", seed=seed, progress=False).fit(table).impute()
    pd.testing.assert_frame_equal(filled, expected[["a", "b", "c"]])
    assert list(transformer.get_feature_names_out()) == ["a", "b", "c"]
    assert not filled.isna().any().any()
    again = pickle.loads(pickle.dumps(transformer))
    pd.testing.assert_frame_equal(again.transform(table), filled)
    assert TableTransformer(method="mean").fit_transform(table).dtype == object


def test_pipelines_and_cross_validation() -> None:
    """Ridge on filled numbers explains nearly all of what two noisy copies of the target can."""
    table, target = rows()
    encode = ColumnTransformer(
        [("words", OneHotEncoder(), ["c"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    steps = make_pipeline(
        TableTransformer(method="gp").set_output(transform="pandas"), encode, Ridge()
    )
    assert cross_val_score(clone(steps), table, target, cv=3).mean() > 0.8
    own = ColumnTransformer([("fill", TableTransformer(method="gp"), ["a", "b"])]).fit(table)
    assert list(own.get_feature_names_out()) == ["fill__a", "fill__b"]
    assert np.isfinite(own.transform(table)).all()


def test_roles_are_names_of_columns() -> None:
    table = pd.DataFrame({"t": np.arange(30.0), "y": np.sin(np.arange(30.0) / 3.0)})
    table.loc[10:12, "y"] = np.nan
    brief = {"num_steps": 2, "num_fits": 1}
    transformer = TableTransformer(time="t", settings=brief).set_output(transform="pandas")
    assert transformer.fit_transform(table)["y"].notna().all()
    with pytest.raises(ValueError, match="name columns, which arrays do not have"):
        TableTransformer(time="t").fit(table.to_numpy())
