"""The page to walk in: the numbers of a path, the server's manners, and the page in a browser."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from command import CHECK, check
from random_scenarios import instances

from checker.check import check as check_scenario
from checker.explore import Limits, explore
from checker.explorer import PathError, Walk, choices, initial_choices, parse_path
from checker.explorer_server import ExplorerServer
from checker.scenario import build, override, read_preset
from models.config import Scenario
from models.environment import initial_states, schedule, successors
from models.state import State

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


def preset(name: str, policy: str = "prompt-only") -> Scenario:
    """A preset under a policy."""
    return build(override(read_preset(name), {"scheduler.policy": policy}), name)


@pytest.fixture(scope="module")
def walk() -> Walk:
    """A walk in the instance with the livelock."""
    return Walk(check_scenario(preset("rbln")), "prompt-only")


# --- paths -----------------------------------------------------------------------------------


def numbered(options: Any) -> Iterator[tuple[int, list[str], str]]:
    """Every combination of choices as the page numbers them: number, answers, arrivals."""
    radixes = [len(answer["options"]) for answer in options["answers"]]
    for arrival in options["arrivals"]:
        for chosen in product(*map(range, radixes)):
            combined = 0
            for radix, option in zip(radixes, chosen, strict=True):
                combined = combined * radix + option
            words = [a["options"][n] for a, n in zip(options["answers"], chosen, strict=True)]
            number = arrival["base"] + combined * arrival["stride"] + arrival["offset"]
            yield number, words, arrival["words"]


def hold_against(
    options: Any, states: list[State], scenario: Scenario, before: State | None
) -> None:
    """The numbers of the choices are those of the states, and their words say what comes."""
    made = sorted(numbered(options))
    assert [number for number, _, _ in made] == list(range(len(states)))
    assert options["count"] == len(states)
    for number, words, arrival in made:
        for index, (spec, request) in enumerate(
            zip(scenario.requests, states[number].requests, strict=True)
        ):
            new = before is None or before.requests[index].status == 0
            told = f"{spec.id} arrives with {request.prompt} tokens"
            assert (told in arrival.split(" and ")) == (new and request.status != 0)
        for answer, word in zip(options["answers"], words, strict=True):
            index = [spec.id for spec in scenario.requests].index(answer["id"])
            ended = states[number].requests[index].status.name == "FINISHED"
            assert ended == ("ends" in word)
            if before is not None and not ended and " of " in word:
                emitted = states[number].requests[index].outputs - before.requests[index].outputs
                assert emitted == 1 + int(word.split(" of ")[0])


@pytest.mark.parametrize(
    "scenario",
    [preset(name) for name in ("vllm", "rbln", "vllm-two-groups", "vllm-priority")],
    ids=lambda scenario: scenario.name,
)
def test_the_choices_are_numbered_as_the_successors(scenario: Scenario) -> None:
    hold_against(initial_choices(scenario), list(initial_states(scenario)), scenario, None)
    exploration = explore(scenario, limits=Limits(states=400))
    for number in range(0, exploration.explored, 7):
        state = exploration.state(number)
        output = schedule(scenario, state)
        following = list(successors(scenario, state, output))
        hold_against(choices(scenario, state, output), following, scenario, state)


def test_the_same_for_random_instances() -> None:
    for scenario in (*instances(7, 4, "vllm", "none"), *instances(7, 4, "rbln", "prompt-only")):
        exploration = explore(scenario, limits=Limits(states=60))
        for number in range(0, exploration.explored, 11):
            state = exploration.state(number)
            output = schedule(scenario, state)
            count = sum(1 for _ in successors(scenario, state, output))
            made = sorted(n for n, _, _ in numbered(choices(scenario, state, output)))
            assert made == list(range(count))


def test_a_violation_is_at_the_end_of_its_path(walk: Walk) -> None:
    found = [prop for prop in walk.overview["properties"] if prop["path"] is not None]
    assert {"no-self-preemption", "no-livelock"} <= {prop["name"] for prop in found}
    for prop in found:
        view = walk.view(prop["path"])
        if prop["name"] in ("no-livelock", "bounded-recompute"):
            assert view["repeats"] == 4
        else:
            assert prop["name"] in [one["name"] for one in view["violates"]]


def test_a_view_tells_the_way_and_the_decision(walk: Walk) -> None:
    path = next(p["path"] for p in walk.overview["properties"] if p["name"] == "no-livelock")
    view = walk.view(path)
    assert len(view["history"]) == len(path) - 1
    assert view["history"][0]["what"][0] == "a arrives with 17 tokens"
    assert view["history"][4]["violates"] == ["no-self-preemption", "no-self-preemption-strict"]
    assert view["decision"]["what"][0].endswith("preempts itself, 16 tokens lost")
    assert view["state"]["free"] == 0
    assert view["decision"]["free"] == 2
    json.dumps(view)


@pytest.mark.parametrize("words", ["x", "1..2", "-1", "1.", "٣", "9" * 40, "0,1"])
def test_what_is_no_path_is_refused(words: str) -> None:
    with pytest.raises(PathError, match="is not a path"):
        parse_path(words)


def test_a_path_that_leads_nowhere_is_refused(walk: Walk) -> None:
    with pytest.raises(PathError, match="step 1 of the path: there is no answer number 999"):
        walk.view([0, 999])


# --- the server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(walk: Walk) -> Iterator[ExplorerServer]:
    """A server of the walk on a free port."""
    with ExplorerServer(walk) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(
    server: ExplorerServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    """One request, with a Host header of any kind."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_it_listens_on_the_loopback_address_alone(server: ExplorerServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg", "/api/scenario"])
def test_every_answer_forbids_what_is_from_elsewhere(server: ExplorerServer, path: str) -> None:
    answer, content = get(server, path)
    assert answer.status == 200
    assert content
    assert answer.getheader("Content-Security-Policy", "").startswith("default-src 'self';")
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Access-Control-Allow-Origin") is None
    text = content.decode().replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text.replace(server.url, "")
    assert "https:" not in text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:80", "127.0.0.1:1"])
def test_another_host_is_refused(server: ExplorerServer, host: str) -> None:
    answer, content = get(server, "/api/scenario", host)
    assert answer.status == 403
    assert b"prompt-only" not in content


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/walk?path=0", 200),
        ("/api/walk", 200),
        ("/api/walk?path=0.99999", 400),
        ("/api/walk?path=<script>", 400),
        ("/no-such", 404),
        ("/../pyproject.toml", 404),
        ("/page.js/../../cli.py", 404),
    ],
)
def test_only_the_page_and_walks_are_there(server: ExplorerServer, path: str, status: int) -> None:
    answer, content = get(server, path)
    assert answer.status == status
    assert ("error" in json.loads(content)) == (status != 200)


def test_nothing_can_be_sent_to_it(server: ExplorerServer) -> None:
    assert get(server, "/api/scenario", method="POST")[0].status == 501


# --- the command -----------------------------------------------------------------------------


def test_ctrl_c_ends_it() -> None:
    arguments = ("explore", "--preset", "rbln", "--max-states", "50")
    process = subprocess.Popen(
        [*CHECK, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("rbln 0.12.0, prompt-only: 7 blocks")
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome = check("explore", "--preset", "rbln", "--max-states", "50", "--port", port)
    assert outcome.code == 2
    assert outcome.err.startswith(f"check explore: --port {port} of 127.0.0.1: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", "70000"), "must be a port number from 0 to 65535"),
        (("--all-policies",), "choose one --policy"),
        (("--scheduler", "both"), "choose vllm or rbln"),
        (("--usable-blocks", "0"), "usable_blocks"),
        (("--preset", "no-such"), "no-such"),
    ],
)
def test_wrong_input_is_said(arguments: tuple[str, ...], words: str) -> None:
    outcome = check("explore", *arguments)
    assert outcome.code == 2
    assert words in outcome.err.replace("-blocks", "_blocks")


# --- the page in a browser -------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium with a profile of its own."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        *("no-first-run", "window-size=1300,1000", f"user-data-dir={profile}"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


class Page:
    """What a person does on the page."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, fragment: str = "") -> None:
        """A fresh load, as from a link."""
        self.driver.get("about:blank")
        self.driver.get(self.url + fragment)
        self.until(
            lambda: self.driver.execute_script("return document.body.dataset.path") is not None
        )

    def until(self, done: Any) -> None:
        """Wait for the page."""
        end = time.monotonic() + 15
        while not done():
            assert time.monotonic() < end, self.text("body")
            time.sleep(0.03)

    def text(self, selector: str) -> str:
        """What an element says."""
        return str(self.driver.find_element("css selector", selector).text)

    def path(self) -> str:
        """The path that is drawn."""
        return str(self.driver.execute_script("return document.body.dataset.path"))

    def press(self, selector: str) -> None:
        """Press a button and wait for what follows."""
        before = self.path()
        self.driver.find_element("css selector", selector).click()
        self.until(lambda: self.path() != before)

    def complaints(self) -> list[str]:
        """What the browser's console says, but for a path that was wrong on purpose."""
        return [e["message"] for e in self.driver.get_log("browser") if "400" not in e["message"]]


@pytest.fixture
def page(browser: Any, server: ExplorerServer) -> Page:
    """The page at its start."""
    made = Page(browser, server.url)
    made.open()
    return made


def test_a_person_walks_steps_back_and_returns_by_link(page: Page, walk: Walk) -> None:
    assert page.text("#step") == "Before the first step"
    assert walk.overview["instance"] in page.text("header")
    page.press("#take")
    assert (page.text("#step"), page.path()) == ("Step 0", "0")
    assert "a admitted" in page.text("#state")
    page.press("#take")
    assert page.text("#step") == "Step 1"
    assert page.text("#history").startswith("a arrives with 17 tokens; a admitted; a prefills 16")
    link = page.driver.current_url
    page.press("#back")
    assert page.path() == "0"
    page.driver.back()
    page.until(lambda: page.path() == "0.0")
    page.open(link.removeprefix(page.url))
    assert (page.path(), page.driver.current_url) == ("0.0", link)
    page.press("#restart")
    assert page.path() == ""
    assert page.complaints() == []


def test_the_answer_chosen_is_the_successor_taken(page: Page, walk: Walk) -> None:
    page.press("#take")
    for answer in range(8):
        options = walk.view(parse_path(page.path()))["choices"]
        path = page.path()
        wanted = max(numbered(options), key=lambda one: (one[0] * 7 + answer) % (len(path) + 5))
        number, words, arrival = wanted
        for position, (facet, word) in enumerate(zip(options["answers"], words, strict=True)):
            choose(page, f"answer{position}", facet["options"].index(word))
        choose(page, "arrivals", [one["words"] for one in options["arrivals"]].index(arrival))
        page.press("#take")
        assert page.path() == f"{path}.{number}"


def choose(page: Page, name: str, option: int) -> None:
    """Choose by radio button or list; of one option there is nothing to choose."""
    script = """
    const box = document.querySelector(`#choices [data-key="${arguments[0]}"]`);
    const list = box.querySelector("select");
    if (list) list.selectedIndex = arguments[1];
    else if (box.querySelector("input[type=radio]")) box.querySelectorAll("input")[arguments[1]].click();
    """
    page.driver.execute_script(script, name, option)


def test_it_jumps_to_the_violation(page: Page) -> None:
    page.press('button[data-property="no-livelock"]')
    assert "The state of step 4 again" in page.text("#findings")
    assert "This step violates no-self-preemption" in page.text("#findings")
    page.press("#history li:nth-child(3) button")
    assert page.text("#step") == "Step 2"
    page.driver.find_element("id", "copy").click()
    page.until(lambda: page.text("#copied") != "")
    assert page.complaints() == []


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("#00000000/0.1", "This link is of another scenario"),
        ("#{key}/0.99999", "there is no answer number 99999"),
        ("#{key}/<img src=x>", "is not a path"),
    ],
)
def test_a_link_that_does_not_fit_is_said(
    page: Page, walk: Walk, fragment: str, words: str
) -> None:
    page.open(fragment.replace("{key}", walk.overview["key"]))
    assert words in page.text("#message")
    assert page.path() == ""
    page.press("#take")
    assert not page.driver.find_element("id", "message").is_displayed()


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    page.driver.get_log("performance")  # what the browser did before
    page.open()
    page.press('button[data-property="no-livelock"]')
    asked = []
    for entry in page.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert any(url.endswith("/api/scenario") for url in asked)
    assert all(url.startswith((page.url, "about:", "data:")) for url in asked), asked


def test_ids_of_any_kind_are_shown_as_they_are(browser: Any) -> None:
    names = ['<img src=x onerror="document.title=1">', "漢字 & é", "a'b\"c"]
    requests = [{"id": name, "prompt": [3, 20], "max_tokens": 4} for name in names]
    changes = {"scheduler.policy": "none", "requests": requests}
    scenario = build(override(read_preset("vllm"), changes), "test")
    result = check_scenario(scenario, limits=Limits(states=100))
    with ExplorerServer(Walk(result, "none")) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        page = Page(browser, made.url)
        page.open()
        choose(page, "arrivals", len(walk_options(made)) - 1)
        page.press("#take")
        cells = browser.find_elements("css selector", "#state td:first-child")
        assert [cell.text for cell in cells] == names
        assert browser.title == "kvgate: a walk through the state graph"
        page.press("#take")
        made.shutdown()
        made.socket.close()
        browser.find_element("id", "take").click()
        page.until(lambda: "lost its server" in page.text("#message"))


def walk_options(server: ExplorerServer) -> list[Any]:
    """Who may be there at the start."""
    options: list[Any] = server.walk.view([])["choices"]["arrivals"]
    return options


def test_the_page_is_shipped() -> None:
    root = Path(__file__).parent.parent
    assert '"explorer_page/*"' in (root / "pyproject.toml").read_text(encoding="utf-8")
    assert sorted(os.listdir(root / "checker" / "explorer_page")) == [
        *("icon.svg", "index.html", "page.css", "page.js"),
    ]
