"""Write the blocks that a call appends to a study to replace its failed and invalid records."""

import argparse
import sys
from pathlib import Path

from sbench.design import blocks, matrix
from sbench.design import study as studies
from sbench.probe.program import parse_json_object, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Write {"status", "blocks", "draw"}: the numbers of at most `extra_blocks` blocks, and of their set of orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=parse_json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    arguments = parser.parse_args(argv)
    config, study = arguments.config, studies.get_study(arguments.study)
    cells = matrix.expand_matrix(config, study.name)[0]
    sessions = blocks.read_measured_blocks(config, cells)
    # Skipped cells need artefacts that this call could not make.
    tried = [cell for cell in matrix.select_cells(cells, config["only"]) if cell.name in sessions]
    compare, seed = study.get_section(config)["compare"], blocks.get_order_seed(config, study.name)
    lacking = blocks.count_lacking_blocks(tried, compare, sessions, study.count_repeats(config))
    in_vain = config["again"] or len(blocks.list_failing_cells(tried, sessions)) == len(tried)
    # Open blocks may have records without a measurement: records of skipped cells.
    opened = blocks.read_blocks(arguments.out.with_name("blocks.json"))
    taken = blocks.list_begun_blocks(sessions).union(opened.blocks)
    appended = blocks.list_next_blocks(taken, 0 if in_vain else min(lacking, config["extra_blocks"]))
    draw = None if opened.draw is None else blocks.choose_draw(tried, compare, seed, appended)
    if appended:
        print(f"{study.name}: appended blocks {appended}, as {lacking} are missing", file=sys.stderr)
    write_json(arguments.out, {"status": "done", "blocks": appended, "draw": draw})
    return 0


if __name__ == "__main__":
    run_main(main)
