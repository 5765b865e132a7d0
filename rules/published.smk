"""Published studies: data -> tables -> the notebook of the study, and an audit of the claims.

Reads:  config/published.yaml, results/published/{study}/*.csv, audit/, the study's published_claims.py; raw files from a
        folder (`published_data`) or the network
Writes: results/published/{study}/tables/; reports/published/ (of a part of the data: published-partial/) {study}.html and
        {study}-audit.html, .md, _files/, index.html
"""


rule published_tables:
    """Make the tables for a study's notebook from its published data, and compute its claims."""
    input:
        sources="config/published.yaml",
        printed=list_printed,
        claims="scripts/sbench/studies/{published}/published_claims.py",
        machines="config/facts/machines.yaml",
    output:
        facts="results/published/{published}/tables/facts.json",
    log:
        "results/published/{published}/tables/log",
    conda:
        "../envs/workflow.yaml"
    params:
        raw=CONFIG.get("published_data", ""),
    message:
        "tables of {wildcards.published} as published"
    shell:
        "program module sbench.court.tables --study {wildcards.published} --sources {input.sources} --raw={params.raw:q}"
        " --printed results/published/{wildcards.published} --out results/published/{wildcards.published}/tables 2> {log}"


rule published_complete:
    """Stop before the first page if raw data are missing, unless `published_partial` is set."""
    input:
        facts=expand("results/published/{published}/tables/facts.json", published=PUBLISHED),
    output:
        absent="results/published/absent.json",
    log:
        "results/published/absent.log",
    conda:
        "../envs/workflow.yaml"
    params:
        partial="--partial" if CONFIG.get("published_partial") else "",
    message:
        "look for the raw data of the published studies"
    shell:
        "program module sbench.court.complete --facts {input.facts} {params.partial} --out {output.absent} 2> {log}"


rule published_report:
    """Execute a study's notebook on its published data: the same page as for a run."""
    input:
        absent=rules.published_complete.output.absent,
        facts=rules.published_tables.output.facts,
        notebook="notebooks/{published}.ipynb",
    output:
        html=f"{PAGES}/{{published}}.html",
        markdown=f"{PAGES}/{{published}}.md",
        figures=directory(f"{PAGES}/{{published}}_files"),
    log:
        "results/published/{published}/tables/report.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "report {wildcards.published} as published"
    shell:
        "program report --notebook {input.notebook} --tables $(dirname {input.facts})"
        " --facts {input.facts} --out {output.html} 2> {log}"


use rule published_report as published_audit with:
    """Audit the claims of a study against its data."""
    input:
        absent=rules.published_complete.output.absent,
        facts=rules.published_tables.output.facts,
        notebook="notebooks/audit.ipynb",
    output:
        html=f"{PAGES}/{{published}}-audit.html",
        markdown=f"{PAGES}/{{published}}-audit.md",
        answers=f"{PAGES}/{{published}}-audit_answers.json",
        figures=directory(f"{PAGES}/{{published}}-audit_files"),
    log:
        "results/published/{published}/tables/audit.log",
    message:
        "audit {wildcards.published}"


rule published_index:
    """Write the first page of the published studies, with the results of their audits."""
    input:
        notebook="notebooks/index.ipynb",
        answers=expand(f"{PAGES}/{{published}}-audit_answers.json", published=PUBLISHED),
        audits=expand(f"{PAGES}/{{published}}-audit.html", published=PUBLISHED),
        pages=expand(f"{PAGES}/{{published}}.html", published=PUBLISHED),
    output:
        html=f"{PAGES}/index.html",
        markdown=f"{PAGES}/index.md",
    log:
        "results/published/index.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "write the first page of the published studies"
    shell:
        "program report --notebook {input.notebook} --answers {input.answers} --out {output.html} 2> {log}"


rule published:
    """The published studies, regenerated and audited: reports/published/index.html."""
    input:
        rules.published_index.output,
