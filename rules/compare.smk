"""Any runs beside each other, as `comparison` of the configuration names them.

Reads:  results/<run>/<study>/records.csv and facts.json, archives, baselines
Writes: results/compare/, reports/compare/
"""


rule compare:
    """Compare runs: reports/compare/index.html; it fails where something of `fail_on` is so."""

    # No output is named: Snakemake would remove the report of a comparison that fails.
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
