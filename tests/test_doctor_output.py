"""`doctor --json` fits its schema, and `doctor --report` names nobody."""

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from fakes import machines
from fakes import vendor_outputs as prints

from helpers import ROOT, doctor
from helpers.compute.host import Host
from helpers.doctor import output

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return machines.Machine(tmp_path, monkeypatch)


def examined(machine):
    """What `examine` would return of this machine."""
    findings = doctor.Findings(machine.findings())
    findings.facts, findings.fine = machine.facts(), ("Python 3.12",)
    return findings


def test_json_fits_its_schema_and_says_what_the_report_says(machine):
    machine.nvidia("Tesla V100-PCIE-16GB", "470.129.06", None)
    machine.set(OCL_ICD_FILENAMES="/x.so", NOT_OURS="secret")
    findings = examined(machine)
    told = json.loads(output.as_json(findings))
    jsonschema.Draft202012Validator.check_schema(output.SCHEMA)
    jsonschema.validate(told, output.SCHEMA)
    assert [item["id"] for item in told["findings"]] == [finding.id for finding in findings]
    assert told["findings"][0]["family"] == "nvidia" and told["findings"][0]["commands"]
    assert told["machine"]["packages"]["jax"] == "0.12.0.1" and told["machine"]["python"] == "3.12"
    assert told["machine"]["variables"]["OCL_ICD_FILENAMES"] == "/x.so" and "secret" not in json.dumps(told)
    assert told["machine"]["devices"]["jax"][0] == "ok"


def test_json_without_facts_fits_its_schema():
    finding = doctor.Finding("Python", "stops", "What.", "Why.", "Next:\n    command", "packages-another-python")
    told = json.loads(output.as_json(doctor.Findings([finding])))
    jsonschema.validate(told, output.SCHEMA)
    assert told["status"] == 1 and told["findings"][0]["commands"] == ["command"]


def test_every_known_failure_fits_the_schema():
    here = Host.here()
    findings = doctor.Findings(failure.shown(here) for failure in doctor.KNOWN.values())
    jsonschema.validate(json.loads(output.as_json(findings)), output.SCHEMA)


@pytest.fixture
def somebody(machine, monkeypatch, tmp_path):
    """A machine of somebody with a name, whose tools, variables and frameworks all tell it."""
    home = tmp_path / "home" / "xaverine.q"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(getpass, "getuser", lambda: "xaverine.q")
    monkeypatch.setattr(socket, "gethostname", lambda: "xaverines-laptop.example.org")
    monkeypatch.setattr(output, "ROOT", home / "gpu course")
    uuid = "GPU-7e61108c-1a2b-3c4d-5e6f-0123456789ab"
    machine.nvidia()
    machine.cuda_family()
    machine.tool(
        "clinfo", f"xaverines-laptop: {home}/x by xaverine.q, Device UUID: 7e61108c-1a2b-3c4d {uuid}\n{prints.CLINFO}"
    )
    machine.tool("amd-smi", '{"asic_serial": "0x6A1A3F2E8C3F1C0D"}')
    machine.fails(
        "torch", f"ImportError: {home}/gpu course/.venv/lib/libx.so: Xaverine.Q has no rights on XAVERINES-LAPTOP"
    )
    machine.set(
        LD_LIBRARY_PATH=f"{home}/cuda/lib64:{home}",
        TF_CPP_MIN_LOG_LEVEL="3",
        AWS_SECRET="hunter2",
        TF_VAR_password="hunter2",
    )
    machine.set(JAX_COORDINATOR_ADDRESS="hunter2:1234", NVIDIA_API_KEY="hunter2")
    return machine, home, uuid


@pytest.mark.parametrize("as_json", [False, True])
def test_a_report_names_no_user_no_computer_no_home_and_no_secret(somebody, as_json):
    machine, home, uuid = somebody
    findings = examined(machine)
    text = output.as_json(findings) if as_json else output.as_report(findings, doctor.report(findings))
    for secret in ("xaverine", str(home), str(home.parent), "laptop", uuid, "hunter2", "6A1A3F2E8C3F1C0D"):
        assert secret.lower() not in text.lower(), secret
    assert "WORKSHOP/.venv/lib/libx.so" in text and "~/cuda/lib64:~" in text
    assert "packages-import-fails" in text and "TF_CPP_MIN_LOG_LEVEL" in text


def test_a_report_holds_what_a_helper_asks_for(machine):
    machine.nvidia()
    machine.is_a(distribution="fedora", container=True)
    findings = examined(machine)
    text = output.as_report(findings, doctor.report(findings))
    for part in (
        "--- Machine\n  Linux x86_64 fedora, in a container",
        "  note: nvidia-cpu-build",
        "--- Tool: nvidia-smi\n  ok",
        "Driver Version: 570.86.15",
        "--- Packages",
        "  jax 0.12.0.1",
        "--- Devices: tensorflow",
        "10de",
    ):
        assert part in text, text


def test_names_that_are_nobodys_stay_and_short_words_are_not_torn(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu")
    assert output.without_names("root cause; gpu0 of the gpu") == "root cause; gpu0 of the COMPUTER"
    monkeypatch.setattr(getpass, "getuser", lambda: "jo")
    assert output.without_names("major jo") == "major jo"  # two letters would tear every second word


def test_a_home_in_the_root_does_not_eat_every_path(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    assert output.without_names("/etc/OpenCL /rooted") == "/etc/OpenCL /rooted"


def test_the_command_writes_both(tmp_path):
    file = tmp_path / "report.txt"
    command = [sys.executable, "-m", "helpers", "doctor", "--quick", "--json", "--report", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    jsonschema.validate(json.loads(done.stdout), output.SCHEMA)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("Any GPU workshop: the doctor's report.") and str(ROOT) not in text
    assert Path.home() == Path("/root") or str(Path.home()) not in text


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    command = [sys.executable, "-m", "helpers", "doctor", "--quick", "--report", str(tmp_path / "no" / "folder")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
