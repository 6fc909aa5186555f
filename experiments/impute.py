"""Fill missing cells of your own table, with uncertainty, and check the predictions.

python -m experiments.impute --input=table.csv --time=date --inputs=lat,lon --outputs=a,b,c \
    --task=station --out=imputed.csv

This is the same command as ``gpflow-bae-impute``; docs/guides/impute.md describes its output.
"""

from gpflow_bae.impute.command import run

if __name__ == "__main__":
    run()
