"""Run one HSDS node on the loopback interface; the programs that come with HSDS listen on all interfaces."""

import argparse
import os
import sys
from functools import partial


def main() -> None:
    """Run the node of the type given by `--node_type` until the process is terminated."""
    argparse.ArgumentParser(description=__doc__).parse_known_args()
    # All users of the machine can read a command line, which HSDS takes it from, but not an environment.
    sys.argv.append(f"--hs_password={os.environ['HS_PASSWORD']}")
    # Imported here because only some libraries under test contain HSDS, and because it parses sys.argv when imported.
    from hsds import config, datanode, servicenode

    node = {"sn": servicenode, "dn": datanode}[config.getCmdLineArg("node_type")]
    node.run_app = partial(node.run_app, host="127.0.0.1")
    node.main()


if __name__ == "__main__":
    main()
