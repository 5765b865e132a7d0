"""Published claims that are tested here: libraries -> runs of the arms -> a page for each claim, and their index.

Reads:  config/claims/{claim}.yaml, scripts/sbench/court/tested/, of claims with cells results/claim-{claim}/
Writes: results/claims/{claim}/runs.csv, traffic.json, facts.json; reports/claims/{claim}.html, .md, _files/, index.html
"""


rule claim_library:
    """Build or find a library of a claim."""
    input:
        claim="config/claims/{claim}.yaml",
        sources="envs/sources.yaml",
    output:
        "results/claims/{claim}/environments/{version}.json",
    log:
        "results/claims/{claim}/logs/{version}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        spec=tested_claim.format_spec,
    message:
        "build library {wildcards.version}"
    shell:
        "program step run --out {output} --log {log} --attempt 1 build_library -- --library {wildcards.version} --spec {params.spec:q}"


rule claim_runs:
    """Measure the arms of a claim, alone on the machine."""
    input:
        claim="config/claims/{claim}.yaml",
        code=tested_claim.get_module,
        measured=tested_claim.list_measured,
    output:
        runs="results/claims/{claim}/runs.csv",
        traffic="results/claims/{claim}/traffic.json",
        facts="results/claims/{claim}/facts.json",
    log:
        "results/claims/{claim}/logs/runs.log",
    conda:
        "../envs/workflow.yaml"
    threads: workflow.cores
    message:
        "measure claim {wildcards.claim}"
    shell:
        "program module sbench.court.measure_claim --claim {wildcards.claim} --measured {input.measured}"
        " --out results/claims/{wildcards.claim} 2> {log}"


use rule published_report as claim_report with:
    """Judge a claim, and write its page."""
    input:
        *rules.claim_runs.output,
        facts=rules.claim_runs.output.facts,
        notebook="notebooks/claim.ipynb",
    output:
        html="reports/claims/{claim}.html",
        markdown="reports/claims/{claim}.md",
        answers="reports/claims/{claim}_answers.json",
        figures=directory("reports/claims/{claim}_files"),
    log:
        "results/claims/{claim}/logs/report.log",
    message:
        "judge claim {wildcards.claim}"


use rule published_index as claim_index with:
    """Write the index of the claims, with a verdict for each."""
    input:
        notebook="notebooks/claims.ipynb",
        answers=expand("reports/claims/{claim}_answers.json", claim=CLAIMS),
        pages=expand("reports/claims/{claim}.html", claim=CLAIMS),
    output:
        html="reports/claims/index.html",
        markdown="reports/claims/index.md",
        figures=directory("reports/claims/index_files"),
    log:
        "results/claims/index.log",
    message:
        "write the index of the claims"


rule claims:
    """All claims that are tested here: reports/claims/index.html."""
    input:
        rules.claim_index.output,
