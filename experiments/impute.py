"""Fill the holes of a table of your own, with uncertainty, and see whether to trust it.

python -m experiments.impute --input=table.csv --time=date --inputs=lat,lon --outputs=a,b,c \
    --task=station --out=imputed.csv

The same command as ``gpflow-bae-impute``; docs/guides/impute.md says what it writes.
"""

from gpflow_bae.impute.command import run

if __name__ == "__main__":
    run()
