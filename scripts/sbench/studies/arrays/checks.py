"""Checks for the arrays study: the number of clients."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(9)
def check_clients(effective: dict) -> Iterator[str]:
    """Check that the requested number of clients took part."""
    if effective["clients"] != effective["clients_asked"]:
        yield f"expected {effective['clients_asked']} clients, got {effective['clients']}"
