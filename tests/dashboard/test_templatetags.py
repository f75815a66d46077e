"""Icons, chips, seals, moments and spans of time, as every screen shows them."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.template import Context, Template
from django.utils import timezone

from sends.rules.statuses import DeliveryState, Status
from sends.templatetags.outbox import LOOKS, in_words

NOW = datetime(2026, 10, 14, 12, 48, 7, 129_000, tzinfo=UTC)
DIGEST = "7f3a91c4" + "5e" * 28
SPRITE = settings.BASE_DIR / "static/sends/icons.svg"


def show(source: str, **context: object) -> str:
    """What a piece of template becomes at NOW, for a reader in Paris."""
    with timezone.override("Europe/Paris"):
        return Template("{% load outbox %}" + source).render(Context({"now": NOW, **context}))


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html).strip()


# States


@pytest.mark.parametrize("state", [*Status, *DeliveryState])
def test_every_status_and_delivery_state_has_a_chip_with_its_word_and_its_sentence(state):
    html = show("{% chip state %}", state=state)
    assert text_of(html) == state.label
    assert 'title="' in html


def test_states_differ_by_shape_and_not_by_colour_alone():
    same = {("check", "submitted"), ("check", "accepted"), ("done", "done"), ("done", "finished")}
    drawn = [look.icon for state, look in LOOKS.items() if (look.icon, str(state)) not in same]
    assert len(drawn) == len(set(drawn))


def test_a_chip_can_say_it_more_exactly_and_without_a_ground():
    html = show("{% chip 'dead_letter' '6 dead letters' plain=True %}")
    assert text_of(html) == "6 dead letters"
    assert 'class="chip t-bad plain"' in html


def test_a_chip_escapes_its_words():
    assert "<b>" not in show("{% chip 'done' words %}", words="<b>")


def test_a_state_that_does_not_exist_is_an_error_and_not_an_empty_chip():
    with pytest.raises(KeyError):
        show("{% chip 'sent' %}")


# Icons


def test_every_icon_that_is_asked_for_is_in_the_sprite():
    drawn = {symbol.get("id") for symbol in ElementTree.parse(SPRITE).getroot()}
    asked = {look.icon for look in LOOKS.values()}
    for path in (settings.BASE_DIR / "templates").rglob("*.html"):
        asked.update(re.findall(r'(?:{% icon |icon_name=)"([^"]+)"', path.read_text()))
    assert asked <= drawn


def test_an_icon_is_hidden_from_those_who_hear_the_page():
    assert show("{% icon 'alert' %}") == (
        '<svg class="i" aria-hidden="true"><use href="/static/sends/icons.svg#alert"/></svg>'
    )


# Seals


def test_a_seal_draws_two_bits_a_bar_and_repeats_them_as_digits():
    html = show("{% seal digest %}", digest=DIGEST)
    path = re.search(r' d="([^"]+)"', html)
    assert path is not None
    bars = re.findall(r"M(\d+) (1|5)h2v(6|10|14)h-2z", path[1])
    kinds = {("5", "6"): "0", ("1", "10"): "1", ("5", "10"): "2", ("1", "14"): "3"}
    assert [int(x) for x, _, _ in bars] == list(range(0, 64, 4))
    assert int("".join(kinds[y, height] for _, y, height in bars), 4) == 0x7F3A91C4
    assert "<code>7f3a 91c4</code>" in html


def test_a_seal_without_digits_says_them_to_screen_readers():
    html = show("{% seal digest digits=False big=True %}", digest=DIGEST)
    assert '<span class="sr">seal 7f3a 91c4</span>' in html
    assert "<code>" not in html
    assert 'class="seal big"' in html


def test_a_superseded_seal_says_so():
    html = show("{% seal digest old=True %}", digest=DIGEST)
    assert 'class="seal old"' in html
    assert "superseded" in html


def test_different_digests_have_different_seals():
    assert show("{% seal digest %}", digest="0" * 64) != show("{% seal digest %}", digest="1" * 64)


def test_a_digest_in_full_comes_in_groups_of_eight():
    assert show("{{ digest|in_eights }}", digest=DIGEST).split()[:2] == ["7f3a91c4", "5e5e5e5e"]


# Time


@pytest.mark.parametrize(
    ("style", "moment", "words"),
    [
        ("ago", NOW, "0 s"),
        ("ago", NOW - timedelta(minutes=6, seconds=40), "6 min"),
        ("ago", NOW - timedelta(hours=5, minutes=34), "5 h"),
        ("ago", NOW - timedelta(days=1), "1 day"),
        ("ago", NOW - timedelta(days=29), "29 days"),
        ("ago", NOW - timedelta(days=40), "4 Sep"),
        ("ago", NOW - timedelta(days=400), "9 Sep 2025"),
        ("ago", NOW + timedelta(minutes=4, seconds=10), "in 4 min"),
        ("stamp", NOW, "14:48:07"),
        ("stamp", NOW - timedelta(hours=14, minutes=48), "00:00:07"),
        ("stamp", NOW - timedelta(hours=15), "13 Oct, 23:48:07"),
        ("fine", NOW, "14:48:07.12"),
        ("date", NOW + timedelta(hours=23, minutes=54), "15 Oct, 14:42"),
        ("date", NOW + timedelta(days=365), "14 Oct 2027, 14:48"),
    ],
)
def test_a_moment_reads(style, moment, words):
    assert text_of(show("{% when moment style %}", moment=moment, style=style)) == words


def test_a_moment_carries_utc_for_machines_and_for_the_doubtful():
    html = show("{% when moment 'stamp' %}", moment=NOW)
    assert 'datetime="2026-10-14T12:48:07.129Z"' in html
    assert 'title="14 Oct 2026, 12:48:07 UTC"' in html


def test_only_moments_that_grow_older_are_marked_for_the_script():
    assert "data-ago" in show("{% when moment %}", moment=NOW - timedelta(minutes=1))
    assert "data-ago" not in show("{% when moment %}", moment=NOW + timedelta(minutes=1))
    assert "data-ago" not in show("{% when moment %}", moment=NOW - timedelta(days=31))
    assert "data-ago" not in show("{% when moment 'stamp' %}", moment=NOW)


def test_no_moment_shows_nothing():
    assert show("{% when moment %}", moment=None) == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (20_040, "5 h 34 min"),
        (86_400, "1 day"),
        (90_000, "1 day 1 h"),
        (3 * 86_400 + 4 * 3_600, "3 days 4 h"),
    ],
)
def test_a_span_reads(seconds, words):
    assert in_words(seconds) == words


def test_a_span_takes_timedeltas_numbers_and_nothing():
    assert show("{% span value %}", value=timedelta(minutes=6)) == "6 min"
    assert show("{% span value fine=True %}", value=0.409) == "0.41 s"
    assert show("{% span value %}", value=None) == ""


def test_a_countdown_has_two_digits_for_its_seconds():
    assert show("{{ 5|as_clock }} {{ 300|as_clock }}") == "0:05 5:00"
