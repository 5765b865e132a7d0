"""Report fio results from other machines: JSON or human-readable output, archives, folders, or histograms of etcd."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("files", nargs="*", metavar="FILE", help="files, archives and folders with results")
    parser.add_path("--config", default="config/import.yaml", help="the configuration (default: config/import.yaml)")
    parser.add_argument("--name", default="", metavar="RUN", help="name of the run instead of the configured name")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_rest("options of Snakemake")


def start(given: argparse.Namespace) -> int:
    """Replace this process with Snakemake."""
    from sbench.measure.run_plan import make_plan
    from sbench.measure.start import start_run

    return start_run(make_plan(given.config, given.name, imports=given.files), "", given.yes, given.after)
