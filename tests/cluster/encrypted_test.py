"""Encryption between real processes in several languages, as a network sees it, and its settings."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import COMMAND
from launchers_test import environment
from ports import free_ports

RATE = 2e9  # bytes a second: no limit
OUTSIDE = "10.77.0.1"  # of the loopback device, but not of the loopback network
MARKS = {"python": 1234.5678, "perl": 2345.6789, "c": 3456.7891}
SUM = sum(struct.unpack("<f", struct.pack("<f", mark))[0] for mark in MARKS.values())

PYTHON = """
import json, os
import numpy as np, polyverso as pv
node = pv.init()
table = node.array(40000, name="marks")
table.add(np.full(40000, float(os.environ["MARK"]), np.float32))
node.barrier()
got = table.get()
assert (got == got[0]).all()
print("sum %.9g" % got[0])
print("STATUS", json.dumps(dict(node.status(), text=node.status_text(), metrics=node.metrics())))
node.barrier()
node.shutdown()
"""
PERL = """
use Polyverso;
my $node = Polyverso->init;
my $table = $node->array(size => 40000, name => 'marks');
$table->add([($ENV{MARK}) x 40000]);
$node->barrier;
my $got = $table->get(as => 'array');
printf "sum %.9g\\n", $got->[0];
$node->barrier;
$node->shutdown;
"""
COMMANDS = {"python": [sys.executable, "-c", PYTHON], "perl": ["perl", "-e", PERL], "c": [os.environ.get("ENCRYPTED_WORKER", "encrypted_worker")]}


class Capture:
    """All packets of the loopback device of this thread's network."""

    def __init__(self):
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        except PermissionError:
            pytest.skip("captures are not to be had here: this wants CAP_NET_RAW")
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.1)
        self._packets = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            try:
                self._packets.append(self._socket.recv(1 << 17))
            except TimeoutError:
                if self._ending:
                    return

    def end(self):
        self._ending = True
        self._thread.join()
        self._socket.close()
        return b"".join(self._packets)


@pytest.fixture
def network(narrow_line):
    """A network namespace with an address beyond loopback."""
    narrow_line(RATE, f"ip address add {OUTSIDE}/32 dev lo")


def work(host, **settings):
    """(the JSON of its status, standard error of all) of a cluster of one process a language."""
    port, processes = free_ports(), []
    try:
        for rank, (language, command) in enumerate(COMMANDS.items()):
            variables = environment(POLYVERSO_NODES="3", POLYVERSO_RANK=str(rank), POLYVERSO_MASTER=f"{host}:{port}", POLYVERSO_BIND=host,
                                    POLYVERSO_TRANSPORT="tcp", MARK=str(MARKS[language]), **settings)
            processes.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [process.communicate(timeout=60) for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], outputs
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for out, _ in outputs:
        assert float(re.search(r"^sum (.*)$", out, re.M)[1]) == pytest.approx(SUM, rel=1e-5)
    return json.loads(re.search(r"^STATUS (.*)$", outputs[0][0], re.M)[1]), "".join(err for _, err in outputs)


def ciphers(status):
    return {peer["cipher"] for member in status["members"] if "peers" in member for peer in member["peers"]}


def pattern(value):
    return struct.pack("<f", value) * 16


def test_beyond_loopback_the_network_sees_no_value(network):
    capture = Capture()
    status, log = work(OUTSIDE, POLYVERSO_SECRET="a secret of some length")
    seen = capture.end()
    assert len(seen) > 3 * 40000 * 4
    for value in [*MARKS.values(), SUM]:
        assert pattern(value) not in seen
    assert b"marks" not in seen
    assert all(cipher.startswith("TLS_") for cipher in ciphers(status))
    assert re.search(r"tcp TLS_\w+ 2$", status["text"], re.M)
    assert len(re.findall(r'^polyverso_peer_encrypted\{peer="[12]",cipher="TLS_\w+"\} 1$', status["metrics"], re.M)) == 2
    assert "tls=off" not in log


def test_with_tls_off_it_sees_them_and_the_log_warns(network):
    capture = Capture()
    status, log = work(OUTSIDE, POLYVERSO_SECRET="a secret of some length", POLYVERSO_TLS="off")
    seen = capture.end()
    assert all(pattern(value) in seen for value in MARKS.values())
    assert b"marks" in seen
    assert ciphers(status) == {""}
    assert "polyverso_peer_encrypted{" not in status["metrics"]
    assert "tls=off" in log and "POLYVERSO_TLS" in log


def test_on_loopback_it_is_a_choice():
    status, _ = work("127.0.0.1")
    assert ciphers(status) == {""}
    status, _ = work("127.0.0.1", POLYVERSO_TLS="psk")  # without a secret: with the token of the user
    assert all(cipher.startswith("TLS_") for cipher in ciphers(status))


def certificates(folder, days="30", names="IP:127.0.0.1", more="", kind="ec"):
    """The settings of a node with a new certificate of the authority in `folder`.

    more  further extensions, each in a line
    kind  of the node's key: ec or rsa
    """
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: apt install openssl")

    def openssl(*words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def key(name, kind="ec"):
        of = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["rsa:2048"]
        return ["-newkey", *of, "-nodes", "-keyout", folder / f"{name}.key"]

    folder.mkdir(exist_ok=True)
    if not (folder / "ca.pem").exists():
        openssl("req", "-x509", *key("ca"), "-subj", "/CN=ca", "-days", "30", "-out", folder / "ca.pem")
    (folder / "names").write_text(f"subjectAltName={names}\n{more}")
    openssl("req", *key("node", kind), "-subj", "/CN=node", "-out", folder / "node.csr")
    openssl("x509", "-req", "-in", folder / "node.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", days,
            "-extfile", folder / "names", "-out", folder / "node.pem")
    return {"POLYVERSO_TLS": "mutual", "POLYVERSO_TLS_CERT": str(folder / "node.pem"), "POLYVERSO_TLS_KEY": str(folder / "node.key"),
            "POLYVERSO_TLS_CA": str(folder / "ca.pem")}


def test_certificates_take_the_place_of_a_secret(network, tmp_path):
    files = certificates(tmp_path / "a", names=f"IP:{OUTSIDE}")
    capture = Capture()
    status, _ = work(OUTSIDE, **files)
    seen = capture.end()
    expires = float(re.search(r"^polyverso_tls_certificate_expires_seconds (\S+)$", status["metrics"], re.M)[1])
    assert 29 < (expires - time.time()) / 86_400 < 31
    assert all(pattern(value) not in seen for value in MARKS.values())
    assert all(cipher.startswith("TLS_") for cipher in ciphers(status))


METRICS = """
import json, sys
import polyverso as pv
node = pv.init()
print(node.status()["members"][0]["metrics"], flush=True)
sys.stdin.readline()
node.shutdown()
"""


def fetch(url, files=None, cert=True):
    """GET /metrics with the node's certificate, or without one."""
    context = ssl.create_default_context(cafile=files["POLYVERSO_TLS_CA"]) if files else None
    if cert:
        context.load_cert_chain(files["POLYVERSO_TLS_CERT"], files["POLYVERSO_TLS_KEY"])
    with urllib.request.urlopen(url + "/metrics", timeout=30, context=context) as answer:
        return answer.read().decode()


def expiry_of(url, files):
    """When the certificate of this server expires."""
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=files["POLYVERSO_TLS_CA"])
    context.load_cert_chain(files["POLYVERSO_TLS_CERT"], files["POLYVERSO_TLS_KEY"])
    with socket.create_connection((host, int(port)), timeout=30) as connection, context.wrap_socket(connection, server_hostname=host) as encrypted:
        return ssl.cert_time_to_seconds(encrypted.getpeercert()["notAfter"])


def test_metrics_are_https_for_clients_with_a_certificate(tmp_path):
    files, others = certificates(tmp_path / "a"), certificates(tmp_path / "b")
    serving = subprocess.Popen([sys.executable, "-c", METRICS], env=environment(POLYVERSO_METRICS="0", **files), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        url = serving.stdout.readline().strip()
        assert url.startswith("https://127.0.0.1:")
        for _ in range(2):
            assert "polyverso_build_info" in fetch(url, files)
        refused = (urllib.error.URLError, ConnectionError, ssl.SSLError, http.client.HTTPException)
        for what in (lambda: fetch(url, files, cert=False), lambda: fetch(url, {**others, "POLYVERSO_TLS_CA": files["POLYVERSO_TLS_CA"]}),
                     lambda: fetch(url, others), lambda: fetch("http" + url[5:], cert=False)):
            with pytest.raises(refused):
                what()
        # A new certificate is used by the next connection.
        certificates(tmp_path / "a", days="3")
        assert expiry_of(url, files) < time.time() + 4 * 86_400
        output = tmp_path / "trace.json"
        for variables, status in ((files, 0), ({}, 1)):
            traced = subprocess.run([COMMAND, "trace", "--http", url, "-o", output], env=environment(**variables), capture_output=True, text=True)
            assert traced.returncode == status, traced.stderr
        assert "set POLYVERSO_TLS_CERT" in traced.stderr
        assert json.loads(output.read_text())["traceEvents"]
    finally:
        serving.communicate("end\n", timeout=60)
    assert serving.returncode == 0


def doctor(*arguments, **variables):
    done = subprocess.run([COMMAND, "doctor", "--json", *arguments], env=environment(**variables), capture_output=True, text=True, timeout=60)
    return {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_the_doctor_tells_what_is_encrypted_and_when_certificates_expire(network, tmp_path):
    place = {"POLYVERSO_NODES": "2", "POLYVERSO_RANK": "1", "POLYVERSO_MASTER": f"{OUTSIDE}:{free_ports()}", "POLYVERSO_BIND": OUTSIDE,
             "POLYVERSO_SECRET": "a secret of some length"}
    assert doctor(**place)["encryption"]["verdict"] == "ok"
    off = doctor(POLYVERSO_TLS="off", **place)["encryption"]
    assert off["verdict"] == "note" and "POLYVERSO_TLS" in off["todo"]
    assert doctor(**place, **certificates(tmp_path / "a", "30"))["certificate"]["verdict"] == "ok"
    soon = doctor(**place, **certificates(tmp_path / "a", "3"))["certificate"]
    assert soon["verdict"] == "note" and "expires in" in soon["text"] and "renew" in soon["todo"]
    wrong = certificates(tmp_path / "a", "3")
    (tmp_path / "a" / "node.key").write_text("no key")
    failed = doctor(**place, **wrong)["certificate"]
    assert failed["verdict"] == "problem" and "tls_key" in failed["text"]


MASTER = """
import polyverso as pv
print("ready", flush=True)
try:
    pv.init()
except pv.Error as error:
    print(error)
"""


@pytest.mark.parametrize("mode", ["psk", "mutual"])
def test_the_doctor_reaches_an_encrypted_master(mode, tmp_path):
    settings = certificates(tmp_path / "a") if mode == "mutual" else {"POLYVERSO_TLS": "psk"}
    address = f"127.0.0.1:{free_ports()}"
    place = {"POLYVERSO_NODES": "2", "POLYVERSO_MASTER": address, "POLYVERSO_INIT_TIMEOUT_MS": "30000"}
    variables = dict(environment(**settings), **place, POLYVERSO_RANK="0")
    master = subprocess.Popen([sys.executable, "-c", MASTER], env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert master.stdout.readline() == "ready\n"
        for _ in range(100):  # until it listens
            found = doctor("--master", address, **settings)
            if "encryption" in found and found["encryption"]["text"].startswith("TLS_"):
                break
        assert found["encryption"]["verdict"] == "ok" and found["encryption"]["text"].startswith("TLS_"), found
        plain = doctor("--master", address, POLYVERSO_TLS="off")["encryption"]
        assert plain["verdict"] == "problem" and f"tls={mode}" in plain["text"] and "POLYVERSO_TLS" in plain["todo"]
    finally:
        master.kill()
        master.communicate()


def refused(**variables):
    command = [sys.executable, "-c", "import polyverso as pv; pv.init()"]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return done.stderr


def test_settings_that_do_not_fit_are_errors_that_name_them(tmp_path):
    place = {"POLYVERSO_NODES": "2", "POLYVERSO_RANK": "0", "POLYVERSO_MASTER": f"127.0.0.1:{free_ports()}"}
    assert "POLYVERSO_TLS=ssl" in refused(POLYVERSO_TLS="ssl", **place)
    assert "tls_cert" in refused(POLYVERSO_TLS="mutual", **place)
    files = certificates(tmp_path / "a")
    assert "tls=mutual" in refused(**dict(files, POLYVERSO_TLS="psk"), **place)
    none = refused(**dict(files, POLYVERSO_TLS_CERT=str(tmp_path / "none.pem")), **place)
    assert "tls_cert" in none and "No such file" in none
    rsa = certificates(tmp_path / "b", kind="rsa")
    mixed = refused(**dict(files, POLYVERSO_TLS_KEY=rsa["POLYVERSO_TLS_KEY"]), **place)
    assert "is not the private key of tls_cert" in mixed


def test_a_key_of_another_kind_replaces_nothing(tmp_path):
    """A renewal from EC to RSA, between the moments at which its two files are replaced."""
    folder = tmp_path / "a"
    files = certificates(folder)
    old = (folder / "node.key").read_bytes()
    serving = subprocess.Popen([sys.executable, "-c", METRICS], env=environment(POLYVERSO_METRICS="0", **files), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        url = serving.stdout.readline().strip()
        mine = dict(files)
        for name in ("CERT", "KEY"):
            mine[f"POLYVERSO_TLS_{name}"] = str(shutil.copy(files[f"POLYVERSO_TLS_{name}"], tmp_path))
        certificates(folder, days="3", kind="rsa")
        new = (folder / "node.key").read_bytes()
        (folder / "node.key").write_bytes(old)  # the certificate came first
        assert expiry_of(url, mine) > time.time() + 20 * 86_400
        (folder / "node.key").write_bytes(new)
        assert expiry_of(url, mine) < time.time() + 4 * 86_400
    finally:
        serving.communicate("end\n", timeout=60)
    assert serving.returncode == 0


WAITS = """
node = pv.init()
say("up")
wait_for_word()
node.shutdown()
"""


@pytest.mark.parametrize("arguments", [("status",), ("status", "--json"), ("status", "--log", "0"), ("trace",)])
def test_observers_have_the_settings_of_tls(cluster, arguments, tmp_path):
    files = certificates(tmp_path / "a")
    job = cluster(1, 1, metrics="127.0.0.1:0", **{name.removeprefix("POLYVERSO_").lower(): value for name, value in files.items()})
    nodes = [job.python(0, WAITS), job.server(0)]
    nodes[0].hear("up")
    if arguments == ("trace",):
        arguments += ("-o", str(tmp_path / "trace.json"))
    asked = {"POLYVERSO_MASTER": job.address, "POLYVERSO_SECRET": job.environment(0)["POLYVERSO_SECRET"]}
    for variables, status in ((files, 0), ({}, 1)):
        done = subprocess.run([COMMAND, *arguments], env=environment(**asked, **variables), capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr
    assert "tls=mutual" in done.stderr
    wrong = subprocess.run([COMMAND, "status"], env=environment(POLYVERSO_TLS="mutual", **asked), capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 1 and "tls=mutual needs tls_cert" in wrong.stderr
    nodes[0].tell("end")
    for node in nodes:
        node.ends()


def test_a_run_is_found_by_its_own_settings_of_tls(start, tmp_path):
    files = certificates(tmp_path / "a")
    sets = [word for name, value in files.items() for word in ("--set", f"{name.removeprefix('POLYVERSO_').lower()}={os.path.relpath(value)}")]
    waits = "import sys, polyverso as pv; node = pv.init(); print('up', node.worker_id, flush=True); sys.stdin.readline()"
    job = start("run", "-n", "1", "--servers", "1", "--max-workers", "2", *sets, "--no-color", "--", "python3", "-c", waits, stdin=subprocess.PIPE)
    job.read_until("up 0")
    shown = subprocess.run([COMMAND, "status", str(job.process.pid)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert shown.returncode == 0 and "worker 0" in shown.stdout, shown
    added = start("run", "--join", str(job.process.pid), "--no-color", "--", "python3", "-c", waits, cwd=tmp_path)
    status, out, err = added.finish(60)
    assert status == 0 and "up 1" in out, (status, out, err)
    job.process.stdin.write("end\n")
    job.process.stdin.flush()
    assert job.finish(60)[0] == 0


def test_members_that_refuse_each_other_do_not_wait_for_ever(cluster, tmp_path):
    """The master takes both, but a worker refuses a server's certificate."""
    good, one_way = certificates(tmp_path / "a"), certificates(tmp_path / "a", more="extendedKeyUsage=clientAuth\n")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one_way = {name: value.replace("/a/", "/b/") for name, value in one_way.items()}
    good = certificates(tmp_path / "a")

    def settings(files):
        return {name.removeprefix("POLYVERSO_").lower(): value for name, value in files.items()}

    job = cluster(2, 2, transport="tcp", heartbeat_timeout_ms=2000, init_timeout_ms=20_000)
    script = "node = pv.init()\nsay('up')\nattempt(lambda: node.array(1000, name='t').add(np.ones(1000, np.float32)))\n"
    workers = [job.python(rank, script, **settings(good)) for rank in range(2)]
    servers = [job.server(0, **settings(good)), job.server(1, **settings(one_way))]
    endings = [worker.hear_attempt(60)[1] for worker in workers]
    assert any("extendedKeyUsage" in ending for ending in endings), endings
    for node in workers + servers:
        node.kill()


def test_polyverso_run_has_a_setting_for_it(run):
    status, out, err = run("-n", "2", "--tls", "psk", "--set", "transport=tcp", "--", sys.executable, "-c", SHOW)
    assert status == 0, err
    assert len(re.findall("TLS_AES_128_GCM_SHA256", out)) >= 2
    status, _, err = run("-n", "2", "--tls", "ssl", "--", "true")
    assert status == 2 and "--tls" in err


SHOW = """
import polyverso as pv
node = pv.init()
node.barrier()
print("cipher", node.status(), node.metrics())
node.barrier()
node.shutdown()
"""


GOSSIP = """
import json, sys, time
import numpy as np
from polyverso import gossip
model = np.full(40000, float(sys.argv[3]), np.float32)
with gossip.Gossip(sys.argv[1], sys.argv[2]) as node:
    node.publish([model], 1.0)
    print("published", flush=True)
    deadline = time.monotonic() + 30
    fetched = None
    while fetched is None and time.monotonic() < deadline:
        if node.fetch_start():
            fetched = node.fetch_wait(1.0)
    print("STATE", json.dumps(node.state), flush=True)
    sys.stdin.read()
"""


def swarm(config):
    nodes = [subprocess.Popen([sys.executable, "-c", GOSSIP, config, name, str(MARKS[like])], env=environment(), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for name, like in (("red", "python"), ("blue", "perl"))]
    try:
        states = []
        for node in nodes:
            lines = [node.stdout.readline() for _ in range(2)]
            assert lines[1].startswith("STATE"), (lines, node.communicate("", timeout=60))
            states.append(json.loads(lines[1].removeprefix("STATE")))
        for node in nodes:
            _, err = node.communicate("", timeout=60)
            assert node.returncode == 0, err
        return states
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
                node.communicate()


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_gossip_is_encrypted_too(mode, network, tmp_path):
    config = tmp_path / "nodes.yaml"
    nodes = "".join(f"  - {{name: {name}, host: {OUTSIDE}, port: {free_ports()}}}\n" for name in ("red", "blue"))
    config.write_text(f"nodes:\n{nodes}transport: tcp\ntls: {mode}\nsecret: a secret of some length\n")
    capture = Capture()
    states = swarm(str(config))
    seen = capture.end()
    for state in states:
        assert [peer["transport"].startswith("tcp, TLS_") for peer in state["peers"]] == [mode == "auto"]
    assert any(pattern(MARKS[like]) in seen for like in ("python", "perl")) == (mode == "off")
