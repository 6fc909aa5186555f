"""Japanese weather of 1980 and 1981: a task per week, with five days' mean temperature hidden.

python -m experiments.japan_weather --model=sgp_vae --pinference_net=indexnet --test_year=1981 \\
    --data_dir=DATA --out_dir=runs/weather

``DATA/japan_weather`` holds NOAA GHCN-Daily files (gpflow_bae/datasets/japan_weather.py).
"""

from experiments.imputation.command import start

if __name__ == "__main__":
    start("japan_weather")
