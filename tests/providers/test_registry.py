"""Names lead to adapters."""

import pytest

from sends.providers.adapter import UnknownProvider
from sends.providers.registry import ADAPTERS, adapter_for


def test_a_name_leads_to_its_adapter() -> None:
    assert {name: adapter_for(name).name for name in ADAPTERS} == {name: name for name in ADAPTERS}


def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UnknownProvider) as caught:
        adapter_for("pigeon")
    assert "'pigeon'" in str(caught.value)
    assert [name for name in ADAPTERS if name not in str(caught.value)] == []
