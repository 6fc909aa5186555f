"""Bouncing balls: frames ahead of one ball, or missing pixels of two.

python -m experiments.bouncing_ball --balls=1 --model=sgp_vae --period=26.7 --out_dir=runs/ball
"""

from absl import app, flags

from experiments import imputation_driver as driver
from experiments.common import flags as common_flags

if __name__ == "__main__":
    driver.define_flags(latent_dim=4, init_lengthscale=1.0, num_inducing=32)
    flags.DEFINE_integer("balls", 1, "One ball, or two of which one falls.", 1, 2)
    flags.DEFINE_integer("num_context", 20, "Frames that are seen of a test sequence.", 1)
    for module in (driver, common_flags):  # so that --help lists them
        flags.adopt_module_key_flags(module)
    app.run(lambda argv: driver.main(argv, "bouncing_ball"))
