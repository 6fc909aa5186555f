"""Japanese weather of 1980 and 1981: a task per week, the mean temperature of five days hidden.

python -m experiments.japan_weather --model=sgp_vae --pinference_net=indexnet --test_year=1981 \\
    --data_dir=DATA --out_dir=runs/weather

``DATA/japan_weather`` holds NOAA GHCN-Daily files (gpflow_bae/datasets/japan_weather.py).
"""

from absl import app, flags

from experiments import imputation_driver as driver
from experiments.common import flags as common_flags

if __name__ == "__main__":
    driver.define_flags(latent_dim=3, init_lengthscale=1.0, num_inducing=100)
    flags.DEFINE_integer("test_year", 1981, "1981, or 1980 for the hidden cells of training.")
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "japan_weather"))
