"""The blobs study: its data. Everything else about it is generic.

Reads:  nothing
Writes: results/{run}/data/blobs-…/manifest.json; the objects themselves are made as they are put into their stores
"""


rule make_blobs:
    """Say what the objects of one size hold: their checksums, and how to make them."""
    output:
        "results/{run}/data/{dataset}/manifest.json",
    log:
        "results/{run}/logs/data/{dataset}.log",
    wildcard_constraints:
        dataset="blobs-[A-Za-z0-9-]+",
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
        "exec {params.python:q} -sE -m scripts.step run --out {output} --log {log} --attempt {resources.attempt} studies.blobs.make -- --dataset {wildcards.dataset} --settings {params.settings:q}"
