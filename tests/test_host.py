"""helpers.compute.host: what it finds out about this computer, and what a container allows."""

import os
import sys

import pytest

from helpers.compute import host


@pytest.mark.parametrize(
    ("variables", "files", "expected"),
    [
        ({"BINDER_REPO_URL": "x"}, ["conda-meta/history"], "binder"),
        ({}, ["conda-meta/history"], "conda"),
        ({}, ["workshop.json"], "venv"),
        ({}, [], "own"),
    ],
)
def test_how_the_packages_came_is_recognised(variables, files, expected, tmp_path, monkeypatch):
    for name in ("BINDER_REPO_URL", "BINDER_LAUNCH_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert host.Host.here().installed_by == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/some-one/gpu.course.git",
        "git@github.com:some-one/gpu.course",
        "https://github.com/some-one/gpu.course/",
    ],
)
def test_the_binder_link_is_that_of_the_repository_cloned_from(tmp_path, url):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(
        f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = x\n'
    )
    assert host.binder_link(tmp_path).startswith("https://mybinder.org/v2/gh/some-one/gpu.course/HEAD?")


def test_without_a_known_repository_binder_asks_for_it(tmp_path):
    assert "give it the address" in host.binder_link(tmp_path)


def fake_cgroup(root, version, most, used, cached):
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    root.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (most, used), strict=True):
        (root / name).write_text(f"{value}\n")
    stat = "inactive_file" if version == 2 else "inactive_file 0\ntotal_inactive_file"
    (root / "memory.stat").write_text(f"anon 5\n{stat} {cached}\n")


@pytest.mark.parametrize(
    ("own", "folder", "version", "most", "used", "cached", "room"),
    [
        ("0::/user/container", "user/container", 2, "max", 10, 0, []),
        ("0::/user/container", "user", 2, 1000, 700, 200, [500]),
        ("3:cpu:/x\n9:memory:/docker/abc", "memory", 1, 0x7FFFFFFFFFFFF000, 10, 0, []),
        ("3:cpu:/x\n9:memory:/docker/abc", "memory/docker/abc", 1, 2000, 1990, 20, [30]),
        ("", "", 2, 1000, 10, 0, []),
    ],
)
def test_a_containers_own_limit_counts(own, folder, version, most, used, cached, room, tmp_path, monkeypatch):
    (tmp_path / "own").write_text(own)
    fake_cgroup(tmp_path / folder, version, most, used, cached)
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUPS", tmp_path / "own")
    assert host.cgroup_room() == room


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/pod/box", {"pod/cpu.max": "25000 100000", "pod/box/cpu.max": "max 100000"}, 0.25),
        ("4:cpu,cpuacct:/docker/x", {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("", {}, None),
    ],
)
def test_a_containers_quota_counts(tmp_path, monkeypatch, own, files, cpus):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUPS", tmp_path / "missing")
    without = host.usable_cpus()
    monkeypatch.setattr(host, "OWN_CGROUPS", tmp_path / "own")
    assert host.usable_cpus() == (cpus or without)


@pytest.fixture
def other_machine(monkeypatch):
    host.cpu_name.cache_clear()
    yield monkeypatch
    host.cpu_name.cache_clear()


@pytest.mark.skipif(os.name == "nt", reason="a fake lscpu is a shell script")
@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz\n", "Intel Core i7-8550U"),
        ("model name\t: AMD Ryzen 9 5950X 16-Core Processor\n", "AMD Ryzen 9 5950X"),
        ("processor: 0\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n", "Raspberry Pi 5 Model B Rev 1.0"),
        ("processor\t: 0\nmodel\t\t: 142\nCPU part\t: 0xd08\n", "Neoverse-V2"),  # as lscpu names it
    ],
)
def test_the_processor_of_linux_gets_its_plain_name(cpuinfo, name, other_machine, tmp_path):
    (tmp_path / "lscpu").write_text("#!/bin/sh\necho 'Architecture: aarch64'\necho 'Model name:   Neoverse-V2'\n")
    (tmp_path / "lscpu").chmod(0o755)
    other_machine.setenv("PATH", str(tmp_path))
    other_machine.setattr(host.platform, "system", lambda: "Linux")
    other_machine.setattr(host.Path, "read_text", lambda *_, **__: cpuinfo)
    assert host.cpu_name() == name


def test_the_processor_has_a_name_even_where_the_system_tells_none(other_machine):
    for ask_for, answer in (("system", "Plan 9"), ("processor", ""), ("machine", "riscv64")):
        other_machine.setattr(host.platform, ask_for, lambda answer=answer: answer)
    assert host.cpu_name() == "riscv64"
