"""An account as the providers' floor knows it: its secrets resolved, its contract in force."""

from sends.models import Account, Sender
from sends.providers.adapter import AccountFacts, SenderFacts
from sends.providers.credentials import resolve
from sends.providers.registry import adapter_for
from sends.rules.contracts import Contract


def contract_of(account: Account) -> Contract:
    """What the adapter verified, made stricter where an operator said so. Needs no secret."""
    return adapter_for(account.provider).contract_for(_facts(account, credential=""))


def facts_of(account: Account) -> AccountFacts:
    """Everything an adapter needs to send. Raises CredentialError when a secret cannot be read."""
    return _facts(account, credential=resolve(account.credential))


def sender_facts(sender: Sender) -> SenderFacts:
    return SenderFacts(address=sender.address, name=sender.name, options=sender.options)


def _facts(account: Account, *, credential: str) -> AccountFacts:
    return AccountFacts(
        provider=account.provider,
        base_url=account.base_url,
        credential=credential,
        scope=account.scope,
        connect_timeout=account.connect_timeout,
        request_deadline=account.request_deadline,
        options=account.options,
        replay_window=account.replay_window,
        no_replay=account.no_replay,
    )
