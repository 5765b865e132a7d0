"""Provenance: the code that a record names."""

import pytest

from sbench.probe import provenance


def test_modules_of_a_folder_are_listed_and_a_folder_that_is_missing_is_an_error():
    assert "sbench.probe.page_cache" in provenance.list_package_modules("probe", "drivers")
    with pytest.raises(FileNotFoundError, match="no_such_folder"):
        provenance.list_package_modules("probe", "no_such_folder")
