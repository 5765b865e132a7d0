"""Comparison of any runs, which `comparison` of the configuration names.

Reads:  results/<run>/<study>/records.csv and facts.json, archives, baselines
Writes: results/compare/, reports/compare/
"""


rule compare:
    """Compare runs: reports/compare/index.html; fails if an outcome of `fail_on` occurs."""

    # The rule has no output, since Snakemake would remove the report of a failed comparison.
    log:
        "results/compare.log",
    conda:
        "../envs/workflow.yaml"
    params:
        a=COMPARISON["a"],
        b=COMPARISON["b"],
        paired="--paired" if COMPARISON["paired"] else "",
        rules=", ".join(COMPARISON["fail_on"]),
    message:
        "compare runs"
    shell:
        "program module sbench.cli compare {params.a:q} --with {params.b:q} {params.paired} --fail-on={params.rules:q} 2> {log}"
