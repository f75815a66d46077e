"""Programs show that they live, and their data folder remembers how far the database had come."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from sends import tasks
from sends.conf import conf
from sends.lifecycle import beats, folder
from sends.models import Beat, Installation, Program, database_now, new_id
from tests.lifecycle.races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    def forget() -> None:
        for path in (conf.data_dir / "installation.json", *conf.data_dir.glob("drain-*.lock")):
            path.unlink(missing_ok=True)

    forget()
    yield
    forget()


def test_a_program_has_one_row_with_both_clocks() -> None:
    for _ in range(2):
        beats.beat(Program.WEB)
    beat = Beat.objects.get()
    assert (beat.program, beat.folder, beat.url) == (Program.WEB, str(conf.data_dir), conf.url)
    assert abs(beat.own_clock - beat.at) < timedelta(minutes=1)


def test_each_beat_counts_and_the_folder_never_knows_more_than_the_database() -> None:
    before = Installation.objects.get().beats

    at_once(*[lambda: beats.beat(Program.WEB)] * 4, *[lambda: beats.beat(Program.WORKER)] * 4)

    installation = Installation.objects.get()
    memory = folder.recall()
    assert installation.beats == before + 8
    assert memory is not None
    assert memory.installation == installation.pk
    assert before < memory.beats <= installation.beats
    assert Beat.objects.count() == 2


def test_programs_that_were_not_heard_of_for_a_day_are_forgotten() -> None:
    beats.beat(Program.WORKER)
    Beat.objects.update(host="gone", at=database_now() - timedelta(days=2))
    beats.beat(Program.WORKER)
    assert not Beat.objects.filter(host="gone").exists()


def test_a_workers_sweep_shows_that_it_lives() -> None:
    tasks.sweep()
    assert Beat.objects.get().program == Program.WORKER


def test_a_drain_remembers_the_last_attempt_that_it_opened() -> None:
    first, last = new_id(), new_id()
    with folder.open_slot(0) as slot:
        assert folder.last_attempts() == []
        folder.note_attempt(slot, first)
        folder.note_attempt(slot, last)
    with folder.open_slot(0):  # taken anew: nothing is forgotten
        found: list[UUID] = folder.last_attempts()
    assert found == [last]
