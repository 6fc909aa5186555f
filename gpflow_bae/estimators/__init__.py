"""Models as scikit-learn estimators. They need the extra ``sklearn``, which the rest of the package
does not.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "gpflow_bae.estimators needs scikit-learn, which is not installed: "
        "pip install 'gpflow-bae[sklearn]'."
    ) from error

from .regressor import BayesianMLPRegressor
from .tempered import TemperedAutoencoder

__all__ = ["BayesianMLPRegressor", "TemperedAutoencoder"]
