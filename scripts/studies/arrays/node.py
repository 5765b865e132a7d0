"""Runs one node of HSDS as its own programs do, on the loopback: those listen on all interfaces."""

from functools import partial

from hsds import config, datanode, servicenode


def main() -> None:
    """Run the node that the command line asks for (`--node_type`), until it is ended."""
    node = {"sn": servicenode, "dn": datanode}[config.getCmdLineArg("node_type")]
    node.run_app = partial(node.run_app, host="127.0.0.1")
    node.main()


if __name__ == "__main__":
    main()
