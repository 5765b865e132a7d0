"""Run a module as a program without installing the package: module.py sbench.files.forecast …."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
