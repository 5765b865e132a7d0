"""Checks for the arrays study: the settings in force and the number of clients."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(10)
def check_settings(effective: dict, label: dict) -> Iterator[str]:
    """Check that the settings read back match the cell's label."""
    for name, level in label.items():
        if effective[name] != level:
            yield f"expected {name} {level}, got {effective[name]}"


@rule(9)
def check_clients(effective: dict) -> Iterator[str]:
    """Check that the requested number of clients took part."""
    if effective["clients"] != effective["clients_asked"]:
        yield f"expected {effective['clients_asked']} clients, got {effective['clients']}"
