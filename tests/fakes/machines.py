"""A machine that a test invents: files below a folder, tools on PATH, packages, what frameworks answer."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

from fakes import vendor_outputs as prints

from helpers import doctor
from helpers.compute import devices
from helpers.compute.devices import Answer, Device
from helpers.compute.host import Host
from helpers.doctor import facts, output

CPU = Device("", "cpu:0", "AMD EPYC", "cpu")
TITLES = {"opencl": "OpenCL", "tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}


class Machine:
    """Linux on x86-64, set up by workshop.py with the family cpu, without a GPU; a test changes what it needs."""

    def __init__(self, folder, monkeypatch):
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir(parents=True)
        (self.root / "dev").mkdir(parents=True)
        self.monkeypatch = monkeypatch
        self.host = Host("Linux", "x86_64", (3, 12), "venv", False)
        self.packages = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1"}
        self.packages["pyopencl"] = "2026.1.4"
        self.torch, self.user, self.groups = "", 1000, frozenset({1000})
        self.answers, self.proofs, self.keras = {}, (), facts.Said("ok", "first operation")
        for name in ("opencl", "tensorflow", "jax"):
            self.lists(name)
        self.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse sse2 avx avx2 f16c\n")
        for name in [name for name in os.environ if output.VARIABLES.match(name)]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("KERAS_HOME", str(folder / "keras"))
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.setattr(facts, "ELSEWHERE", ())

    # ------------------------------------------------------------------------------------ what is there

    def is_a(self, **changes):
        self.host = replace(self.host, **changes)
        return self

    def file(self, name, text="", mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def card(self, vendor, number=0):
        """A graphics card on the PCI bus."""
        self.file(f"sys/bus/pci/devices/0000:0{number}:00.0/class", "0x030000\n")
        self.file(f"sys/bus/pci/devices/0000:0{number}:00.0/vendor", f"0x{vendor}\n")

    def tool(self, name, text="", status=0, error="", special=()):
        """A fake program; `special` holds (part of its arguments, text, status) that it answers otherwise."""
        cases = "".join(
            f"case \"$*\" in *{part}*) printf '%s' {shlex.quote(said)}; exit {code};; esac\n"
            for part, said, code in special
        )
        script = f"#!/bin/sh\n{cases}printf '%s\\n' {shlex.quote(text)}\nprintf '%s' {shlex.quote(error)} >&2\n"
        (self.bin / name).write_text(f"{script}exit {status}\n")
        (self.bin / name).chmod(0o755)

    def hangs(self, name):
        (self.bin / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (self.bin / name).chmod(0o755)

    def without(self, *packages):
        for name in packages:
            self.packages.pop(name, None)

    def set(self, **variables):
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    # --------------------------------------------------------------------------------- what frameworks say

    def lists(self, framework, *gpus, message=""):
        """It answers with the processor and these GPUs."""
        found = [replace(CPU, framework=framework)]
        found += [Device(framework, f"gpu:{n}", name, "gpu") for n, name in enumerate(gpus)]
        self.answers[framework] = Answer(framework, "ok", "1.0", tuple(found), message)

    def fails(self, framework, message, state="failed"):
        self.answers[framework] = Answer(framework, state, message=message)

    # ---------------------------------------------------------------------------------------- whole machines

    def nvidia(self, name="NVIDIA GeForce RTX 3060", driver="570.86.15", capability="8.6", many=1):
        """A Linux machine with a working driver."""
        self.card("10de")
        self.file("proc/driver/nvidia/version", prints.NVIDIA_PROC.format(driver=driver))
        self.file("dev/nvidiactl")
        self.file("dev/nvidia0")
        self.is_a(nvidia=True)
        row = f"{name}, {driver}"
        known = (f"{row}, {capability}\n" * many, 0) if capability else (prints.NO_SUCH_FIELD, 2)
        table = prints.NVIDIA_SMI_470.replace("470.129.06", driver)
        self.tool("nvidia-smi", table, special=[("compute_cap", *known), ("query-gpu", f"{row}\n" * many, 0)])
        self.lists("opencl", name)

    def cuda_family(self, name="NVIDIA GeForce RTX 3060"):
        """The packages of `--accel cuda`, and frameworks that list the GPU."""
        self.without("tensorflow-cpu")
        self.packages |= {
            "tensorflow": "2.21.0",
            "nvidia-cudnn-cu12": "9.27.0.42",
            "nvidia-cuda-runtime-cu12": "12.9.79",
        }
        self.packages |= {"jax-cuda12-plugin": "0.12.0.1", "jax-cuda12-pjrt": "0.12.0.1"}
        self.set(KERAS_BACKEND="jax")
        for framework in ("tensorflow", "jax"):
            self.lists(framework, name)

    def amd(self, *gpus, groups="render", mode=0o660):
        """A Linux machine whose kernel offers these AMD GPUs: (gfx target, name)."""
        gpus = gpus or (("gfx1100", "AMD Radeon RX 7900 XTX"),)
        self.card("1002")
        self.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nlearner:x:1000:1000::/home/learner:/bin/bash\n")
        self.file("etc/group", f"root:x:0:\nvideo:x:44:\nrender:x:{os.getgid()}:\n")
        self.file("dev/kfd", mode=mode)
        self.file("dev/dri/renderD128", mode=mode)
        self.groups = frozenset({1000, os.getgid()}) if groups else frozenset({1000})
        nodes = "sys/class/kfd/kfd/topology/nodes"
        self.file(f"{nodes}/0/properties", "cpu_cores_count 16\ngfx_target_version 0\n")
        for number, (target, _) in enumerate(gpus, 1):
            digits = target.removeprefix("gfx")
            version = int(digits[:-2]) * 10_000 + int(digits[-2], 16) * 100 + int(digits[-1], 16)
            self.file(f"{nodes}/{number}/properties", f"simd_count 96\ngfx_target_version {version}\n")
        self.tool("rocminfo", prints.rocminfo(*gpus))
        self.lists("opencl", *[name for _, name in gpus])

    def rocm_torch(self, target="gfx1100", name="AMD Radeon RX 7900 XTX"):
        """AMD's PyTorch with the part for one gfx target, as Keras' backend."""
        self.without("tensorflow-cpu")
        self.answers.pop("tensorflow", None)
        self.torch = "hip 7.2"
        self.packages |= {"torch": "2.14.0+rocm10.1.0", f"amd-torch-device-{target}": "2.14.0+rocm10.1.0"}
        self.set(KERAS_BACKEND="torch")
        self.lists("torch", name)

    def wsl(self):
        self.is_a(wsl=True)
        self.file("proc/sys/kernel/osrelease", "5.15.146.1-microsoft-standard-WSL2\n")
        self.file("dev/dxg")
        self.file("usr/lib/wsl/lib/libcuda.so.1")

    def windows(self, *cards):
        self.is_a(system="Windows")
        self.without("tensorflow-cpu")
        self.packages["tensorflow"] = "2.21.0"
        for name in ("msvcp140.dll", "msvcp140_1.dll", "vcruntime140_1.dll"):
            self.file(f"Windows/System32/{name}")
        self.tool("powershell", "\n".join(cards))
        self.tool("reg", "    LongPathsEnabled    REG_DWORD    0x1")
        self.lists("opencl", *cards)

    def mac(self, machine="arm64"):
        self.is_a(system="Darwin", machine=machine)
        self.without("tensorflow-cpu")
        self.packages["tensorflow"] = "2.21.0"
        self.tool("sysctl", "0")
        self.lists("opencl", "Apple M4")

    def metal_family(self):
        self.packages |= {"tensorflow": "2.19.1", "tensorflow-metal": "1.2.0", "torch": "2.13.0"}
        self.torch = "cpu"
        self.set(KERAS_BACKEND="torch")
        self.lists("torch", "Apple M4 GPU")

    # ----------------------------------------------------------------------------------------- what it tells

    def facts(self):
        ask = lambda framework, timeout=0, variables=None: self.answers.get(  # noqa: E731
            facts.WITHOUT_LOADER_VARIABLES if variables is not None else framework, Answer(framework, "not installed")
        )
        self.monkeypatch.setattr(devices, "ask", ask)
        self.monkeypatch.setattr(facts, "installed_packages", lambda: dict(self.packages))
        self.monkeypatch.setattr(facts, "start_keras", lambda seconds: self.keras)
        self.monkeypatch.setattr(facts, "torch_build", lambda: self.torch)
        told = facts.gather(self.host, self.root)
        return replace(told, user=self.user, groups=self.groups, proofs=self.proofs or told.proofs)

    def findings(self):
        return [item for item in doctor.judge(self.facts()) if isinstance(item, doctor.Finding)]

    def ids(self):
        return [finding.id for finding in self.findings()]


def fake_library(root: Path, name: str) -> None:
    """A library where distributions put them."""
    path = root / "usr/lib/x86_64-linux-gnu" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
