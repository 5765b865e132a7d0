"""Checks of arrays: settings as read back, and clients."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(10)
def check_settings(effective: dict, label: dict) -> Iterator[str]:
    """Check that the settings in force match the label."""
    for name, level in label.items():
        if effective[name] != level:
            yield f"expected {name} {level}, got {effective[name]}"


@rule(9)
def check_clients(effective: dict) -> Iterator[str]:
    """Check that as many clients took part as requested."""
    if effective["clients"] != effective["clients_asked"]:
        yield f"expected {effective['clients_asked']} clients, got {effective['clients']}"
