"""packaging/kubernetes: Kubernetes' schemas accept it, its numbers agree, and its commands, run here as processes with an address for each pod,
become a cluster that gets ready and survives an eviction. No Kubernetes runs."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from conftest import PATIENCE
from ports import free_ports

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "packaging/kubernetes"
PYTHON = os.environ.get("ENGINES_PYTHON", "")
HAS_SCHEMAS = bool(PYTHON) and subprocess.run([PYTHON, "-c", "import kubernetes_validate"], capture_output=True, check=False).returncode == 0
# The first that has all fields, and a late one.
VERSIONS = ("1.28", "1.34")


def rendered(folder=FOLDER):
    """All resources, in one text: by kubectl, or by hand what kustomization.yaml needs of it."""
    if shutil.which("kubectl"):
        return subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=60).stdout
    customization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (settings,) = customization["configMapGenerator"]
    data = dict(literal.split("=", 1) for literal in settings["literals"])
    made = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": settings["name"]}, "data": data})
    return "---\n".join([made, *((folder / name).read_text() for name in customization["resources"])])


def by_name(text):
    """{(kind, name): resource}"""
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def resources():
    return by_name(rendered())


@pytest.fixture(scope="module")
def jobset():
    """The JobSet's jobs, which Kubernetes' schemas know, and its settings. They do not know the JobSet itself, which is an extension."""
    given = by_name(rendered(FOLDER / "jobset"))
    jobs = {
        ("Job", job["name"]): {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}
        for job in given["JobSet", "polyverso"]["spec"]["replicatedJobs"]
    }
    return {**jobs, ("ConfigMap", "polyverso"): given["ConfigMap", "polyverso-jobset"]}


def validate(version, text, file):
    file.write_text(text)
    command = [PYTHON, "-m", "kubernetes_validate", "--strict", "-k", version, str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.skipif(not HAS_SCHEMAS, reason="kubernetes-validate is missing: tools/make/engines.sh installs PyPI's, and sets ENGINES_PYTHON")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_accept_it_and_nothing_misspelt(version, resources, tmp_path):
    status, out = validate(version, rendered(), tmp_path / "all.yaml")
    assert status == 0 and out.count(" passed ") == len(resources) == 6, out
    status, out = validate(version, rendered().replace("terminationGracePeriodSeconds", "terminationGraceSeconds"), tmp_path / "misspelt.yaml")
    assert status != 0 and "terminationGraceSeconds" in out, out


@pytest.mark.skipif(not HAS_SCHEMAS, reason="kubernetes-validate is missing: tools/make/engines.sh installs PyPI's, and sets ENGINES_PYTHON")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_accept_the_jobs_of_the_jobset(version, jobset, tmp_path):
    status, out = validate(version, yaml.safe_dump_all(jobset.values()), tmp_path / "jobs.yaml")
    assert status == 0 and out.count(" passed ") == len(jobset) == 3, out


def test_the_numbers_of_the_jobset_agree(jobset):
    servers, workers = jobset["Job", "servers"]["spec"], jobset["Job", "workers"]["spec"]
    assert all(job["completions"] == job["parallelism"] for job in (servers, workers))
    assert int(jobset["ConfigMap", "polyverso"]["data"]["POLYVERSO_NODES"]) == servers["completions"] + workers["completions"]
    given = by_name(rendered(FOLDER / "jobset"))["JobSet", "polyverso"]["spec"]
    assert jobset["ConfigMap", "polyverso"]["data"]["POLYVERSO_MASTER"] == f"polyverso-servers-0-0.{given['network']['subdomain']}:7000"


def test_the_numbers_agree(resources):
    servers, job = resources["StatefulSet", "polyverso-server"]["spec"], resources["Job", "polyverso-worker"]["spec"]
    settings = resources["ConfigMap", "polyverso"]["data"]
    assert job["completions"] == job["parallelism"]
    assert int(settings["POLYVERSO_NODES"]) == servers["replicas"] + job["completions"]
    assert settings["POLYVERSO_MASTER"] == "polyverso-server-0.polyverso:7000"
    service = resources["Service", "polyverso"]["spec"]
    assert service["selector"].items() <= servers["template"]["metadata"]["labels"].items() and service["ports"][0]["port"] == 7000


TRAIN = """
import os, pathlib, time
import numpy as np, polyverso as pv
with pv.init() as node:
    table = node.array(3000, name="sums")
    table.add(np.ones(3000, np.float32))
    node.barrier()
    print("added", flush=True)
    while not pathlib.Path("go on").exists():
        time.sleep(0.05)
        table.get()  # while a server is evicted
    table.add(np.ones(3000, np.float32))
    node.barrier()
    print("sums", sorted(set(table.get().tolist())), flush=True)
"""


class Pods:
    """Containers as processes. Each pod has an address of its own in 127.0.0.0/8, and one port stands for 7000."""

    def __init__(self, engine, resources, server="polyverso-server"):
        self.engine = engine
        self.resources = resources
        self.port = str(free_ports())
        self.pods = 0
        self.servers = {f"{server}-{index}.polyverso": f"127.0.0.{10 + index}" for index in range(3)}

    def start(self, kind, name, pod):
        """(process, readiness probe's command and environment) of a pod."""
        (container,) = self.resources[kind, name]["spec"]["template"]["spec"]["containers"]
        self.pods += 1
        address = self.servers.get(f"{pod}.polyverso", f"127.0.0.{20 + self.pods}")
        fields = {"metadata.name": pod, "status.podIP": address}
        values = dict(self.resources["ConfigMap", "polyverso"]["data"])
        for one in container["env"]:
            source = one.get("valueFrom", {})
            values[one["name"]] = (
                one["value"] if "value" in one else fields[source["fieldRef"]["fieldPath"]] if "fieldRef" in source else "a secret of sixteen or more"
            )
        values["POLYVERSO_INIT_TIMEOUT_MS"] = str(int(PATIENCE * 1000))
        values["JOB_COMPLETION_INDEX"] = pod.rpartition("-")[2]  # as an Indexed Job sets it

        def here(text):
            for name, address_of in self.servers.items():
                text = text.replace(name, address_of)
            return text.replace("0.0.0.0", address).replace(":7000", f":{self.port}")

        values = {key: here(value) for key, value in values.items()}
        command = [here(word) for word in container["command"] + container.get("args", [])]
        if command[0] == "python3":
            command = [sys.executable, "-B", self.engine.script(TRAIN)]
        process = self.engine.start(*command, **values)
        return process, ([here(word) for word in container.get("readinessProbe", {}).get("exec", {}).get("command", [])], values)

    def is_ready(self, probe):
        status, _ = self.engine.run(*probe[0], timeout=30, **probe[1])
        return status == 0


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not {what} after {PATIENCE} s"
        time.sleep(0.1)


def line_of(process, expected):
    """Waits for a line of a worker."""
    while " polyverso " in (line := process.stdout.readline()):
        pass  # the log: the master has changed
    assert line.startswith(expected), line + process.communicate(timeout=PATIENCE)[0]
    return line.strip()


def form(pods, server, worker):
    """(three servers with their probes, four workers), all of them ready. server, worker: kind, name, and what the names of the pods begin with."""
    servers = [pods.start(*server[:2], f"{server[2]}-0")]
    # On one machine every process could take the master's address; in Kubernetes only this one has it.
    wait_until(lambda: pods.is_ready(servers[0][1]), "ready")
    servers += [pods.start(*server[:2], f"{server[2]}-{index}") for index in (1, 2)]
    workers = [pods.start(*worker[:2], f"{worker[2]}-{index}")[0] for index in range(4)]
    for process in workers:
        line_of(process, "added")
    for _, probe in servers:
        wait_until(lambda probe=probe: pods.is_ready(probe), "ready")
    return servers, workers


@pytest.mark.parametrize("victim", [2, 0])
def test_the_commands_make_a_cluster_that_gets_ready_and_outlives_an_evicted_server(engine, resources, victim):
    pods = Pods(engine, resources)
    servers, workers = form(pods, ("StatefulSet", "polyverso-server", "polyverso-server"), ("Job", "polyverso-worker", "polyverso-worker"))

    evicted, probe = servers.pop(victim)
    evicted.send_signal(signal.SIGTERM)
    evicted.wait(30)  # within the grace period
    assert not pods.is_ready(probe)
    replacement, probe = pods.start("StatefulSet", "polyverso-server", f"polyverso-server-{victim}")
    wait_until(lambda: pods.is_ready(probe), "ready")
    (engine.folder / "go on").touch()
    assert [line_of(worker, "sums") for worker in workers] == ["sums [8.0]"] * 4
    assert [worker.wait(PATIENCE) for worker in workers] == [0] * 4
    assert [server.wait(PATIENCE) for server in (servers[0][0], servers[1][0], replacement)] == [0] * 3


def test_the_commands_of_the_jobset_make_a_cluster(engine, jobset):
    pods = Pods(engine, jobset, "polyverso-servers-0")
    servers, workers = form(pods, ("Job", "servers", "polyverso-servers-0"), ("Job", "workers", "polyverso-workers-0"))
    (engine.folder / "go on").touch()
    assert [line_of(worker, "sums") for worker in workers] == ["sums [8.0]"] * 4
    assert [process.wait(PATIENCE) for process in (*workers, *(server for server, _ in servers))] == [0] * 7
