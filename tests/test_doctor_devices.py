"""Every failure that the doctor knows of devices and frameworks, provoked on an invented machine; and healthy machines.

A case (fakes/broken_machines.py) breaks a machine; its doctor must find that failure, and nothing else than the case
allows.
"""

import dataclasses
import itertools
import os
import re

import pytest
from fakes import broken_machines as broken
from fakes import healthy_machines, machines

from helpers import doctor
from helpers.compute import host
from helpers.compute.devices import Answer
from helpers.doctor import amd_gpus, computes
from helpers.doctor.facts import WITHOUT_LOADER_VARIABLES, Facts, Proof

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
PAGES = {
    "nvidia",
    "amd-linux",
    "amd-windows",
    "apple",
    "intel",
    "directml",
    "opencl",
    "webgpu",
    "cpu",
    "docker",
    "hosted",
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return machines.Machine(tmp_path, monkeypatch)


ELSEWHERE = {"opencl-vendors-missing": "test_doctor.py: test_a_variable_that_hides_every_driver_is_the_finding"}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in broken.CASES for case in broken.CASES[name]],
                         ids=lambda value: value if isinstance(value, str) else value.__name__)  # fmt: skip
def test_a_failure_is_found_and_nothing_else(name, case, machine):
    case(machine)
    findings = machine.findings()
    ids = [finding.id for finding in findings]
    assert ids.count(name) == 1, ids
    assert set(ids) <= broken.ALLOWED[case.__name__], ids
    for finding in findings:
        assert finding.severity in doctor.SEVERITIES and finding.what and finding.why and finding.next
        assert not re.search(r"\{\w*\}|None\b", finding.what + finding.why + finding.next), finding


def test_every_failure_has_its_case():
    assert set(broken.CASES) | set(ELSEWHERE) == set(doctor.KNOWN)


# ------------------------------------------------------------ healthy machines


@pytest.mark.parametrize("healthy", healthy_machines.HEALTHY, ids=lambda function: function.__name__)
def test_a_healthy_machine_gives_no_finding(healthy, machine):
    healthy(machine)
    assert machine.findings() == []
    quick = dataclasses.replace(machine.facts(), tools={}, answers={})
    assert [item for item in doctor.judge(quick) if isinstance(item, doctor.Finding)] == []


# ------------------------------------------------------------ several at once, order


def test_two_faults_at_once_give_both_the_more_fundamental_first(machine):
    broken.a_driver_older_than_tensorflow_and_jax(machine)
    machine.set(CUDA_VISIBLE_DEVICES="-1", OCL_ICD_FILENAMES="/x.so")
    assert machine.ids() == ["nvidia-driver-too-old", "nvidia-hidden", "opencl-filenames-ignored"]


def test_a_group_and_a_variable_are_both_told(machine):
    broken.not_in_the_group_render(machine)
    machine.set(HIP_VISIBLE_DEVICES="-1")
    assert machine.ids() == ["amd-groups", "amd-hidden"]


def test_a_processor_without_avx_comes_before_the_driver(machine):
    broken.a_card_without_its_driver(machine)
    broken.a_processor_without_avx(machine)
    assert machine.ids() == ["host-no-avx", "nvidia-no-driver"]


def test_a_cause_that_is_told_is_not_told_again_as_its_effect(machine):
    an_rx_50 = Proof("tensorflow", "NVIDIA GeForce RTX 5090", "failed", "CUDA_ERROR_INVALID_PTX")
    broken.an_rtx_50_with_tensorflow(machine)
    machine.proofs = (an_rx_50,)
    assert machine.ids() == ["nvidia-rtx50-tensorflow"]
    broken.pytorch_without_the_part_for_an_rx_7600(machine)


# ------------------------------------------------------------ busy machines, and processors that fail


BUSY = (
    broken.a_busy_machine_whose_newer_pocl_gives_no_answer,
    broken.a_busy_machine_without_an_answer_of_an_adapter_and_of_tensorflow,
    broken.a_driver_that_hangs,
    broken.a_framework_that_hangs,
    broken.a_graphics_driver_that_hangs,
)


@pytest.mark.parametrize("case", BUSY)
def test_a_time_that_is_up_is_a_note_and_no_other_device_is_called_better(case, machine):
    case(machine)
    (note,) = machine.findings()
    assert note.severity == "note" and re.search(r"did not answer within \d+ s\.$", note.what), note
    text = note.what + note.why + note.next
    assert "busy" in text and not re.search(r"cannot|another|KERAS_BACKEND|VISIBLE|\b(?:pip|apt)\b", text), text
    fine = [item for item in doctor.judge(machine.facts()) if isinstance(item, str)]
    assert not any("PoCL" in words for words in fine), fine


def test_devices_that_are_late_are_one_note(machine):
    broken.a_busy_machine_without_an_answer_of_an_adapter_and_of_tensorflow(machine)
    (note,) = machine.findings()
    names = "AMD EPYC (TensorFlow, CPU), AMD EPYC (llvmpipe through Vulkan, WebGPU, CPU)"
    assert note.what == f"{names} did not answer within 15 s." and "    python3 workshop.py doctor" in note.next


def test_a_variable_is_not_blamed_for_a_device_that_is_late(machine):
    pocl = broken.old_pocl()
    both = [dataclasses.replace(pocl, computes=how) for how in ("failed: timed out, no answer within 15 s", "right")]
    asked = zip(("opencl", WITHOUT_LOADER_VARIABLES), both, strict=True)
    machine.answers |= {name: Answer("opencl", "ok", devices=(one,)) for name, one in asked}
    machine.set(OCL_ICD_VENDORS="/etc/OpenCL/vendors")
    assert machine.ids() == ["devices-late"]
    machine.fails("opencl", "no answer within 30 s", "timed out")
    assert machine.ids() == ["opencl-hangs"]


def test_a_process_that_ended_shows_its_last_words(machine):
    broken.a_full_disk_that_ends_pocls_process(machine)
    (found,) = machine.findings()
    assert found.severity == "limits" and "ended with status 1" in found.what and "No space left" in found.what


@pytest.mark.parametrize("system", ["Linux", "Windows", "Darwin"])
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("framework", ["opencl", "tensorflow", "jax", "torch", "onnxruntime"])
@pytest.mark.parametrize(("verdict", "reason"), [("wrong", "by up to 12"), ("failed", "no reason"), ("failed", "OOM")])
def test_a_gpu_is_hidden_and_a_processor_never(verdict, reason, framework, kind, system, machine):
    name = "AMD Radeon RX 7600" if kind == "gpu" else "AMD Ryzen 7 7840U w/ Radeon 780M Graphics"
    proof = Proof(framework, name, verdict, reason, kind)
    told = Facts(host.Host(system, "x86_64", (3, 12), "venv", False), machine.root, proofs=(proof,))
    (found,) = [item for item in computes.proofs(told) if isinstance(item, doctor.Finding)]
    if kind == "gpu":
        assert ("    export HIP_VISIBLE_DEVICES=-1" in found.next) == (system == "Linux" and reason != "OOM")
        return
    assert not re.search("VISIBLE|or the processor|on the processor|the GPU", found.next), found.next
    backend = re.search(r"KERAS_BACKEND\W+(\w+)", found.next)
    assert bool(backend) == (framework in ("tensorflow", "jax", "torch") and reason != "OOM")
    assert not backend or backend[1] != framework
    if framework == "opencl" and reason != "OOM":
        assert "take another driver" in found.next


# ------------------------------------------------------------ the words, for every kind of machine

ADVISED = [
    host.Host(system, arch, (3, 12), by, nvidia, distribution, wsl, container, hosted)
    for (system, arch, distribution, wsl, container, hosted), by, nvidia in itertools.product(
        [
            ("Linux", "x86_64", "debian", False, False, ""),
            ("Linux", "x86_64", "fedora", False, False, ""),
            ("Linux", "arm64", "arch", False, False, ""),
            ("Linux", "x86_64", "suse", False, True, ""),
            ("Linux", "x86_64", "", False, False, ""),
            ("Linux", "x86_64", "debian", True, False, ""),
            ("Linux", "x86_64", "debian", False, True, "colab"),
            ("Darwin", "arm64", "", False, False, ""),
            ("Windows", "x86_64", "", False, False, ""),
        ],
        ["venv", "conda", "own"],
        [False, True],
    )
]
FOREIGN = {
    "Windows": r"sudo|apt |unset |export |rm -r|/bin/|modprobe",
    "Darwin": r"sudo|apt |winget|Remove-Item|\$env|\\",
    "Linux": r"brew |winget|Remove-Item|\$env:",
}
ONE_SYSTEM = {  # failures of one system alone are not shown for others
    "apple": "Darwin", "windows-wsl": "Linux", "windows": "Windows", "hosted": "Linux",
    "amd-no": "Linux", "amd-groups": "Linux", "amd-libraries": "Linux", "amd-wsl": "Linux", "amd-cpu": "Linux",
    "amd-tensorflow": "Linux", "nvidia-libraries": "Linux", "nvidia-no-libraries": "Linux",
    "nvidia-cpu": "Linux", "nvidia-no-driver": "Linux",
    "opencl-gpu": "Linux", "opencl-render": "Linux", "opencl-icd": "Linux", "opencl-filenames": "Linux",
    "opencl-other": "Linux", "opencl-rusticl": "Linux", "opencl-hidden": "Linux", "amd-hidden": "Linux",
}  # fmt: skip


def system_of(name):
    return next(
        (ONE_SYSTEM[start] for start in sorted(ONE_SYSTEM, key=len, reverse=True) if name.startswith(start)), None
    )


@pytest.mark.parametrize("name", list(doctor.KNOWN))
def test_what_a_page_shows_is_complete_and_for_that_system_alone(name):
    failure = doctor.KNOWN[name]
    assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", name) and failure.family in doctor.findings.FAMILIES
    assert failure.pages and set(failure.pages) <= PAGES and failure.source
    for this in ADVISED:
        if system_of(name) in (None, this.system):
            shown = failure.shown(this)
            text = shown.what + shown.why + shown.next
            assert not re.search(r"\{\w*\}", text), text
            commands = [line for line in shown.next.splitlines() if line.startswith("    ")]
            assert not any(re.search(FOREIGN[this.system], line) for line in commands), commands
            assert shown.what.endswith(".")


def test_advice_names_the_distributions_own_packages(machine):
    broken.no_opencl_driver(machine)
    expected = {
        "debian": "    sudo apt install pocl-opencl-icd",
        "fedora": "    sudo dnf install pocl",
        "arch": "    sudo pacman -S pocl",
        "suse": "    sudo zypper install pocl",
        "": "    (your distribution's package manager; the package is called pocl or pocl-opencl-icd)",
    }
    for distribution, line in expected.items():
        machine.is_a(distribution=distribution)
        (finding,) = machine.findings()
        assert line in finding.next.splitlines(), finding.next


def test_advice_follows_the_route(machine):
    machine.nvidia()
    (by_workshop,) = machine.findings()
    machine.is_a(installed_by="conda")
    (by_conda,) = machine.findings()
    assert "    python3 workshop.py lab --accel cuda" in by_workshop.next.splitlines()
    assert "workshop.py" not in by_conda.next and "    python -m pip install" in by_conda.next


def test_wsl_is_never_told_to_install_a_linux_driver_or_an_nvidia_icd(machine):
    broken.a_windows_driver_too_old_in_wsl(machine)
    machine.answers["opencl"] = dataclasses.replace(
        machine.answers["opencl"], devices=(), message="no OpenCL platform found"
    )
    text = "\n".join(finding.next for finding in machine.findings())
    assert "ubuntu-drivers" not in text and "nvidia.icd" not in text and "pocl" in text and "never inside WSL" in text


def test_a_blind_developer_is_shown_a_way_without_wsl(machine):
    broken.tensorflow_on_windows_with_an_rtx_4080(machine)
    (finding,) = machine.findings()
    assert "natively and without WSL" in finding.next
    assert "download.pytorch.org/whl/cu128" in finding.next and '$env:KERAS_BACKEND = "torch"' in finding.next


@pytest.mark.parametrize("case", [broken.a_mac_without_an_adapter, broken.an_intel_mac_whose_radeon_computes_wrongly])
def test_a_mac_is_told_to_update_macos_and_to_install_no_package(case, machine):
    case(machine)
    (finding,) = machine.findings()
    assert "update macOS" in finding.next and not re.search(r"\bapt\b|mesa", finding.next)


@pytest.mark.parametrize(
    "case", [broken.tensorflow_on_windows_with_an_rx_6600_xt, broken.a_radeon_without_code_on_windows]
)
def test_a_radeon_on_windows_is_told_its_own_name_and_what_to_read_first(case, machine):
    case(machine)
    (finding,) = machine.findings()
    assert "[device-gfx1032]" in finding.next and "gfx1201" not in finding.next
    assert finding.next.index("docs/amd-windows.md first") < finding.next.index("pip install")
    assert not re.search("rocminfo|hipinfo|CUDA_VISIBLE|NVIDIA|Intel", finding.next), finding.next


@pytest.mark.parametrize(("name", "target"), [
    ("AMD Radeon RX 6600 XT", "gfx1032"), ("AMD Radeon RX 7900 XTX (PyTorch, GPU)", "gfx1100"),
    ("AMD Radeon(TM) RX 7900 GRE", "gfx1100"), ("Radeon RX 6800", "gfx1030"), ("AMD Radeon RX 6600M", ""),
    ("AMD Radeon(TM) Graphics", ""), ("AMD Radeon RX 580", ""), ("AMD Radeon RX 6500 XT", ""),
])  # fmt: skip
def test_a_card_is_known_by_its_name_where_nothing_else_tells(name, target):
    assert amd_gpus.by_name(name) == target


def test_a_radeon_of_an_unknown_name_gets_no_other_ones_package(machine):
    machine.windows("AMD Radeon RX 6700S")
    (finding,) = machine.findings()
    assert f"[device-{amd_gpus.UNKNOWN}]" in finding.next


def test_in_wsl_a_variable_is_set_as_on_linux(machine):
    broken.rocm_in_wsl_that_was_not_told_to_look(machine)
    (finding,) = machine.findings()
    assert "    export HSA_ENABLE_DXG_DETECTION=1" in finding.next.splitlines()


def test_the_number_of_the_card_is_the_one_to_show(machine):
    broken.the_processors_gpu_before_the_card(machine)
    (finding,) = machine.findings()
    assert "AMD Radeon RX 9070 XT is number 1" in finding.what and "    export ROCR_VISIBLE_DEVICES=1" in finding.next
