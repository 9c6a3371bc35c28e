"""A machine that a test invents: files below a folder, tools on PATH, packages, what frameworks answer.

`machines.toml` has many of them; each key of an entry there is a method of Machine.
"""

import os
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

from helpers import devices, doctor
from helpers.devices import Answer, Device
from helpers.devices.host import Host
from helpers.doctor import gather

TABLE = tomllib.loads((Path(__file__).parent.parent / "machines.toml").read_text(encoding="utf-8"))
OUTPUTS = TABLE["outputs"]
CASES = TABLE["broken"] | TABLE["healthy"]
EXPECTED = ("finds", "explained", "says", "never", "after")  # what a case expects; its other keys change the machine
AFTERS = [(name, number) for name, case in CASES.items() for number in range(len(case.get("after", [])))]
OURS = re.compile(
    r"(CUDA|HIP|ROCR|HSA|ONEAPI|ZE|OCL|OPENCL|RUSTICL|XLA|KERAS|TF|WGPUPY|JAX|VK|DYLD)_|LD_(LIBRARY_PATH|PRELOAD)|PYTHON(PATH|HOME)$|PYOPENCL_CTX|POCL_CACHE_DIR|ANYGPU_"
)
CPU = Device("", "cpu:0", "AMD EPYC", "cpu")


def text_of(text):
    """Return the text that "@NAME" stands for."""
    return OUTPUTS[text[1:]] if text.startswith("@") else text


class Machine:
    """Linux on x86-64, set up by workshop.py with the family cpu, without a GPU; a test changes what it needs."""

    def __init__(self, folder, monkeypatch):
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir(parents=True)
        (self.root / "dev").mkdir(parents=True)
        self.monkeypatch = monkeypatch
        self.system = Host("Linux", "x86_64", (3, 12), "venv", False)
        self.installed = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1"}
        self.installed["pyopencl"] = "2026.1.4"
        self.torch_build, self.closed_files = "", ()
        self.answers, self.site, self.place = {}, None, Path("/home/me/workshop")
        self.lists({"opencl": [], "tensorflow": [], "jax": []})
        self.files({"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse sse2 avx avx2 f16c\n"})
        for name in filter(OURS.match, list(os.environ)):
            monkeypatch.delenv(name)
        monkeypatch.setenv("KERAS_HOME", str(folder / "keras"))
        monkeypatch.setenv("PATH", str(self.bin))  # and no tool of this machine
        monkeypatch.setattr("helpers.setup.programs.FOLDERS", ())

    def become(self, name):
        """Become a machine of the table."""
        self.change({key: value for key, value in CASES[name].items() if key not in EXPECTED})
        return self

    like = become

    def change(self, changes):
        """Change what is there: the names of methods, and what each is called with."""
        for key, value in changes.items():
            getattr(self, key)(value)

    # ------------------------------------------------------------------------------------ what is there

    def host(self, changes):
        self.system = replace(self.system, **changes)

    def files(self, texts):
        for name, text in texts.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(text))

    def closed(self, files):
        """Device files of GPUs that this user may not open."""
        self.files(dict.fromkeys((file.removeprefix("/") for file in files), ""))
        self.closed_files = tuple(files)

    def opened(self, _):
        """This user may open every device file."""
        self.closed_files = ()

    def gone(self, names):
        for name in names:
            (self.root / name).unlink()

    def cards(self, names):
        """Graphics cards on the PCI bus: the vendor, as "10de", or the vendor and the chip, as "10de:1c81"."""
        for number, name in enumerate(names):
            place = f"sys/bus/pci/devices/0000:0{number}:00.0"
            vendor, _, chip = name.partition(":")
            self.files({f"{place}/class": "0x030000\n", f"{place}/vendor": f"0x{vendor}\n"})
            if chip:
                self.files({f"{place}/device": f"0x{chip}\n"})

    def program(self, name, script):
        (self.bin / name).write_bytes(script if isinstance(script, bytes) else f"#!/bin/sh\n{script}\n".encode())
        (self.bin / name).chmod(0o755)

    def tools(self, prints):
        """Fake programs; `query` is what one answers to a query instead."""
        for name, fate in prints.items():
            printed = {"stdout": fate} if isinstance(fate, str) else fate
            script = f"printf '%s\\n' {shlex.quote(text_of(printed.get('stdout', '')))}\n"
            script += f"printf '%s' {shlex.quote(text_of(printed.get('stderr', '')))} >&2\n"
            if "query" in printed:
                script = f"case \"$*\" in *query*) printf '%s' {shlex.quote(printed['query'])}; exit;; esac\n{script}"
            self.program(name, f"{script}exit {printed.get('status', 0)}")

    def packages(self, versions):
        self.installed |= versions

    def without(self, names):
        for name in names:
            self.installed.pop(name, None)

    def distributions(self, names):
        """Packages whose lists of files name the same ones."""
        self.site = self.root / "site"
        for name in names:
            info = self.site / f"{name.replace('-', '_')}-2.21.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.21.0\n")
            (info / "RECORD").write_text("tensorflow/__init__.py,,\ntensorflow/libtensorflow_cc.so.2,,\nLICENSE,,\n")

    def torch(self, build):
        self.torch_build = build

    def variables(self, values):
        for name, value in values.items():
            self.monkeypatch.setenv(name, value.replace("{root}", str(self.root)))

    def folder(self, name):
        """The workshop's folder."""
        self.place = Path(name)

    def unset(self, names):
        for name in names:
            self.monkeypatch.delenv(name, raising=False)

    # --------------------------------------------------------------------------------- what frameworks say

    def lists(self, gpus):
        """Frameworks that answer with the processor and these GPUs."""
        for framework, names in gpus.items():
            found = [replace(CPU, framework=framework)]
            found += [Device(framework, f"gpu:{n}", name, "gpu") for n, name in enumerate(names)]
            self.answers[framework] = Answer(framework, "ok", "1.0", tuple(found))

    def message(self, words):
        """Frameworks that answer with the processor, and say why there is no GPU."""
        for framework, text in words.items():
            self.lists({framework: []})
            self.answers[framework] = replace(self.answers[framework], message=text_of(text))

    def none(self, words):
        """Frameworks that list no device, and say why."""
        for framework, text in words.items():
            self.answers[framework] = Answer(framework, "ok", "1.0", (), text)

    def fails(self, words):
        for framework, text in words.items():
            self.answers[framework] = Answer(framework, "failed", message=text)

    def opencl(self, verdicts):
        """OpenCL with one PoCL for each verdict."""
        found = [
            Device("opencl", f"{n}:0", "AMD EPYC", "cpu", version=f"OpenCL 3.0 PoCL 3.{n}", computes=text_of(verdict))
            for n, verdict in enumerate(verdicts)
        ]
        self.answers["opencl"] = Answer("opencl", "ok", "1.0", tuple(found))

    def drivers(self, vendors):
        """OpenCL with a driver for the processor by each of these vendors."""
        found = [Device("opencl", f"{n}:0", "AMD EPYC", "cpu", vendor=vendor) for n, vendor in enumerate(vendors)]
        self.answers["opencl"] = Answer("opencl", "ok", "1.0", tuple(found))

    def webgpu(self, adapters):
        """WebGPU with these adapters: (name, kind, verdict)."""
        found = [
            Device("webgpu", str(n), name, kind, version="a driver through Vulkan", computes=text_of(verdict))
            for n, (name, kind, verdict) in enumerate(adapters)
        ]
        self.answers["webgpu"] = Answer("webgpu", "ok", "0.32", tuple(found))

    def computes(self, verdicts):
        """Devices of frameworks that computed: (framework, name, how, kind), a GPU where no kind is given."""
        for framework in {verdict[0] for verdict in verdicts}:
            own = [verdict[1:] for verdict in verdicts if verdict[0] == framework]
            found = [
                Device(framework, f"{n}", name, *(kind or ["gpu"]), computes=text_of(how))
                for n, (name, how, *kind) in enumerate(own)
            ]
            self.answers[framework] = Answer(framework, "ok", "1.0", tuple(found))

    # ---------------------------------------------------------------------------------------- whole machines

    def nvidia(self, gpu):
        """A Linux machine with a working driver: its GPU's name, the driver's version, the compute capability."""
        name, driver = gpu.get("name", "NVIDIA GeForce RTX 3060"), gpu.get("driver", "570.86.15")
        capability, many = gpu.get("capability", "8.6"), gpu.get("many", 1)
        self.cards(["10de"])
        module = OUTPUTS["NVIDIA_PROC"].format(driver=driver)
        self.files({"proc/driver/nvidia/version": module, "dev/nvidiactl": "", "dev/nvidia0": ""})
        self.host({"nvidia": True})
        rows = f"{name}, {driver}, {capability}\n" * many
        table = OUTPUTS["NVIDIA_SMI_470"].replace("470.129.06", driver)
        self.tools({"nvidia-smi": {"stdout": table, "query": rows}})
        self.lists({"opencl": [name]})

    def cuda(self, name):
        """The packages of `--accel cuda`, and frameworks that list the GPU."""
        self.without(["tensorflow-cpu"])
        libraries = {"nvidia-cudnn-cu12": "9.27.0.42", "nvidia-cuda-runtime-cu12": "12.9.79"}
        plugin = {"jax-cuda12-plugin": "0.12.0.1", "jax-cuda12-pjrt": "0.12.0.1"}
        self.installed |= {"tensorflow": "2.21.0", **libraries, **plugin}
        self.variables({"KERAS_BACKEND": "jax"})
        name = name or "NVIDIA GeForce RTX 3060"
        self.lists({"tensorflow": [name], "jax": [name]})

    def amd(self, targets):
        """A Linux machine whose kernel offers AMD GPUs with these gfx targets."""
        self.cards(["1002"])
        self.files({"dev/kfd": "", "dev/dri/renderD128": ""})
        nodes = "sys/class/kfd/kfd/topology/nodes"
        self.files({f"{nodes}/0/properties": "cpu_cores_count 16\ngfx_target_version 0\n"})
        for number, target in enumerate(targets or ["gfx1100"], 1):
            digits = target.removeprefix("gfx")
            version = int(digits[:-2]) * 10_000 + int(digits[-2], 16) * 100 + int(digits[-1], 16)
            self.files({f"{nodes}/{number}/properties": f"simd_count 96\ngfx_target_version {version}\n"})
        self.lists({"opencl": ["AMD Radeon"]})

    def rocm_torch(self, gpus):
        """AMD's PyTorch as Keras' backend, which lists these GPUs."""
        self.without(["tensorflow-cpu"])
        self.answers.pop("tensorflow", None)
        self.torch_build = "hip 7.2"
        self.installed |= {"torch": "2.14.0+rocm10.1.0"}
        self.variables({"KERAS_BACKEND": "torch"})
        self.lists({"torch": gpus or ["AMD Radeon RX 7900 XTX"]})

    def wsl(self, _):
        self.host({"wsl": True})
        self.files({"proc/sys/kernel/osrelease": "@WSL_2", "dev/dxg": "", "usr/lib/wsl/lib/libcuda.so.1": ""})

    def windows(self, cards):
        self.host({"system": "Windows"})
        self.without(["tensorflow-cpu"])
        self.installed["tensorflow"] = "2.21.0"
        self.files({f"Windows/System32/{name}.dll": "" for name in ("msvcp140", "msvcp140_1", "vcruntime140_1")})
        self.tools({"powershell": "\n".join(cards)})
        self.lists({"opencl": cards})

    def mac(self, machine):
        self.host({"system": "Darwin", "machine": machine})
        self.without(["tensorflow-cpu"])
        self.installed["tensorflow"] = "2.21.0"
        self.tools({"sysctl": "0"})
        self.lists({"opencl": ["Apple M4"]})

    def metal(self, _):
        self.installed |= {"tensorflow": "2.19.1", "tensorflow-metal": "1.2.0", "torch": "2.13.0"}
        self.torch_build = "cpu"
        self.variables({"KERAS_BACKEND": "torch"})
        self.lists({"torch": ["Apple M4 GPU"]})

    # ----------------------------------------------------------------------------------------- what it tells

    def facts(self):
        def ask(framework, timeout=0):
            return self.answers.get(framework, Answer(framework, "not installed"))

        self.monkeypatch.setattr(devices, "ask", ask)
        self.monkeypatch.setattr(gather, "list_packages", lambda: dict(self.installed))
        self.monkeypatch.setattr(gather, "read_torch_build", lambda: self.torch_build)
        gathered = gather.gather(self.system, self.root)
        return replace(gathered, closed=self.closed_files, site=self.site, folder=self.place)

    def findings(self):
        return findings_of(doctor.judge(self.facts()))


def findings_of(results):
    """Return the findings among what judges found, without the words for what is fine."""
    return [item for item in results if isinstance(item, doctor.Finding)]
