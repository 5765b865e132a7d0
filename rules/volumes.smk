"""The volumes study: results of fio from elsewhere, and tables of latencies instead of medians of blocks.

Reads:  results/{run}/volumes/records/, matrix.csv, plan.json; the files that `imports` names
Writes: results/{run}/volumes/imported.json, samples.csv, cells.csv, verdicts.csv and the other tables of the study
"""


rule import_fio:
    """Read fio's results from elsewhere; files that are none are named and left out."""
    input:
        SOURCES.get("volumes", []),
    output:
        "results/{run}/volumes/imported.json",
    log:
        "results/{run}/logs/volumes/import.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=attempt_of,
    params:
        python=PYTHON,
        imports=imports_of("volumes"),
    message:
        "import results of fio"
    shell:
        "exec {params.python:q} -sE -m scripts.step run --out {output} --log {log} --attempt {resources.attempt} studies.volumes.import_fio -- --imports {params.imports:q} --run {wildcards.run}"


rule tables_of_volumes:
    """Merge latencies and judge them against their limits; change points, credits and comparisons of volumes."""
    input:
        records=records_of,
        imported=imported_of,
        matrix="results/{run}/volumes/matrix.csv",
    output:
        samples="results/{run}/{study}/samples.csv",
        cells="results/{run}/{study}/cells.csv",
        verdicts="results/{run}/{study}/verdicts.csv",
        segments="results/{run}/{study}/segments.csv",
        percentiles="results/{run}/{study}/percentiles.csv",
        comparisons="results/{run}/{study}/comparisons.csv",
        credits="results/{run}/{study}/credits.csv",
        collapses="results/{run}/{study}/collapses.csv",
    log:
        "results/{run}/logs/{study}/tables.log",
    wildcard_constraints:
        study="volumes",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        python=PYTHON,
        study=volumes_settings,
    message:
        "merge and judge {wildcards.study}"
    shell:
        "exec {params.python:q} -sE -m scripts.studies.volumes.gather --run {wildcards.run} --config-study {params.study:q} --matrix {input.matrix}"
        " --imported {input.imported} --records results/{wildcards.run}/volumes/records --out results/{wildcards.run}/volumes 2> {log}"
