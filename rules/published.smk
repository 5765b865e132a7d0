"""Published studies: their data -> tables -> the study's own notebook, and an audit of what they claim.

Reads:  config/published.yaml, results/published/{study}/*.csv, audit/; raw files from a folder (`published_data`) or the network
Writes: results/published/{study}/tables/; reports/published/{study}.html and {study}-audit.html, .md, _files/, index.html
"""


rule published_tables:
    """Make of what a study has published the tables that its notebook reads, and compute what it claims."""
    input:
        sources="config/published.yaml",
        printed=printed_of,
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
        "program published.tables --study {wildcards.published} --sources {input.sources} --raw={params.raw:q}"
        " --printed results/published/{wildcards.published} --out results/published/{wildcards.published}/tables 2> {log}"


rule published_report:
    """Execute a study's notebook on what was published: the same page as of a run of one's own."""
    input:
        facts=rules.published_tables.output.facts,
        notebook="notebooks/{published}.ipynb",
    output:
        html="reports/published/{published}.html",
        markdown="reports/published/{published}.md",
        figures=directory("reports/published/{published}_files"),
    log:
        "results/published/{published}/tables/report.log",
    conda:
        "../envs/workflow.yaml"
    message:
        "report {wildcards.published} as published"
    shell:
        "program report --notebook {input.notebook} --tables results/published/{wildcards.published}/tables"
        " --facts {input.facts} --out {output.html} 2> {log}"


use rule published_report as published_audit with:
    """Say which claims of a study its data bear out."""
    input:
        facts=rules.published_tables.output.facts,
        notebook="notebooks/audit.ipynb",
    output:
        html="reports/published/{published}-audit.html",
        markdown="reports/published/{published}-audit.md",
        answers="reports/published/{published}-audit_answers.json",
        figures=directory("reports/published/{published}-audit_files"),
    log:
        "results/published/{published}/tables/audit.log",
    message:
        "audit {wildcards.published}"


rule published_index:
    """Write the first page of the published studies: what their audits say."""
    input:
        notebook="notebooks/index.ipynb",
        answers=expand("reports/published/{published}-audit_answers.json", published=PUBLISHED),
        audits=expand("reports/published/{published}-audit.html", published=PUBLISHED),
        pages=expand("reports/published/{published}.html", published=PUBLISHED),
    output:
        html="reports/published/index.html",
        markdown="reports/published/index.md",
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
