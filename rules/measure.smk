"""The matrix of a study, and the one rule that measures: a cell, once.

Reads:  results/{run}/{study}/ready.json, environments, data in their stores
Writes: results/{run}/{study}/matrix.csv, plan.json, records/{cell}/repeat={repeat}.json
"""


rule plan:
    """Expand the matrix: the cells, their order, what is left out and why."""
    output:
        plan="results/{run}/{study}/plan.json",
        matrix="results/{run}/{study}/matrix.csv",
    log:
        "results/{run}/logs/{study}/plan.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        config=study_config,
    message:
        "plan {wildcards.study}"
    shell:
        "program plan --config {params.config:q} --study {wildcards.study} --matrix {output.matrix} --out {output.plan} 2> {log}"


rule measure:
    """Measure one cell once, alone on the machine."""
    input:
        ready=ancient("results/{run}/{study}/ready.json"),
        plan=ancient("results/{run}/{study}/plan.json"),
        environment=ancient(environments_of),
        provision=ancient(provisions_of),
    output:
        # Not removed before the step, which leaves a record that is there: an input that is gone starts this rule too.
        update("results/{run}/{study}/records/{cell}/repeat={repeat}.json"),
    log:
        "results/{run}/logs/{study}/{cell}/repeat={repeat}.log",
    priority: cell_priority
    retries: 1
    conda:
        conda_of_study
    threads: workflow.cores
    resources:
        attempt=attempt_of,
    params:
        repeats=repeats_of,
    message:
        "measure {wildcards.study}  {wildcards.cell}  repeat {wildcards.repeat}/{params.repeats}"
    shell:
        "program step measure --plan {input.plan} --cell {wildcards.cell} --repeat {wildcards.repeat}"
        " --environment {input.environment} --provision {input.provision} --servers results/{wildcards.run}/environments/servers.json --out {output} --log {log} --attempt {resources.attempt}"
