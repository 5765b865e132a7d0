"""Records -> tables -> notebook -> HTML and Markdown, for any study; and the check for failures.

Reads:  results/{run}/{study}/records/, matrix.csv, plan.json; results/published/ if a study names a reference
Writes: results/{run}/{study}/samples.csv, cells.csv, verdicts.csv, records.csv, facts.json, and special tables of a study
        reports/{run}/{study}.html, {study}.md, {study}_files/, extra/, index.html; results/{run}/export/, extra/, checked.json
"""


rule gather:
    """Merge the records of a study into tables, judge the comparisons, and gather facts for the report."""
    input:
        records=CALL.list_all_records,
        imported=CALL.list_imported,
        matrix="results/{run}/{study}/matrix.csv",
        plan="results/{run}/{study}/plan.json",
    output:
        samples="results/{run}/{study}/samples.csv",
        cells="results/{run}/{study}/cells.csv",
        verdicts="results/{run}/{study}/verdicts.csv",
        records="results/{run}/{study}/records.csv",
        facts="results/{run}/{study}/facts.json",
    log:
        "results/{run}/logs/{study}/gather.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    params:
        config=CALL.get_config,
    message:
        "merge and judge {wildcards.study}"
    shell:
        "program gather --config {params.config:q} --study {wildcards.study}"
        " --results results/{wildcards.run} --imported {input.imported} 2> {log}"


rule report:
    """Execute a study's notebook on its tables; one page of HTML, the same as Markdown."""
    input:
        *rules.gather.output,
        notebook="notebooks/{study}.ipynb",
        matrix="results/{run}/{study}/matrix.csv",
        facts=rules.gather.output.facts,
        references=CALL.list_references,
    output:
        html=report(
            "reports/{run}/{study}.html",
            caption="captions/page.rst",
            category="{study}",
            labels={"result": "page", "as": "html"},
        ),
        markdown="reports/{run}/{study}.md",
        answers="reports/{run}/{study}_answers.json",
        figures=report(
            directory("reports/{run}/{study}_files"),
            patterns=["{result}.{kind}"],
            caption="captions/figure.rst",
            category="{study}",
            labels={"result": "{result}", "as": "{kind}"},
        ),
    log:
        "results/{run}/logs/{study}/report.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    message:
        "report {wildcards.study}"
    shell:
        "program report --notebook {input.notebook}"
        " --tables results/{wildcards.run}/{wildcards.study} --facts {input.facts} --out {output.html} 2> {log}"


rule export:
    """Write all observations of the run as a long table for the user's notebooks."""
    input:
        expand("results/{{run}}/{study}/facts.json", study=STUDIES),
    output:
        "results/{run}/export/table.json",
    log:
        "results/{run}/logs/export.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    message:
        "write the long table"
    shell:
        "program step run --out {output} --log {log} --attempt {resources.attempt} export -- --results results/{wildcards.run}"


rule extra:
    """Execute a notebook of the user on the long table."""
    input:
        notebook="notebooks/extra/{extra}.ipynb",
        table="results/{run}/export/table.json",
    output:
        "results/{run}/extra/{extra}.json",
    log:
        "results/{run}/logs/extra/{extra}.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    resources:
        attempt=get_attempt,
    message:
        "report notebooks/extra/{wildcards.extra}.ipynb"
    shell:
        "program step run --needs {input.table} --out {output:q} --log {log:q} --attempt {resources.attempt} extra -- --notebook {input.notebook:q}"
        " --table results/{wildcards.run}/export/{wildcards.run}.parquet --page reports/{wildcards.run}/extra/{wildcards.extra:q}.html"


rule index:
    """Write the first page: the answers of all studies in words."""
    input:
        notebook="notebooks/index.ipynb",
        extra=expand("results/{{run}}/extra/{extra}.json", extra=EXTRA),
        answers=expand("reports/{{run}}/{study}_answers.json", study=STUDIES),
        pages=expand("reports/{{run}}/{study}.html", study=STUDIES),
    output:
        html=report(
            "reports/{run}/index.html",
            caption="captions/index.rst",
            category="all studies",
            labels={"result": "page", "as": "html"},
        ),
        markdown="reports/{run}/index.md",
    log:
        "results/{run}/logs/index.log",
    retries: 1
    conda:
        "../envs/workflow.yaml"
    message:
        "write the first page"
    shell:
        "program report --notebook {input.notebook} --answers {input.answers} --extra {input.extra:q} --out {output.html} 2> {log}"


rule check:
    """List failures and missing records, and exit with status 1 if another call can replace them."""
    input:
        "reports/{run}/index.html",
    output:
        "results/{run}/checked.json",
    log:
        "results/{run}/logs/check.log",
    conda:
        "../envs/workflow.yaml"
    params:
        config=CALL.dump_config(),
    message:
        "look for failures"
    shell:
        "program check --config {params.config:q} --reports reports/{wildcards.run} --log {log} --out {output}"
