"""Which adapter serves a provider, by name."""

from collections.abc import Mapping

from sends.providers.adapter import Adapter, UnknownProvider
from sends.providers.sandbox import Sandbox

ADAPTERS: Mapping[str, Adapter] = {adapter.name: adapter for adapter in (Sandbox(),)}


def adapter_for(name: str) -> Adapter:
    try:
        return ADAPTERS[name]
    except KeyError:
        known = ", ".join(sorted(ADAPTERS))
        raise UnknownProvider(f"there is no provider {name!r}; these are known: {known}") from None
