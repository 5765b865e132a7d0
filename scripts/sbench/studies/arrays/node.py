"""Runs one node of HSDS as its own programs do, on the loopback: those listen on all interfaces."""

import argparse
from functools import partial


def main() -> None:
    """Run the node that the command line names (`--node_type`), until it is ended."""
    argparse.ArgumentParser(description=__doc__).parse_known_args()
    # Imported here: only a library with HSDS has it, and its import reads the command line.
    from hsds import config, datanode, servicenode

    node = {"sn": servicenode, "dn": datanode}[config.getCmdLineArg("node_type")]
    node.run_app = partial(node.run_app, host="127.0.0.1")
    node.main()


if __name__ == "__main__":
    main()
