"""Whose process a pid is, on real processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from probes.gpu import host
from probes.gpu.host import Group, OnGpu, Owners


@pytest.fixture
def server() -> Iterator[tuple[int, int]]:
    """A process with a session of its own, and its child that made another: (group, child)."""
    inner = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'input()'], start_new_session=True)"
    script = f"{inner}; print(c.pid, flush=True); c.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate("\n")


def test_the_machine_has_memory() -> None:
    total, available = host.total_and_available()
    assert total is not None
    assert available is not None
    assert 0 < available <= total
    assert total == psutil.virtual_memory().total


def test_a_group_is_its_members_and_their_descendants(server: tuple[int, int]) -> None:
    group, child = server
    assert host.members(Group(group)) == tuple(sorted((group, child)))
    assert host.belongs(group, Group(group))
    assert host.belongs(child, Group(group))
    assert not host.belongs(os.getpid(), Group(group))
    assert not host.belongs(group, Group(child))


def test_resident_memory_is_a_sum_over_those_that_live(server: tuple[int, int]) -> None:
    group, child = server
    one, both = host.rss([group]), host.rss([group, child])
    assert one is not None
    assert both is not None
    assert both > one > 1 << 20
    assert one == pytest.approx(psutil.Process(group).memory_info().rss, rel=0.05)
    assert host.rss([4194999]) is None


def test_no_group_has_no_members() -> None:
    assert host.members(Group()) == ()
    assert not host.belongs(os.getpid(), Group())


def test_a_container_is_known_by_its_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups = {os.getpid(): "0::/system.slice/docker-c0ffee.scope", os.getppid(): "0::/init.scope"}
    monkeypatch.setattr(host, "_cgroup", lambda pid: cgroups.get(pid, ""))
    assert host.belongs(os.getpid(), Group(container="c0ffee"))
    assert not host.belongs(os.getppid(), Group(container="c0ffee"))
    assert host.members(Group(container="c0ffee")) == (os.getpid(),)


def test_answers_are_kept_until_refresh_or_another_group(
    server: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = host.belongs

    def belongs(pid: int, group: Group) -> bool:
        asked.append(pid)
        return real(pid, group)

    monkeypatch.setattr(host, "belongs", belongs)
    group, child = server
    owners = Owners(Group(group))
    for _ in range(3):
        assert owners.attribute([OnGpu(child, 5), OnGpu(os.getpid(), 7)], 12)[0] == 5
    assert asked == [child, os.getpid()]
    owners.refresh()
    owners.of(child)
    owners.group = Group(os.getpgid(0))
    assert owners.of(os.getpid())[0]
    assert len(asked) == 4


def test_foreign_processes_stand_largest_first() -> None:
    ours, others = Owners().attribute([OnGpu(1, 5), OnGpu(os.getpid(), 70), OnGpu(4194999, None)], 75)
    assert ours is None  # there is no server: nothing is ours, and 0 would be a claim
    assert [(pid, size) for pid, _, size in others] == [(os.getpid(), 70), (1, 5), (4194999, None)]


def test_a_name_is_safe_to_print() -> None:
    assert host.printable("a\x1b[2J\nb" + "x" * 200) == ("a?[2J?b" + "x" * 200)[:64]
    assert host.name_of(4194999) is None
