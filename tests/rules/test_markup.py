"""What an HTML body leads to and loads: as a browser would follow it, whatever it pretends."""

import pytest

from sends.rules.markup import host_of, links_in, remote_images_in, with_pictures


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://shop.example.net/a?b#c", "shop.example.net"),
        ("HTTPS://SHOP.example.net", "shop.example.net"),
        ("//shop.example.net/a", "shop.example.net"),
        ("https://bank.example@evil.example.net/", "evil.example.net"),  # a name, not a host
        ("https://evil.example.net\\@bank.example/", "evil.example.net"),  # a slash to browsers
        ("\\\\evil.example.net/a", "evil.example.net"),
        ("http://[::1]:8025/", "::1"),
        ("mailto:support@mail.example.com", ""),
        ("javascript:alert(1)", ""),
        ("/relative", ""),
        ("https://[broken", ""),
        ("", ""),
    ],
)
def test_the_host_is_the_one_that_a_browser_would_ask(address, host):
    assert host_of(address) == host


def test_links_areas_and_forms_are_listed_in_order_with_their_words():
    links = links_in(
        '<a href="https://a.example.org/">  Choose\n <b>another</b> day</a>'
        '<a href="https://b.example.org/"><img alt="Logo" src="x"></a>'
        '<map><area alt="Door" href="https://c.example.org/"></map>'
        '<form action="https://d.example.org/"><input name="q"></form><a name="here">no link</a>'
    )
    assert [(link.words, link.host) for link in links] == [
        ("Choose another day", "a.example.org"),
        ("Logo", "b.example.org"),
        ("Door", "c.example.org"),
        ("A form sends what is typed to", "d.example.org"),
    ]


def test_line_breaks_in_an_address_are_dropped_as_browsers_do():
    (link,) = links_in('<a href=" ht\ntps://evil.ex\tample.net/x ">a</a>')
    assert (link.address, link.host) == ("https://evil.example.net/x", "evil.example.net")


def test_the_host_is_parted_from_what_is_around_it():
    (link,) = links_in('<a href="https://bank.example@Evil.example.net:8/evil.example.net">a</a>')
    assert link.parted == ("https://bank.example@", "Evil.example.net", ":8/evil.example.net")
    (mail,) = links_in('<a href="mailto:a@example.org">a</a>')
    assert mail.parted == ("mailto:a@example.org", "", "")


@pytest.mark.parametrize(
    ("words", "another"),
    [
        ("Choose another day", ""),
        ("https://shop.example.net/cart", ""),
        ("www.shop.example.net", ""),
        ("https://bank.example.com", "bank.example.com"),
        ("bank.example.com/login", "bank.example.com"),
        ("Version 1.5", ""),
    ],
)
def test_words_that_show_another_address_are_found_out(words, another):
    (link,) = links_in(f'<a href="https://shop.example.net/x">{words}</a>')
    assert link.shows_another == another


@pytest.mark.parametrize(
    ("host", "sender", "leaves"),
    [
        ("mail.example.com", "mail.example.com", False),
        ("store.example.com", "mail.example.com", False),
        ("example.com", "mail.example.com", False),
        ("example.net", "mail.example.com", True),
        ("notexample.com", "mail.example.com", True),
        ("mail.example.com.evil.example", "mail.example.com", True),
        ("shop.example.co.uk", "mail.example.co.uk", False),
        ("evil.co.uk", "example.co.uk", True),  # nobody owns co.uk
        ("evil.github.io", "example.github.io", True),
        ("127.0.0.1", "mail.example.com", True),
        ("intranet", "intranet", False),
    ],
)
def test_which_links_leave_the_domain_of_the_sender(host, sender, leaves):
    (link,) = links_in(f'<a href="https://{host}/">x</a>')
    assert link.leaves(sender) is leaves


def test_a_link_that_leads_nowhere_leaves_nothing():
    (link,) = links_in('<a href="mailto:a@evil.example.net">x</a>')
    assert not link.leaves("mail.example.com")


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<img src="https://a.example/x.gif"><img src=//a.example/y>', 2),
        ('<img src="data:image/gif;base64,AA"><img src="cid:logo">', 0),
        ('<td background="http://a.example/x"></td>', 0),  # no table, so a browser drops the cell
        ('<table><tr><td background="http://a.example/x"></td></tr></table>', 1),
        ("<p style=\"background: url( 'https://a.example/x')\">", 1),
        ("<style>p { background: url(//a.example/x) }</style>", 1),
        ("<p>https://a.example/x.gif</p>", 0),
    ],
)
def test_what_would_be_loaded_from_elsewhere_is_counted(html, count):
    assert remote_images_in(html) == count


@pytest.mark.parametrize("html", ["", "<a href", "<a href=x>" * 2000, "\x00", "<!--"])
def test_broken_html_is_read_as_far_as_it_goes(html):
    assert all(link.host == "" for link in links_in(html))
    assert remote_images_in(html) == 0


def test_a_picture_that_is_named_again_and_again_is_put_in_as_long_as_there_is_room():
    pictures = {"a": "data:image/png;base64,AAAA", "b": "data:,"}
    most = 2 * len(pictures["a"]) + len(pictures["b"])
    shown = with_pictures("<img src=cid:a>" * 50_000 + "<img src=cid:b>", pictures, most=most)
    assert shown.count(pictures["a"]) == 2
    assert shown.count("cid:a") == 49_998
    assert shown.endswith("<img src=data:,>")
