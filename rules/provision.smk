"""Data made and put into their stores, and everything read once before the first cell.

Reads:  nothing; a study may have files of its own in config/
Writes: results/{run}/data/{dataset}/manifest.json, {store}.json, results/{run}/provided, results/{run}/{study}/ready.json
"""


rule data:
    """Make the files of a dataset beside its manifest, or say in it how they are made."""
    output:
        "results/{run}/data/{dataset}/manifest.json",
    log:
        "results/{run}/logs/data/{dataset}.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    params:
        study=get_study,
        settings=lookup(dpath="data/{dataset}", within=CALL.specs),
    message:
        "make data {wildcards.dataset}"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} sbench.studies.{params.study}.make -- --dataset {wildcards.dataset} --settings {params.settings:q}"


rule provision:
    """Put a dataset into a store through its API and verify it there."""
    input:
        manifest="results/{run}/data/{dataset}/manifest.json",
        servers=CALL.list_servers,
    output:
        "results/{run}/data/{dataset}/{store}.json",
    log:
        "results/{run}/logs/data/{dataset}.{store}.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    params:
        store=lookup(dpath="stores/{store}", within=CALL.specs),
    message:
        "put {wildcards.dataset} into {wildcards.store}"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} --needs {input} -- provision"
        " --store {params.store:q} --manifest {input.manifest} --folder results/{wildcards.run}/stores/{wildcards.store} --servers {input.servers}"


checkpoint provided:
    """Wait until libraries are built and data are in their stores: which cells can be measured (on clusters)."""
    input:
        CALL.list_artefacts,
    output:
        touch("results/{run}/provided"),


rule ready:
    """Read all data of a study once, when everything that it needs is there."""
    input:
        plan="results/{run}/{study}/plan.json",
        environments=CALL.list_environments,
        provisions=CALL.list_provisions,
    output:
        "results/{run}/{study}/ready.json",
    log:
        "results/{run}/logs/{study}/ready.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    message:
        "read all data of {wildcards.study} once"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} ready -- --provisions {input.provisions}"
