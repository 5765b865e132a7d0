"""The study `volumes`: import of fio's results; all other rules are generic.

Reads:  the files that `imports` names
Writes: results/{run}/volumes/imported.json
"""


rule import_fio:
    """Read fio's results from elsewhere; other files are reported and left out."""
    input:
        CALL.sources.get("volumes", []),
    output:
        "results/{run}/volumes/imported.json",
    log:
        "results/{run}/logs/volumes/import.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    params:
        imports=CALL.dump_imports("volumes"),
    message:
        "import results of fio"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} sbench.studies.volumes.import_fio -- --imports {params.imports:q} --run {wildcards.run}"
