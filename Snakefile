"""Measures how fast scientific data are read and written, and decides whether a difference is real.

snakemake --cores 32 --configfile config/ec2.yaml    measures and reports a configuration
snakemake --cores 2                                  the same with config/config.yaml
"""

from snakemake.utils import min_version

min_version("9.27")

if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


report: "rules/captions/run.rst"


include: "rules/common.smk"
include: "rules/environments.smk"
include: "rules/provision.smk"
include: "rules/measure.smk"
include: "rules/volumes.smk"
include: "rules/report.smk"
include: "rules/published.smk"
include: "rules/claims.smk"
include: "rules/compare.smk"


# On a cluster these rules run on the machine of Snakemake: they are short, or need a network. Others read or write data.
localrules:
    all,
    check,
    claim_index,
    claim_library,
    claim_report,
    claims,
    compare,
    environment,
    export,
    extra,
    gather,
    import_fio,
    index,
    look,
    plan,
    provided,
    published,
    published_audit,
    published_index,
    published_report,
    published_tables,
    report,
    servers,


rule all:
    """Make the report of each study, and list failures."""
    default_target: True
    input:
        "results/{run}/checked.json".format(run=RUN),
        # Inputs here, too: a removed page must be made again, and a record that was moved aside measured again, even if
        # the files made from them exist.
        "reports/{run}/index.html".format(run=RUN),
        expand("reports/{run}/{study}.html", run=RUN, study=STUDIES),
        expand("results/{run}/{study}/facts.json", run=RUN, study=STUDIES),
        CALL.list_gathered_records,
        CALL.list_ready,
