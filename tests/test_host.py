"""helpers.devices.host: what it finds out about this computer, and what a container allows."""

import os
import sys

import pytest

from helpers.devices import host


@pytest.mark.parametrize(
    ("variables", "files", "expected"),
    [
        ({"BINDER_REPO_URL": "x"}, ["conda-meta/history"], "binder"),
        ({}, ["conda-meta/history"], "conda"),
        ({}, ["workshop.json"], "venv"),
        ({}, [], "own"),
    ],
)
def test_how_the_packages_came_is_recognized(variables, files, expected, tmp_path, monkeypatch):
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
    ("release", "family"),
    [
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("", ""),
    ],
)
def test_distributions_are_known_by_their_family(release, family, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(release)
    assert host.Host.here(tmp_path).distribution == family


def test_wsl_containers_and_hosts_are_known(tmp_path, monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    here = host.Host.here(tmp_path)
    assert (here.wsl, here.container, here.hosted) == (False, False, "")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.15.146.1-microsoft-standard-WSL2\n")
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab_20260819")
    here = host.Host.here(tmp_path)
    assert (here.wsl, here.container, here.hosted) == (True, True, "colab")
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")  # Kaggle is built upon Colab's image
    assert host.Host.here(tmp_path).hosted == "kaggle"


def test_the_address_is_that_of_the_project_s_file(tmp_path):
    file = tmp_path / "pyproject.toml"
    assert host.addresses(file) == {}
    named = tmp_path / "named.toml"
    named.write_text('[project.urls]\nRepository = "https://github.com/some-one/gpu.course/"\n')
    assert host.addresses(named) == {"Repository": "https://github.com/some-one/gpu.course"}


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """Be in the cgroup /pod/box, whose tree of files this writes."""
    (tmp_path / "own").write_text("0::/pod/box\n")
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUPS", tmp_path / "own")

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("folder", "most", "room"), [("pod/box/", "max", []), ("pod/", "1000", [500]), ("", "1000", [500])]
)
def test_a_containers_own_limit_of_memory_counts(folder, most, room, cgroup):
    stat = {f"{folder}memory.stat": "anon 5\ninactive_file 200\n"}
    cgroup({f"{folder}memory.max": most, f"{folder}memory.current": "700\n", **stat})
    assert host.cgroup_room() == room


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"pod/cpu.max": "25000 100000", "pod/box/cpu.max": "max 100000"}, 0.25),
        ({"pod/box/cpu.max": "max 100000\n"}, None),
    ],
)
def test_a_containers_quota_counts(files, cpus, cgroup):
    without = host.usable_cpus()
    cgroup(files)
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
