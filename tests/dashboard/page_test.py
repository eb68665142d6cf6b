"""The page of `polyverso dashboard` in a headless Chromium, with real clusters and with given statuses."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time

import pytest

from conftest import member, status

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "cluster"), str(TESTS)]
from gossip_swarm import Swarm  # noqa: E402

webdriver = pytest.importorskip("selenium.webdriver", reason="python3-selenium is not installed")
if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
    pytest.skip("chromium-driver is not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

PICTURES = os.environ.get("DASHBOARD_PICTURES")  # a folder for screenshots

WITHIN = 2  # seconds in which an event is on the page


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
        browser.execute_script("scrollTo(0, 0)")
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


def opened(browser, details):
    element = browser.find_element(By.ID, details)
    if element.get_attribute("open") is None:
        element.find_element(By.TAG_NAME, "summary").click()


def in_all_sizes(browser, name):
    """Wide and narrow, light and dark: nothing is wider than the window."""
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        for width in (1440, 390):
            resize(browser, width)
            assert fits(browser)
            picture(browser, f"{name}-{width}-{scheme}")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    resize(browser, 1440)


def test_a_stuck_worker_among_eight_is_named(browser, dashboard, cluster):
    job = cluster(8, 2)
    job.works()
    resize(browser, 1440)
    page = dashboard(env=job.environment)
    browser.get(page.link)
    wait_for(browser, "verdict", "Nobody waits")
    wait_for(browser, "history", "Sent, ")
    job.stuck.touch()
    assert wait_for(browser, "culprits", "worker 3 holds up worker 0, worker 1, worker 2, worker 4, worker 5 and 2 more") < WITHIN
    assert "adds" in visible(browser, "culprits")
    assert visible(browser, "verdict") == "worker 3 holds up 7 of 10 members."
    assert [len(browser.find_elements(By.CSS_SELECTOR, f"#hosts .chip.{tone}")) for tone in ("bad", "warn")] == [1, 7]
    opened(browser, "wait-details")
    wait_for(browser, "waits", 'of "weights" for worker 3 (has made')
    wait_for(browser, "members", "holds up 7 members")
    wait_for(browser, "tables", "worker 3, by 1 add")
    wait_for(browser, "tables", "0: 500, 1: 500")
    wait_for(browser, "groups", "worker 0, worker 1")
    opened(browser, "pairs-details")
    wait_for(browser, "pairs", "B/s")
    assert "token" not in browser.current_url
    assert not errors(browser, page)
    in_all_sizes(browser, "stuck")


def test_a_stopped_process_is_named(browser, dashboard, cluster):
    job = cluster(4, 1)
    stopped = next(member for member in job.works()["members"] if member["worker"] == 1)
    resize(browser, 1440)
    browser.get(dashboard(env=job.environment).link)
    wait_for(browser, "verdict", "Nobody waits")
    os.kill(stopped["pid"], signal.SIGSTOP)
    begun = time.monotonic()
    try:
        wait_for(browser, "members", "no answer")
        wait_for(browser, "culprits", "worker 1 holds up worker 0, worker 2, worker 3")
        assert time.monotonic() - begun < WITHIN
    finally:
        os.kill(stopped["pid"], signal.SIGCONT)
    wait_for(browser, "verdict", "Nobody waits")


def test_a_stopped_master_is_told(browser, dashboard, cluster):
    job = cluster(3, 1)
    master = next(member for member in job.works()["members"] if member["rank"] == 0)
    resize(browser, 1440)
    browser.get(dashboard(env=job.environment).link)
    wait_for(browser, "verdict", "Nobody waits")
    os.kill(master["pid"], signal.SIGSTOP)
    try:
        assert wait_for(browser, "connection", "the cluster's master has not answered yet") < WITHIN
    finally:
        os.kill(master["pid"], signal.SIGCONT)
    begun = time.monotonic()
    while visible(browser, "connection"):
        assert time.monotonic() - begun < 30
        time.sleep(0.1)


def test_the_log_of_a_member_is_shown_as_text(browser, dashboard, cluster):
    hostile = "<img src=x onerror=document.title='owned'>"
    job = cluster(4, 1, "--set", "stuck_after_ms=300", TABLE=hostile)
    job.works()
    resize(browser, 390)
    page = dashboard(env=job.environment)
    browser.get(page.link)
    wait_for(browser, "verdict", "Nobody waits")
    opened(browser, "log-details")
    wait_for(browser, "log", "info: rank 0 of 5: worker 0 of 4")
    job.stuck.touch()
    wait_for(browser, "log", "no progress for 0.3 s")
    assert hostile in visible(browser, "log") and browser.title == "Polyverso" and not browser.find_elements(By.CSS_SELECTOR, "#log *")
    assert fits(browser)
    picture(browser, "log-390")
    browser.find_element(By.CSS_SELECTOR, "#log-member option[value='2']").click()
    wait_for(browser, "log", "info: rank 2 of 5: ")
    assert not errors(browser, page)


def test_a_killed_server_is_named(browser, dashboard, cluster):
    job = cluster(3, 2)
    server = next(member for member in job.works()["members"] if member["server"] == 1)
    resize(browser, 1440)
    browser.get(dashboard(env=job.environment).link)
    wait_for(browser, "verdict", "Nobody waits")
    os.kill(server["pid"], signal.SIGKILL)
    assert wait_for(browser, "culprits", "server 1 is lost") < WITHIN
    wait_for(browser, "members", "lost: ")
    in_all_sizes(browser, "killed")


def test_a_gossip_node_that_ends_is_named(browser, dashboard, tmp_path):
    swarm = Swarm()
    try:
        for number, name in enumerate(("ann", "ben", "cid", "dee", "eva", "fay")):
            swarm.start(name, number)
        nodes = tmp_path / "nodes.yaml"
        nodes.write_text("nodes:\n" + "".join(f"  - {{name: {name}, host: 127.0.0.1, port: {port}}}\n" for name, port in swarm.ports.items()))
        resize(browser, 1440)
        page = dashboard("--gossip", str(nodes))
        browser.get(page.link)
        wait_for(browser, "verdict", "All nodes answer.")
        wait_for(browser, "gossip-charts", "Disagreement")
        swarm.nodes["dee"].kill(signal.SIGKILL)
        assert wait_for(browser, "culprits", "dee does not answer") < WITHIN
        wait_for(browser, "gossip", "no answer: ")
        assert not errors(browser, page)
        in_all_sizes(browser, "gossip")
    finally:
        swarm.end()


def test_a_stall_is_shown_within_two_seconds(browser, shows, tmp_path):
    page = shows(status([member(0), member(1)]))
    browser.get(page.link)
    wait_for(browser, "verdict", "Nobody waits")
    (tmp_path / "next.json").write_text(json.dumps(stall()))
    (tmp_path / "next.json").rename(tmp_path / "status.json")
    assert wait_for(browser, "culprits", "worker 1 holds up worker 0") < WITHIN


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
    wait_for(browser, "members", hostile)
    wait_for(browser, "reports", hostile)
    assert browser.title == "Polyverso"
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script")


def test_reports_are_a_chart_and_a_table(browser, shows):
    members = [member(rank, reports=[{"name": "loss", "value": 0.31 + rank, "count": 120, "seconds": 0.4}]) for rank in range(3)]
    resize(browser, 1440)
    browser.get(shows(status(members)).link)
    wait_for(browser, "reports", "loss")
    opened(browser, "report-details")
    wait_for(browser, "report-numbers", "2.31")
    label = browser.find_element(By.CSS_SELECTOR, "#reports canvas").get_attribute("aria-label")
    assert label == "Chart: loss, the last hour. Latest: worker 0 0.31, worker 1 1.31, worker 2 2.31"


def test_gossip_is_a_graph_and_a_table(browser, shows):
    names = ["ann", "ben", "cid", "dee"]
    nodes = [{"name": name, "address": "127.0.0.1:1", "clock": 7.5, "loss": 0.25, "averaged": 3, "disagreement": 0.125,
              "peers": [{"name": peer, "score": 900, "fetched": 3, "failed": 0, "problem": ""} for peer in names if peer != name]}
             for name in names[:3]]
    nodes.append({"name": "dee", "address": "127.0.0.1:2", "error": "nobody listens"})
    resize(browser, 390)
    browser.get(shows(nodes).link)
    wait_for(browser, "verdict", "dee does not answer.")
    wait_for(browser, "gossip", "ben 900")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#graph circle")) == 4
    assert fits(browser)
    picture(browser, "gossip-390")


def test_a_keyboard_and_a_screen_reader_reach_everything(browser, shows):
    resize(browser, 1440)
    browser.get(shows(stall()).link)
    wait_for(browser, "verdict", "worker 1 holds up 1 of 2 members.")
    wait_for(browser, "history", "Sent, ")
    keys = webdriver.ActionChains(browser)
    reached = set()
    for _ in range(20):
        keys.send_keys(Keys.TAB).perform()
        reached.add(browser.execute_script("return document.activeElement.id || document.activeElement.parentElement.id"))
    assert {"wait-count", "member-details", "pairs-details", "members", "tables"} <= reached
    browser.execute_script("document.querySelector('#pairs-details summary').focus()")
    keys.send_keys(Keys.ENTER).perform()
    assert browser.find_element(By.ID, "pairs-details").get_attribute("open") is not None
    assert browser.find_element(By.ID, "verdict").get_attribute("role") == "status"
    assert browser.execute_script("""return [...document.querySelectorAll("section")].filter((one) => !one.getAttribute("aria-labelledby")).length
      + [...document.querySelectorAll("canvas")].filter((one) => !one.getAttribute("aria-label")).length
      + [...document.querySelectorAll("table")].filter((one) => !one.caption || !one.querySelector("th[scope=col]")).length""") == 0


def test_an_update_keeps_focus_and_scroll_position(browser, shows, tmp_path):
    resize(browser, 390)
    browser.get(shows(stall()).link)
    wait_for(browser, "members", "worker 1")
    browser.execute_script("const all = document.getElementById('members'); all.focus(); all.scrollLeft = 40")
    changed = stall()
    changed["members"][0]["sent_bytes_per_second"] = 123
    (tmp_path / "next.json").write_text(json.dumps(changed))
    (tmp_path / "next.json").rename(tmp_path / "status.json")
    wait_for(browser, "members", "123 B")
    assert browser.execute_script("const all = document.getElementById('members'); return document.activeElement === all && all.scrollLeft === 40")


def test_256_members_render(browser, shows):
    busiest = [{"from": 255 - i, "to": 0, "transport": "tcp", "sent_bytes_per_second": 255.0 - i} for i in range(20)]
    members = [member(rank, host=f"node{rank // 32}", transports={"tcp": 1}) for rank in range(256)]
    resize(browser, 390)
    page = shows(status(members, busiest=busiest))
    browser.get(page.link)
    wait_for(browser, "summary", "256 workers")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#hosts .chip")) == 256
    in_all_sizes(browser, "many")
    opened(browser, "member-details")
    wait_for(browser, "members", "node7")
    wait_for(browser, "members", "tcp 1")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#members tbody tr")) == 256
    opened(browser, "pairs-details")
    wait_for(browser, "pairs", "worker 255 to worker 0")
    wait_for(browser, "history", "Sent, ")
    in_all_sizes(browser, "many-open")
    assert not errors(browser, page)


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
