"""Report results of fio from elsewhere: its JSON or its output for people, archives, folders, histograms of etcd."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_path("files", nargs="*", metavar="FILE", help="files, archives and folders with results")
    parser.add_path("--config", default="config/import.yaml", help="the configuration (default: config/import.yaml)")
    parser.add_argument("--name", default="", metavar="RUN", help="name of the run instead of the configured name")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_rest("options of Snakemake")


def start(given: argparse.Namespace) -> int:
    """Replace this process by Snakemake."""
    from sbench.measure import launch

    return launch.start_run(launch.make_plan(given.config, given.name, imports=given.files), "", given.yes, given.after)
