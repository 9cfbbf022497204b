"""Addresses, request bytes and the kernel's stamps."""

from __future__ import annotations

import socket
from time import monotonic, time

import pytest

from probes.load.wire import SO_TIMESTAMPNS, TIMESPEC, arrival, encode, target, wall_offset
from probes.recipe import Refused


@pytest.mark.parametrize(
    ("url", "port", "path"),
    [
        ("http://127.0.0.1:8080", 8080, "/v1/chat/completions"),
        ("http://h/", 80, "/v1/chat/completions"),
        ("https://h/v1", 443, "/v1/chat/completions"),
        ("http://h:1/api/v1/chat/completions", 1, "/api/v1/chat/completions"),
        ("http://h:1/proxy", 1, "/proxy/v1/chat/completions"),
    ],
)
def test_addresses(url: str, port: int, path: str) -> None:
    found = target(url)
    assert (found.port, found.path, found.tls) == (port, path, url.startswith("https"))


def test_an_ip6_address_keeps_its_brackets_in_the_host_header() -> None:
    assert b"\r\nHost: [::1]:8000\r\n" in encode(target("http://[::1]:8000"), b"{}", {})


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://h/a b", "http://u:secret@h"]
)
def test_bad_addresses_are_refused_in_one_line_without_secrets(url: str) -> None:
    with pytest.raises(Refused) as trouble:
        target(url)
    assert "\n" not in str(trouble.value)
    assert "secret" not in str(trouble.value)


@pytest.mark.parametrize(("name", "value"), [("A", "x\r\nB: y"), ("A: b", "x"), ("", "x"), ("A b", "x")])
def test_a_header_cannot_smuggle_another(name: str, value: str) -> None:
    with pytest.raises(Refused):
        encode(target("http://h"), b"{}", {name: value})


def stamp(at: float) -> list[tuple[int, int, bytes]]:
    seconds = int(at)
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.pack(seconds, int((at - seconds) * 1e9)))]


def test_a_packet_that_waited_keeps_the_time_it_came() -> None:
    assert monotonic() - arrival(stamp(time() - 0.25), wall_offset()) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("shift", [3600.0, -3600.0])
def test_a_wall_clock_that_was_set_is_not_believed(shift: float) -> None:
    before = monotonic()
    assert before <= arrival(stamp(time() + shift), wall_offset()) <= monotonic()


def test_without_a_stamp_it_is_now() -> None:
    before = monotonic()
    assert before <= arrival([], 0.0) <= monotonic()
    assert before <= arrival([(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"short")], 0.0) <= monotonic()
