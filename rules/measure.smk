"""The matrix of a study, the rule that measures a cell once, and the looks, which order further blocks.

Reads:  results/{run}/{study}/ready.json, blocks.json, environments, data in their stores
Writes: results/{run}/{study}/matrix.csv, plan.json, records/{cell}/repeat={repeat}.json, looks/{number}.json
"""


rule plan:
    """Expand the matrix: the cells, their order, and omitted combinations with the reasons."""
    output:
        plan="results/{run}/{study}/plan.json",
        matrix="results/{run}/{study}/matrix.csv",
    log:
        "results/{run}/logs/{study}/plan.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        config=CALL.get_config,
    message:
        "plan {wildcards.study}"
    shell:
        "program plan --config {params.config:q} --study {wildcards.study} --matrix {output.matrix} --out {output.plan} 2> {log}"


rule measure:
    """Measure a cell once, alone on the machine."""
    input:
        unpack(CALL.list_needs),
        ready=ancient("results/{run}/{study}/ready.json"),
        plan=ancient("results/{run}/{study}/plan.json"),
    output:
        # Not removed before the step, which keeps an existing record: a missing input starts this rule, too.
        update("results/{run}/{study}/records/{cell}/repeat={repeat}.json"),
    log:
        "results/{run}/logs/{study}/{cell}/repeat={repeat}.log",
    priority: CALL.get_priority
    retries: 1
    conda:
        get_conda_of_study
    threads: workflow.cores
    resources:
        attempt=get_attempt,
        runtime=CALL.get_runtime,
        nodes=CALL.get_nodes,
        tasks=CALL.get_nodes,
        mpi=CALL.get_mpi,
    message:
        "measure {wildcards.study}  {wildcards.cell}  repeat {wildcards.repeat}"
    shell:
        "program step measure --plan {input.plan} --cell {wildcards.cell} --repeat {wildcards.repeat}"
        " --environment {input.environment} --provision {input.provision} --blocks results/{wildcards.run}/{wildcards.study}/blocks.json --servers results/{wildcards.run}/environments/servers.json --out {output} --log {log} --attempt {resources.attempt}"


checkpoint look:
    """Order the blocks that are missing, since blocks are never completed later, or that open comparisons need."""
    input:
        # A later call judges the records of all calls; only what this call measures precedes its looks.
        ancient(CALL.list_looked_records),
    output:
        "results/{run}/{study}/looks/{number}.json",
    log:
        "results/{run}/logs/{study}/look={number}.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        config=CALL.dump_config(),
    message:
        "look {wildcards.number} at {wildcards.study}"
    shell:
        "program look --config {params.config:q} --study {wildcards.study} --number {wildcards.number} --out {output} 2> {log}"
