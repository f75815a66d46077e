"""What django-q2 runs, and what it learns of a failure."""

import pytest

from sends import tasks
from sends.lifecycle import worker


def test_django_q2_learns_nothing_of_a_failure_but_its_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("about someone@example.org")

    monkeypatch.setattr(worker, "drain", fail)
    with pytest.raises(tasks.TaskFailed) as failed:
        tasks.drain()

    assert str(failed.value) == "ValueError"
    assert failed.value.__suppress_context__
    (record,) = caplog.records
    assert (record.name, record.task) == ("sends.task", "drain")
