"""Which requests `polyverso dashboard` answers, and with what. Without a browser."""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import time

import pytest

from conftest import COMMAND, member, status

ANY = status([member(0)])
PATHS = ["/", "/app.js", "/style.css", "/api/status", "/api/history", "/api/log", "/nothing"]


def newest(page, cookie):
    """Asks until the first poll has been made."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        code, _, body = page.ask("/api/status", Cookie=cookie)
        if code == 200:
            return json.loads(body)
        assert code == 204
    raise AssertionError("no status within 20 s")


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_the_token(shows, path):
    page = shows(ANY)
    for more in ({}, {"Cookie": f"polyverso_{page.port}=0000"}, {"Cookie": f"polyverso_{page.port}="}):
        assert page.ask(path, **more)[0] == 403
    assert page.ask(path + "?token=wrong")[0] == 403
    assert page.ask(path + "?token=")[0] == 403


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(shows):
    page = shows(ANY)
    code, headers, body = page.ask(f"/?token={page.token}")
    assert code == 200 and "<title>Polyverso</title>" in body
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
    assert page.token not in headers["Set-Cookie"] and page.token not in body
    cookie = page.cookie()
    for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css")):
        code, headers, _ = page.ask(path, Cookie=f"other=1; {cookie}")
        assert code == 200 and headers["Content-Type"].startswith(kind)
    assert page.ask("/nothing", Cookie=cookie)[0] == 404
    assert page.ask("/../etc/passwd", Cookie=cookie)[0] == 404


def test_a_foreign_host_is_refused(shows):
    page = shows(ANY)
    cookie = page.cookie()
    foreign = [f"{name}:{page.port}" for name in ("evil.example", "127.0.0.1.evil.example", "127.evil")]
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "", *foreign):
        assert page.ask("/api/status", Cookie=cookie, Host=host)[0] == 403, host
        assert page.ask(f"/?token={page.token}", Host=host)[0] == 403, host
    for host in (f"localhost:{page.port}", f"127.0.0.1:{page.port}", f"[::1]:{page.port}"):
        assert page.ask("/", Cookie=cookie, Host=host)[0] == 200, host


def test_two_hosts_are_refused(shows):
    page = shows(ANY)
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as line:
        own = f"Host: 127.0.0.1:{page.port}\r\n"
        line.sendall(f"GET / HTTP/1.1\r\n{own}{own}Cookie: {page.cookie()}\r\nConnection: close\r\n\r\n".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 403")


def test_a_foreign_origin_is_refused(shows):
    page = shows(ANY)
    cookie = page.cookie()
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{page.port}", "http://127.0.0.1:1"):
        assert page.ask("/api/status", Cookie=cookie, Origin=origin)[0] == 403, origin
    assert page.ask("/", Cookie=cookie, Origin=f"http://127.0.0.1:{page.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_only_get_is_supported(shows, method):
    page = shows(ANY)
    assert page.ask("/", method=method, Cookie=page.cookie())[0] == 405


def test_every_answer_forbids_foreign_content(shows):
    page = shows(ANY)
    for more in ({}, {"Cookie": page.cookie()}):
        for path in PATHS:
            _, headers, body = page.ask(path, **more)
            policy = headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in headers
    assert "<script>" not in body and "onload=" not in body


def test_the_status_has_a_number_and_is_sent_once(shows):
    page = shows(ANY)
    cookie = page.cookie()
    told = newest(page, cookie)
    assert told["status"] == ANY and told["error"] is None
    # Compression takes more time than it saves.
    assert page.ask("/api/status", Cookie=cookie, Accept_Encoding="gzip, br")[1]["Content-Encoding"] is None
    assert page.ask(f"/api/status?after={told['number'] + 1000}", Cookie=cookie)[0] == 204
    history = json.loads(page.ask("/api/history", Cookie=cookie)[2])
    assert {series["line"] for series in history["series"]} <= {"worker 0"}


def test_a_gossip_node_that_does_not_answer_hides_no_status(dashboard, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        nodes = tmp_path / "nodes.yaml"
        nodes.write_text(f"nodes:\n  - {{name: ann, host: 127.0.0.1, port: {silent.getsockname()[1]}}}\n")
        page = dashboard("--gossip", str(nodes))
        cookie, after, errors = page.cookie(), 0, set()
        deadline = time.monotonic() + 30
        while after < 2 and time.monotonic() < deadline:
            code, _, body = page.ask(f"/api/status?after={after}", Cookie=cookie)
            if code == 200:
                told = json.loads(body)
                after = told["number"]
                errors.add(told["error"])
            time.sleep(0.05)
    assert after >= 2 and errors == {None}


def log(page, rank):
    code, _, body = page.ask(f"/api/log?rank={rank}", Cookie=page.cookie())
    assert code == 200
    return json.loads(body)


def test_the_log_of_each_member_is_given(dashboard, cluster):
    job = cluster(2, 1)
    job.works()
    page = dashboard(env=job.environment)
    newest(page, page.cookie())
    for rank in range(3):
        told = log(page, rank)
        assert told["rank"] == rank and "error" not in told and f" info: rank {rank} of 3: " in "\n".join(told["lines"])
    assert log(page, 3)["error"] == "there is no process of rank 3"


def test_the_log_of_a_stopped_process_is_an_error(dashboard, cluster):
    job = cluster(2, 1)
    stopped = next(member for member in job.works()["members"] if member["worker"] == 1)
    page = dashboard(env=job.environment)
    newest(page, page.cookie())
    os.kill(stopped["pid"], signal.SIGSTOP)
    while pathlib.Path(f"/proc/{stopped['pid']}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.01)
    try:
        assert "has not answered within 1 s" in log(page, stopped["rank"])["error"]
    finally:
        os.kill(stopped["pid"], signal.SIGCONT)


def test_only_a_cluster_has_logs(shows):
    told = log(shows(ANY), 0)
    assert told["lines"] == [] and told["error"] == "only the processes of a cluster have a log"


def test_a_status_that_is_no_json_is_an_error_on_the_page(dashboard, tmp_path):
    path = tmp_path / "status.json"
    path.write_text("{")
    page = dashboard("--from", str(path))
    told = newest(page, page.cookie())
    assert told["status"] is None and "parse error" in told["error"]


def test_without_a_cluster_it_says_what_to_name(tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    environment["XDG_RUNTIME_DIR"] = str(tmp_path)
    told = subprocess.run([COMMAND, "dashboard"], env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert told.returncode == 2 and "--master HOST:PORT" in told.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_run_starts_one_that_ends_with_the_run(dashboard, tmp_path, number):
    page = dashboard("--dashboard", "-n", "1", "--", "sleep", "600", env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}, command=("run",))
    assert page.ask("/", Cookie=page.cookie())[0] == 200
    page.process.send_signal(number)
    assert page.process.stdout.read() is not None  # its end: the dashboard, which has the same standard error, is gone
    with pytest.raises(ConnectionRefusedError):
        page.ask("/")


def children_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def shows_page(pid):
    try:
        return b"\0dashboard\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("_", range(5))
def test_it_ends_with_a_run_that_is_killed_while_it_starts(tmp_path, _):
    command = [COMMAND, "run", "--dashboard", "-n", "1", "--", "sleep", "600"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        while not (pages := [pid for pid in children_of(run.pid) if shows_page(pid)]):
            assert run.poll() is None
        run.kill()
        try:
            assert select.select([run.stdout], [], [], 20)[0]
            run.communicate(timeout=20)
        finally:
            for pid in filter(shows_page, pages):
                os.kill(int(pid), signal.SIGKILL)


def test_run_goes_on_without_a_dashboard(shows, tmp_path):
    page = shows(ANY)
    command = [COMMAND, "run", "--dashboard", str(page.port), "-n", "1", "--", "sh", "-c", "read line; echo worked"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert f"can't listen at 127.0.0.1:{page.port}" in run.stderr.readline()
        assert "worked" in run.communicate("go on\n", timeout=20)[0] and run.returncode == 0


def test_a_file_of_nodes_that_is_not_there_is_an_error(tmp_path):
    command = [COMMAND, "dashboard", "--gossip", str(tmp_path / "nodes.yaml"), "--port", "0"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert told.returncode == 1 and "nodes.yaml: the file can't be read" in told.stderr


def test_a_taken_port_is_an_error(shows, tmp_path):
    page = shows(ANY)
    command = [COMMAND, "dashboard", "--from", "/dev/null", "--port", str(page.port)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert told.returncode == 1 and f"can't listen at 127.0.0.1:{page.port}" in told.stderr
