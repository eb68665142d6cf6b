"""The page of `polyverso dashboard` in a headless Chromium, with real clusters and with given statuses."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from conftest import COMMAND, member, status

webdriver = pytest.importorskip("selenium.webdriver", reason="python3-selenium is not installed")
if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
    pytest.skip("chromium-driver is not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

PICTURES = os.environ.get("DASHBOARD_PICTURES")  # a folder for screenshots

WORKER = """
import os, sys, time
import numpy as np
import polyverso as pv
with pv.init() as node:
    table = node.array(1000, name="weights")
    for step in range(1000000):
        try:
            if node.worker_id == 3 and step == 5 and os.environ["ENDING"] == "sleep":
                time.sleep(3600)
            if node.worker_id == 3 and step == 5 and os.environ["ENDING"] == "kill":
                os.kill(os.getpid(), 9)
            table.add(np.ones(1000, np.float32))
            table.get()
            time.sleep(0.05)
        except pv.Error:  # the loss of worker 3: stay, to be seen
            time.sleep(3600)
"""


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def resize(browser, width, height=900):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})


def picture(browser, name):
    if PICTURES:
        height = min(browser.execute_script("return document.documentElement.scrollHeight"), 2400)
        resize(browser, browser.execute_script("return innerWidth"), height)
        time.sleep(0.5)  # only for people: charts follow a resize
        browser.save_screenshot(str(pathlib.Path(PICTURES) / f"{name}.png"))


def visible(browser, element):
    return browser.find_element(By.ID, element).text


def wait_for(browser, element, text, seconds=30):
    """Waits until an element contains a text. Returns the seconds that it took."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        with contextlib.suppress(Exception):  # elements are replaced twice a second
            if text in visible(browser, element):
                return time.monotonic() - begun
        time.sleep(0.05)
    raise AssertionError(f"no {text!r} in #{element} within {seconds} s: {visible(browser, element)!r}")


def fits(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def errors(browser, page):
    """This page's: the log still has those of earlier pages, whose commands have ended."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and f":{page.port}/" in entry["message"]]


@contextlib.contextmanager
def cluster(tmp_path, ending):
    """Four workers and a server, whose loss would end the job, in sync mode; worker 3 ends its work as `ending` says. Yields the environment for other commands."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "ENDING": ending}
    run = subprocess.Popen([COMMAND, "run", "-n", "4", "-s", "1", "--sync", "--keep-going", "--", os.environ["WORKER_PYTHON"], str(script)], env=environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while subprocess.run([COMMAND, "status"], env=environment, capture_output=True, timeout=30, check=False).returncode != 0:
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.1)
        yield environment
    finally:
        for one in (signal.SIGINT, signal.SIGINT):
            if run.poll() is None:
                run.send_signal(one)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(5)
        run.kill()
        run.wait()


def test_a_stuck_worker_is_named(browser, dashboard, tmp_path):
    with cluster(tmp_path, "sleep") as environment:
        resize(browser, 1440)
        page = dashboard(env=environment)
        browser.get(page.link)
        wait_for(browser, "culprits", "worker 3 holds up worker 0, worker 1, worker 2")
        assert "adds" in visible(browser, "culprits")
        browser.find_element(By.CSS_SELECTOR, "#wait-details summary").click()
        wait_for(browser, "waits", 'of "weights" for worker 3 (has made')
        wait_for(browser, "tables", "worker 3, by 1")
        assert "token" not in browser.current_url
        wait_for(browser, "history", "Sent, bytes per second")
        assert not errors(browser, page)
        for width in (1440, 390):
            resize(browser, width)
            assert fits(browser)
            picture(browser, f"stuck-{width}")


def test_a_killed_process_is_named(browser, dashboard, tmp_path):
    with cluster(tmp_path, "kill") as environment:
        resize(browser, 1440)
        browser.get(dashboard(env=environment).link)
        wait_for(browser, "culprits", "worker 3 is lost")
        wait_for(browser, "hosts", "lost: ")


def test_a_stall_is_shown_within_two_seconds(browser, shows, tmp_path):
    page = shows(status([member(0), member(1)]))
    browser.get(page.link)
    wait_for(browser, "verdict", "Nobody waits")
    (tmp_path / "next.json").write_text(json.dumps(stall()))
    (tmp_path / "next.json").rename(tmp_path / "status.json")
    assert wait_for(browser, "culprits", "worker 1 holds up worker 0") < 2


def stall(table="weights", what="has made 40 of 41 adds"):
    text = f'worker 0 waits 12.3 s in get #41 of "{table}" for worker 1 ({what})'
    wait = {"kind": "get", "worker": 0, "rank": 0, "table": table, "number": 41, "seconds": 12.3, "text": text,
            "awaited": [{"rank": 1, "who": "worker 1", "what": what, "silence_seconds": 12.1}]}
    workers = [{"worker": each, "adds": 41 - each, "gets": 41, "clock": 0, "own_word": True} for each in range(2)]
    tables = [{"name": table, "what": "an array of 1000 f32", "consistency": "sync", "complete": True, "workers": workers}]
    return status([member(0), member(1)], waits=[wait], tables=tables)


def test_hostile_texts_are_shown_as_text(browser, shows):
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    told = stall(table=hostile, what=hostile)
    told["members"] = [member(0, host=hostile, phase=hostile, reports=[{"name": hostile, "value": 0.5, "count": 1, "seconds": 0.1}]),
                       member(1, host=hostile, state="lost", why=hostile)]
    browser.get(shows(told).link)
    wait_for(browser, "tables", hostile)
    wait_for(browser, "culprits", hostile)
    wait_for(browser, "hosts", hostile)
    wait_for(browser, "reports", hostile)
    assert browser.title == "Polyverso"
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script")


def test_reports_are_a_chart_and_a_table(browser, shows):
    members = [member(rank, reports=[{"name": "loss", "value": 0.31 + rank, "count": 120, "seconds": 0.4}]) for rank in range(3)]
    resize(browser, 1440)
    browser.get(shows(status(members)).link)
    wait_for(browser, "reports", "loss")
    wait_for(browser, "report-numbers", "2.31")
    assert browser.find_element(By.CSS_SELECTOR, "#reports canvas").get_attribute("aria-label") == "Chart: loss, the last hour"
    picture(browser, "reports")


def test_gossip_is_a_graph_and_a_table(browser, shows):
    names = ["ann", "ben", "cid", "dee"]
    nodes = [{"name": name, "address": "127.0.0.1:1", "clock": 7.5, "loss": 0.25, "averaged": 3, "disagreement": 0.125,
              "peers": [{"name": peer, "score": 900, "fetched": 3, "failed": 0, "problem": ""} for peer in names if peer != name]} for name in names[:3]]
    nodes.append({"name": "dee", "address": "127.0.0.1:2", "error": "nobody listens"})
    resize(browser, 390)
    browser.get(shows(nodes).link)
    wait_for(browser, "verdict", "No answer of dee")
    wait_for(browser, "gossip", "ben 900")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#graph circle")) == 4
    assert fits(browser)
    picture(browser, "gossip-390")


def test_256_members_render(browser, shows):
    peers = [{"rank": 0, "transport": "tcp", "sent_bytes_per_second": 1.0}]
    members = [member(rank, host=f"node{rank // 32}", peers=peers) for rank in range(256)]
    resize(browser, 390)
    page = shows(status(members))
    browser.get(page.link)
    wait_for(browser, "summary", "256 workers")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#hosts tbody tr")) == 256
    assert fits(browser) and not errors(browser, page)


def test_the_end_of_the_command_is_said(browser, dashboard, tmp_path):
    path = tmp_path / "status.json"
    path.write_text(json.dumps(status([member(0)])))
    page = dashboard("--from", str(path))
    browser.get(page.link)
    wait_for(browser, "verdict", "Nobody waits")
    path.unlink()
    wait_for(browser, "connection", "can't be read")
    page.process.kill()
    wait_for(browser, "connection", "does not answer")
