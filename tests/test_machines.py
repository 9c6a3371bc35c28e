"""Every failure that the doctor knows is found on a machine of machines.toml, and nothing on the healthy ones."""

import graphlib
import itertools
import os
import re
from pathlib import Path

import pytest
from fakes import machines

from helpers import doctor
from helpers.devices.host import Host
from helpers.doctor import findings

VALUES = """
    backends branch card device driver effects file files first folder framework frameworks free gpu here how installed
    least message metal name names needed newest number oldest other override package packages place places
    reason says seconds settings source target tensorflow value values vendor vendors version ways what which why
"""  # that judges hand over
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
# What a learner would have to replace before the command runs.
PLACEHOLDER = r"\bgfxNAME\b|\bNAME\b|NUMBER|FULL-PATH|\.\.\.|<[a-z-]+>|\((?:your|the) "
FOREIGN = {  # what nobody types on that system
    "Windows": r"sudo|apt |unset |export |python3 |rm -r|/bin/|modprobe",
    "Darwin": r"sudo|apt |py workshop|winget|Remove-Item|\$env|\\",
    "Linux": r"brew |winget|Remove-Item|\$env:",
}
ONE_SYSTEM = {  # what other systems do not have
    "Darwin": r"apple-|torch-for-metal",
    "Windows": r"windows-|torch-for-",
    "Linux": r"wsl-|containers-|host-gpu-access|amd-no-|nvidia-(no-|libraries)|opencl-for-",
}


@pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
@pytest.mark.parametrize("name", machines.CASES)
def test_the_doctor_finds_what_is_wrong_and_nothing_else(name, tmp_path, monkeypatch):
    case = machines.CASES[name]
    facts = machines.Machine(tmp_path, monkeypatch).become(name).facts()
    found = machines.findings_of(doctor.judge(facts))
    assert [finding.id for finding in found] == case.get("finds", [])
    monkeypatch.setattr(doctor, "drop_explained", list)
    left_out = machines.findings_of(doctor.judge(facts))
    for finding in found:
        left_out.remove(finding)
    assert [finding.id for finding in left_out] == case.get("explained", [])
    advice = "\n".join(finding.next for finding in found)
    text = "\n".join([*(f"{finding.what}\n{finding.why}" for finding in found), advice])
    assert not re.search(r"\{\w*\}|None\b", text), text
    assert [words for words in case.get("says", []) if words not in text] == [], text
    assert not re.search(case.get("never", r"\Z."), advice), advice
    assert not any(re.search(PLACEHOLDER, line) for line in re.findall("^    .+", advice, re.MULTILINE)), advice


@pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
@pytest.mark.parametrize(("devices", "is_known"), [(["@LATE"], False), (["right", "@LATE"], True)])
def test_a_machine_is_not_said_to_run_lessons_on_a_device_that_was_late(devices, is_known, tmp_path, monkeypatch):
    machine = machines.Machine(tmp_path, monkeypatch).become("a-busy-machine-whose-newer-pocl-gives-no-answer")
    machine.change({"opencl": devices})
    assert ("can run here" in doctor.report(machine.findings()).splitlines()[0]) is is_known
    assert (
        "small products: 1 of the 1 devices that answered compute correctly" in doctor.judge(machine.facts())
    ) is is_known


@pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
@pytest.mark.parametrize(("name", "number"), machines.AFTERS)
def test_advice_that_was_followed_is_not_given_again(name, number, tmp_path, monkeypatch):
    machine = machines.Machine(tmp_path, monkeypatch).become(name)
    before = {(finding.id, finding.next) for finding in machine.findings()}
    machine.change(machines.CASES[name]["after"][number])
    again = {(finding.id, finding.next) for finding in machine.findings()}
    assert before & again == set()


VARIABLE = re.compile(
    r"^    (?:(?:export|unset) (\w+)=?(.*)|\$env:(\w+) = \"(.*)\"|Remove-Item Env:(\w+).*)$", re.MULTILINE
)


@pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
@pytest.mark.parametrize("name", machines.CASES)
def test_a_variable_that_was_set_as_advised_is_not_advised_again(name, tmp_path, monkeypatch):
    """The fact itself stays: only what the advice says of variables is done, all of it."""
    machine = machines.Machine(tmp_path, monkeypatch).become(name)
    before = {finding.id: finding.next for finding in machine.findings()}
    done = VARIABLE.findall("\n".join(before.values()))
    for exported, value, set_there, there, removed in done:
        if (exported and not value) or removed:
            machine.unset([exported or removed])
        else:
            machine.variables({exported or set_there: value or there})
    again = {finding.id: finding.next for finding in machine.findings()}
    for failure, advice in before.items():
        assert not VARIABLE.search(advice) or advice != again.get(failure), advice


def test_the_advice_of_every_judge_is_followed_on_a_machine():
    judged = {failure for case in machines.CASES.values() for failure in case.get("finds", [])}
    followed = {failure for name, _ in machines.AFTERS for failure in machines.CASES[name]["finds"]}
    assert judged == followed


# What cases may ask: of a `Host`, and what judges add.
HOST_WORDS = """
    Linux Darwin Windows x86_64 arm64 venv conda binder own debian fedora arch nvidia wsl container hosted otherwise
"""
JUDGE_WORDS = """
    installed detected loaded spare none path registered enabled gpu AMD NVIDIA side processor opencl backend overridden
    space joined fitting variables rocm user blocked noexec old-system lost fabric compat unknown-error chosen cached
    sparing no-packages no-driver no-framework
    no-target branch-470 branch-580 branch-unknown build-cu126 build-cu128 build-installed files pythonpath torch
"""


def test_every_case_asks_for_words_that_a_host_or_a_judge_has():
    texts = [text for known in doctor.KNOWN.values() for text in (known.what, known.why, known.next)]
    cases = [case for text in [*texts, *findings.ADVICE.values()] if not isinstance(text, str) for case in text]
    asked = {word for case in cases for word in case.split()}
    assert asked - set(HOST_WORDS.split()) == set(JUDGE_WORDS.split())


PRECEDENCES = [(failure.id, cause) for failure in doctor.KNOWN.values() for cause in failure.unless]


@pytest.mark.parametrize(("failure", "cause"), PRECEDENCES)
def test_every_precedence_is_shown_by_a_machine(failure, cause):
    assert cause in doctor.KNOWN
    shown = [
        name
        for name, case in machines.CASES.items()
        if cause in case.get("finds", []) and failure in case.get("explained", [])
    ]
    assert shown


def test_no_failure_explains_itself_not_even_through_others():
    assert len(PRECEDENCES) > 5
    assert list(graphlib.TopologicalSorter({name: known.unless for name, known in doctor.KNOWN.items()}).static_order())


def test_what_is_told_once_is_found_twice_on_a_machine():
    for failure in (known.id for known in doctor.KNOWN.values() if known.once):
        assert any(
            failure in case.get("finds", []) and failure in case.get("explained", [])
            for case in machines.CASES.values()
        )


def test_every_failure_is_provoked_by_a_machine_or_for_real():
    provoked = {failure for case in machines.CASES.values() for failure in case.get("finds", [])}
    assert provoked <= set(doctor.KNOWN)
    provoked |= set(re.findall(r'"([a-z]+-[a-z-]+)"', TERMINAL_ALONE.read_text(encoding="utf-8")))
    assert set(doctor.KNOWN) - provoked == set()


@pytest.mark.parametrize("name", [*doctor.KNOWN, *(name for name in findings.ADVICE if "-for-" in name)])
def test_the_words_are_complete_and_for_that_system_alone(name):
    only = next((system for system, names in ONE_SYSTEM.items() if re.match(names, name)), None)
    write = findings.tell if name in doctor.KNOWN else findings.advise
    for host in ADVISED:
        if only in (None, host.system):
            advice = write(name, host, **dict.fromkeys(VALUES.split(), "Thing"))
            commands = re.findall("^    .+", getattr(advice, "next", advice), re.MULTILINE)
            assert not any(re.search(FOREIGN[host.system], line) for line in commands), commands
            assert not any(re.search(PLACEHOLDER, line) for line in commands), commands
