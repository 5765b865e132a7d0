"""The shots study: its data. Everything else about it is generic.

Reads:  config/shots_signals.csv
Writes: results/{run}/data/shots-…/manifest.json and the HDF5 files beside it
"""


rule make_shots:
    """Generate shot files in one layout, or describe the user's own."""
    output:
        "results/{run}/data/{dataset}/manifest.json",
    log:
        "results/{run}/logs/data/{dataset}.log",
    wildcard_constraints:
        dataset="shots-[A-Za-z0-9-]+",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=attempt_of,
    params:
        python=PYTHON,
        settings=data_settings,
    message:
        "make data {wildcards.dataset}"
    shell:
        "exec {params.python:q} -sE -m scripts.step run --out {output} --log {log} --attempt {resources.attempt} studies.shots.make -- --dataset {wildcards.dataset} --settings {params.settings:q}"
