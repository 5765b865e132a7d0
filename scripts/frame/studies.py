"""What the workflow must know of a study beside its schema: a module a study, each with the same functions.

mistakes(config)                what is wrong with the study's section and the schema cannot see (an iterator)
impossible(levels, config)      reasons why a combination of levels cannot exist (an iterator, empty where it can)
complete(settings, config)      a cell's settings with what only the study knows; all that is in them makes the cell
estimate(settings)              {"requests", "bytes", "seconds"} of one record, before anything is known
disk_bytes(settings)            bytes that a record needs for itself where it measures, while it measures
data_bytes(data)                bytes of a data set that is generated
made_bytes(data)                bytes of them in results/data, 0 where they are made on their way into stores
failures(record, settings, manifest)    reasons why the cell was not measured as its label says: it has failed
faults(record, settings)        reasons why a record that was measured is not valid
contest(levels)                 what cells that are compared each with each have in common, None for a cell that is
                                compared only as `compare` asks (studies whose tables are those of `scripts.tables`)
"""

import importlib
from types import ModuleType


def of(study: str) -> ModuleType:
    """Return the module of a study."""
    return importlib.import_module(f"scripts.studies.{study}.study")
