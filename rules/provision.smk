"""Generate data, put them into their stores, and read them once before the first cell.

Reads:  files of the user that a study names in config/, if any
Writes: results/{run}/data/{dataset}/manifest.json, {store}.json, results/{run}/provided, results/{run}/{study}/ready.json
"""


rule data:
    """Generate the files of a dataset and its manifest, or only a manifest that describes their generation."""
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
    """Wait on clusters for libraries and data in their stores, which decide which cells can be measured."""
    input:
        CALL.list_artefacts,
    output:
        touch("results/{run}/provided"),


rule ready:
    """Read all data of a study once, after all its libraries and data exist."""
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
