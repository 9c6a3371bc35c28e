"""Every failure that the doctor knows is found on a machine of machines.toml, and nothing on the healthy ones."""

import itertools
import os
import re
from pathlib import Path

import pytest
from fakes import machines

from helpers import doctor
from helpers.compute.host import Host

TERMINAL_ALONE = Path(__file__).with_name("test_doctor.py")  # provokes for real what `checks` find
ADVISED = [
    Host(system, machine, (3, 12), installed_by, nvidia, distribution, wsl, container, hosted)
    for (system, machine, distribution, wsl, container, hosted), installed_by, nvidia in itertools.product(
        [
            ("Linux", "x86_64", "debian", False, False, ""),
            ("Linux", "arm64", "arch", False, False, ""),
            ("Linux", "x86_64", "fedora", False, True, ""),
            ("Linux", "x86_64", "", False, False, ""),
            ("Linux", "x86_64", "fedora", True, False, ""),
            ("Linux", "x86_64", "debian", False, True, "colab"),
            ("Darwin", "arm64", "", False, False, ""),
            ("Darwin", "x86_64", "", False, False, ""),
            ("Windows", "x86_64", "", False, False, ""),
        ],
        ["venv", "conda", "own"],
        [False, True],
    )
]
FOREIGN = {  # what nobody types on that system
    "Windows": r"sudo|apt |unset |export |python3 |rm -r|/bin/|modprobe",
    "Darwin": r"sudo|apt |py workshop|winget|Remove-Item|\$env|\\",
    "Linux": r"brew |winget|Remove-Item|\$env:",
}
ONE_SYSTEM = {  # failures that other systems do not have
    "Darwin": r"apple-",
    "Windows": r"windows-(?!wsl)",
    "Linux": r"windows-wsl|hosted-|host-gpu-access|amd-(no-|libraries|wsl|cpu)|nvidia-(no-|libraries|cpu)",
}


@pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
@pytest.mark.parametrize("name", machines.CASES)
def test_the_doctor_finds_what_is_wrong_and_nothing_else(name, tmp_path, monkeypatch):
    case = machines.CASES[name]
    findings = machines.Machine(tmp_path, monkeypatch).become(name).findings()
    assert [finding.id for finding in findings] == case.get("finds", [])
    advice = "\n".join(finding.next for finding in findings)
    text = "\n".join([*(f"{finding.what}\n{finding.why}" for finding in findings), advice])
    assert not re.search(r"\{\w*\}|None\b", text), text
    assert [words for words in case.get("says", []) if words not in text] == [], text
    assert not re.search(case.get("never", r"\Z."), advice), advice


def test_every_failure_is_provoked_by_a_machine_or_for_real():
    provoked = {failure for case in machines.CASES.values() for failure in case.get("finds", [])}
    assert provoked <= set(doctor.KNOWN)
    provoked |= set(re.findall(r'"([a-z]+-[a-z-]+)"', TERMINAL_ALONE.read_text(encoding="utf-8")))
    assert set(doctor.KNOWN) - provoked == set()


@pytest.mark.parametrize("failure", [failure for failure in doctor.KNOWN.values() if failure.error], ids=lambda f: f.id)
def test_what_a_page_shows_is_complete_and_for_that_system_alone(failure):
    assert failure.severity in doctor.SEVERITIES and failure.source
    only = next((system for system, ids in ONE_SYSTEM.items() if re.match(ids, failure.id)), None)
    for host in ADVISED:
        if only in (None, host.system):
            shown = failure.shown(host)
            assert shown.what.endswith(".") and shown.why and shown.next
            assert not re.search(r"\{[a-z]", shown.what + shown.why + shown.next), shown
            commands = [line for line in shown.next.splitlines() if line.startswith("    ")]
            assert not any(re.search(FOREIGN[host.system], line) for line in commands), commands
