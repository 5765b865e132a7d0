"""One environment for each library under test, and the servers of the embedded stores; cached by hash of their inputs.

Reads:  envs/
Writes: results/{run}/environments/{library}.json, servers.json
"""


rule environment:
    """Build or find one library under test."""
    input:
        lock=CALL.list_locks,
        sources="envs/sources.yaml",
    output:
        "results/{run}/environments/{library}.json",
    log:
        "results/{run}/logs/environments/{library}.log",
    priority: 2
    retries: 1
    conda:
        CALL.get_conda_of_library
    resources:
        attempt=get_attempt,
    params:
        spec=lookup(dpath="libraries/{library}", within=CALL.specs),
    message:
        "build library {wildcards.library}"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} build_library -- --library {wildcards.library} --spec {params.spec:q}"


rule servers:
    """Build or find the servers that the configuration's stores need."""
    input:
        modules="envs/servers/go.sum",
        azurite="envs/servers/azurite/package-lock.json",
    output:
        "results/{run}/environments/servers.json",
    log:
        "results/{run}/logs/environments/servers.log",
    priority: 1
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    params:
        need=stores.list_needed_servers(CONFIG["stores"].values()),
    message:
        "build servers"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} build_servers -- --need {params.need}"
