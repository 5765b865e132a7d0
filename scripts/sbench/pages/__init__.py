"""Build a study's report pages from its tables and facts.

Terms in this package: a cell is a combination of factor levels that is measured once per block, with one record per
measurement. A comparison is between two cells, the contender and the baseline, also called arms. A storage location
(`place` in identifiers) is a store with its driver and the state of its cache. A context is the combination of all
other levels at which arms are compared.
"""
