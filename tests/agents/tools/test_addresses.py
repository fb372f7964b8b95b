"""Where a request of an agent may go: nowhere but to what a person allowed, however it is written."""

from __future__ import annotations

import pytest

from onward.agents.tools.web_addresses import (
    UrlRefused,
    check_addresses,
    check_target,
    kind_of,
    read_allowed,
    redirected,
    target_of,
)
from onward.errors import InvalidInput

METADATA = (
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254:80/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://169.16689662/",
    "http://169.254.169.254./",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fe80::a9fe:a9fe%25eth0]/",
    "http://[fd00:ec2::254]/",
    "http://①⑥⑨.254.169.254/",
    "http://169。254。169。254/",
    "http://api.example.com@169.254.169.254/",
    "http://169.254.169.254#@api.example.com/",
    "http://169.254.169.254\\@api.example.com/",
    "http://api.example.com\\@169.254.169.254/",
    "http://%31%36%39.254.169.254/",
    "http://169.254.169.254%00.api.example.com/",
    "http://api.example.com:80@169.254.169.254/",
    "http:169.254.169.254/",
    "http:/\\169.254.169.254/",
    "///169.254.169.254/",
    "gopher://169.254.169.254/",
    "file://localhost/etc/passwd",
    "http://api.example.com\t.evil.example/",
    " http://api.example.com/",
    "http://api.example.com\r\nHost: evil.example/",
    "http://api.example.com:0/",
    "http://api.example.com:99999/",
    "http://api.example.com:8080/",
    "https://api.example.com.evil.example/",
    "https://evil.example/api.example.com",
    "https://evil-api.example.com/",
    "https://example.com/",
    "http:///path",
    "",
)
ALLOWED = [read_allowed(entry, "allow") for entry in ("api.example.com", "http://api.example.com")]


def reach(url: str) -> None:
    target = target_of(url)
    check_addresses(target, [target.host], allows_private=False)


@pytest.mark.parametrize("url", METADATA)
def test_no_spelling_of_another_host_is_allowed(url: str) -> None:
    """S11: the metadata of a cloud in many spellings, and hosts that only look allowed."""
    with pytest.raises(UrlRefused):
        check_target(target_of(url), ALLOWED)


@pytest.mark.parametrize(
    "url", [url for url in METADATA if url.startswith("http://") and "example" not in url]
)
def test_metadata_is_refused_even_if_a_library_understands_its_spelling(url: str) -> None:
    """As if the allow-list allowed every host."""
    with pytest.raises(UrlRefused):
        reach(url)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:2800:220:1:248:1893:25c8:1946", "public"),
        ("127.0.0.1", "private"),
        ("127.8.9.10", "private"),
        ("::1", "private"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("100.127.255.255", "private"),
        ("fc00::1", "private"),
        ("::ffff:127.0.0.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:100.64.0.1", "private"),
        ("64:ff9b::7f00:1", "private"),
        ("::127.0.0.1", "private"),
        ("2002:7f00:1::", "private"),
        ("0.0.0.0", "special"),
        ("::", "special"),
        ("169.254.169.254", "special"),
        ("::ffff:169.254.169.254", "special"),
        ("fe80::1", "special"),
        ("fe80::1%eth0", "special"),
        ("fd00:ec2::254", "special"),
        ("100.100.100.200", "special"),
        ("168.63.129.16", "special"),
        ("224.0.0.1", "special"),
        ("ff02::1", "special"),
        ("255.255.255.255", "special"),
        ("240.0.0.1", "special"),
        ("198.18.0.1", "special"),
        ("192.0.2.1", "special"),
    ],
)
def test_every_address_is_of_a_kind(address: str, kind: str) -> None:
    assert kind_of(address) == kind


@pytest.mark.parametrize(
    ("addresses", "allows_private", "is_fine"),
    [
        (["93.184.216.34"], False, True),
        (["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"], False, True),
        (["93.184.216.34", "127.0.0.1"], False, False),
        (["10.0.0.1"], False, False),
        (["10.0.0.1"], True, True),
        (["10.0.0.1", "169.254.169.254"], True, False),
        ([], True, False),
    ],
)
def test_every_address_of_a_host_must_be_fine(
    addresses: list[str], allows_private: bool, is_fine: bool
) -> None:
    target = target_of("https://api.example.com/")
    if is_fine:
        check_addresses(target, addresses, allows_private=allows_private)
    else:
        with pytest.raises(UrlRefused):
            check_addresses(target, addresses, allows_private=allows_private)


def test_a_special_address_is_reached_only_if_the_list_names_it() -> None:
    target = target_of("http://169.254.169.254/")
    check_addresses(target, ["169.254.169.254"], allows_private=True)
    with pytest.raises(UrlRefused):
        check_addresses(target, ["169.254.169.254"], allows_private=False)


@pytest.mark.parametrize(
    ("entry", "url", "is_allowed"),
    [
        ("api.example.com", "https://api.example.com/any?x=1", True),
        ("API.example.com", "https://api.EXAMPLE.com./", True),
        ("api.example.com", "http://api.example.com/", False),
        ("api.example.com", "https://api.example.com:8443/", False),
        ("api.example.com:8443", "https://api.example.com:8443/", True),
        ("https://h:8443/v1/", "https://h:8443/v1/x", True),
        ("https://h:8443/v1", "https://h:8443/v1", True),
        ("https://h:8443/v1", "https://h:8443/v10", False),
        ("https://h:8443/v1/", "https://h:8443/", False),
        ("https://h/v1/", "https://h/v1/../admin", False),
        ("https://h/v1/", "https://h/v1/..;/admin", False),
        ("https://h/v1/", "https://h/v1/..;a=b/admin", False),
        ("https://h/v1/", "https://h/v1/%2e.%3b/admin", False),
        ("https://h/v1/", "https://h/v1/.;/x", False),
        ("https://h/v1/", "https://h/v1/..a;b/x", True),
        ("https://h/v1/", "https://h/v1/a;v=1/x", True),
        ("https://h/v1/", "https://h/v1/%2e%2e/admin", False),
        ("https://h/v1/", "https://h/v1/..%2fadmin", False),
        ("https://h/v1/", "https://h/v1/%252e%252e/admin", False),
        ("https://h/v1/", "https://h/v1/..%5cadmin", False),
        ("https://h/v1/", "https://h/v1/%" + "25" * 6 + "2e%2e/", False),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/x", True),
        ("http://[::1]:9000", "http://[0::1]:9000/x", True),
    ],
)
def test_an_entry_allows_its_host_scheme_port_and_path(entry: str, url: str, is_allowed: bool) -> None:
    allowed = [read_allowed(entry, "allow")]
    if is_allowed:
        check_target(target_of(url), allowed)
    else:
        with pytest.raises(UrlRefused):
            check_target(target_of(url), allowed)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.example.com", "https://u:p@h/", "ftp://h", "h/path", "https://h/?q", 7, "a b", "https://"],
)
def test_an_entry_that_cannot_be_meant_is_refused(entry: object) -> None:
    with pytest.raises(InvalidInput, match=r"allow of \[tools.http\] has "):
        read_allowed(entry, "allow of [tools.http]")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://h/b"),
        ("b?x=1", "https://h/a/b?x=1"),
        ("//other/b", "https://other/b"),
        ("http://127.0.0.1/", "http://127.0.0.1/"),
    ],
)
def test_a_redirect_leads_where_it_says(location: str, url: str) -> None:
    assert redirected(target_of("https://h/a/"), location).url == url


@pytest.mark.parametrize(
    "location", ["javascript:1", "http://2130706433/", "http://a@b/", "\\\\evil", "http://h/..%2f"]
)
def test_a_redirect_that_could_be_read_in_two_ways_is_refused(location: str) -> None:
    with pytest.raises(UrlRefused):
        redirected(target_of("https://h/a/"), location)
