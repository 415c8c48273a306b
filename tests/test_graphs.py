"""The state graph as GraphML, DOT and SVG: the whole graph, and nothing that breaks the format."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from command import check

from checker.explore import explore
from checker.graph import state_graph as numbers
from checker.outputs.graphs import MOST_DRAWN, layers, state_graph, svg
from checker.scenario import build, override, read_preset

SVG = "{http://www.w3.org/2000/svg}"
SMALL = (
    *("--preset", "rbln", "--usable-blocks", "4", "--accepted", "0"),
    *("--request", "id=a,prompt=17,max_tokens=2", "--request", "id=v,prompt=29,max_tokens=2"),
)
HOSTILE = (
    *("--preset", "rbln", "--usable-blocks", "4", "--accepted", "0"),
    *("--request", 'id=<&">,prompt=17,max_tokens=2', "--request", "id=é\\,prompt=29,max_tokens=2"),
)


def small_graph(**changes: object) -> nx.DiGraph:
    """The graph of ``SMALL`` as the engine has it."""
    requests = [
        {"id": "a", "prompt": 17, "max_tokens": 2},
        {"id": "v", "prompt": 29, "max_tokens": 2},
    ]
    wanted = {"pool.usable_blocks": 4, "environment.accepted": 0, "requests": requests} | changes
    scenario = build(
        override(read_preset("rbln"), {"scheduler.policy": "prompt-only"} | wanted), "test"
    )
    return numbers(explore(scenario, keep_graph=True))


@pytest.mark.parametrize("arguments", [SMALL, HOSTILE])
def test_graphml_is_the_whole_graph(arguments: tuple[str, ...]) -> None:
    outcome = check("graph", "--as", "graphml", *arguments)
    assert outcome.code == 0
    read = nx.read_graphml(BytesIO(outcome.out.encode()), node_type=int)
    expected = small_graph()
    assert set(read.edges) == set(expected.edges)
    assert set(read.nodes) == set(expected.nodes)
    labels = [data["label"] for _, data in read.nodes(data=True)]
    assert all(label.startswith(('<&">', "é\\", "a ", "v ")) for label in labels)
    assert any("no-self-preemption" in data["violates"].split() for _, data in read.nodes.items())
    assert read.nodes[0]["initial"] is True
    assert {data["emits"] for _, data in read.nodes(data=True)} == {True, False}


@pytest.mark.parametrize("arguments", [SMALL, HOSTILE])
def test_dot_is_the_whole_graph(arguments: tuple[str, ...]) -> None:
    outcome = check("graph", *arguments)
    assert outcome.code == 0
    assert outcome.out.startswith("digraph states {\n")
    edges = {
        (int(a), int(b)) for a, b in re.findall(r"^  (\d+) -> (\d+)[ ;]", outcome.out, re.MULTILINE)
    }
    assert edges == set(small_graph().edges)
    string = r'"(?:[^"\\]|\\.)*"'
    node = re.compile(rf"^  \d+ \[label={string}(, \w+={string})*\];$")
    nodes = [line for line in outcome.out.splitlines() if re.match(r"  \d+ \[", line)]
    assert len(nodes) == small_graph().number_of_nodes()
    assert all(node.match(line) for line in nodes)


@pytest.mark.parametrize("arguments", [SMALL, HOSTILE])
def test_a_small_graph_is_drawn(arguments: tuple[str, ...]) -> None:
    outcome = check("graph", "--as", "svg", *arguments)
    assert outcome.code == 0
    root = ElementTree.fromstring(outcome.out)
    expected = small_graph()
    states = [r for r in root.iter(f"{SVG}rect") if "state" in r.get("class", "").split()]
    edges = [p for p in root.iter(f"{SVG}path") if "edge" in p.get("class", "").split()]
    assert len(states) == expected.number_of_nodes()
    assert len(edges) == expected.number_of_edges()
    assert any("violates" in r.get("class", "").split() for r in states)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for state in states:
        assert 0 <= float(state.get("x", -1)) <= width - float(state.get("width", 0))
        assert 0 <= float(state.get("y", -1)) <= height - float(state.get("height", 0))
    places = {(state.get("x"), state.get("y")) for state in states}
    assert len(places) == len(states)


def test_a_cycle_without_emission_stands_out() -> None:
    text = check(
        *("graph", "--preset", "rbln", "--accepted", "0", "--proposed", "always"),
        *("--request", "id=a,prompt=17,max_tokens=8,arrival=0"),
        *("--request", "id=b,prompt=26,max_tokens=8,arrival=1"),
        *("--request", "id=v,prompt=30,max_tokens=4,arrival=3"),
        *("--as", "graphml"),
    ).out
    read = nx.read_graphml(BytesIO(text.encode()), node_type=int)
    loop = [number for number, data in read.nodes(data=True) if data["loops"]]
    assert loop
    assert all(not read.nodes[number]["emits"] for number in loop)
    assert all(set(read.successors(number)) & set(loop) for number in loop)


def test_a_large_graph_is_not_drawn_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    outcome = check("graph", "--preset", "vllm", "-o", str(path))
    assert outcome.code == 3
    assert f"more than {MOST_DRAWN} states" in outcome.err
    assert "--as dot" in outcome.err
    assert not path.exists()


def test_a_limit_that_is_met_is_said() -> None:
    outcome = check("graph", "--preset", "vllm", "--max-states", "100")
    assert (outcome.code, outcome.out) == (3, "")
    assert "more than 100 states; raise --max-states" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--all-policies",), "choose one --policy"),
        (("--scheduler", "both"), "choose vllm or rbln"),
        (("-o", "graph.png"), "cannot tell the format; give --as graphml, dot, svg"),
        ((*SMALL, "-o", "no-such-folder/graph.dot"), "No such file or directory"),
        (("--usable-blocks", "many"), "--usable-blocks (blocks): got 'many'"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    outcome = check("graph", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_form_follows_the_name_of_the_file(tmp_path: Path) -> None:
    for name, start in (("g.dot", "digraph"), ("g.graphml", "<?xml"), ("g.SVG", "<?xml")):
        path = tmp_path / name
        assert check("graph", *SMALL, "-o", str(path)).code == 0
        assert path.read_text(encoding="utf-8").startswith(start)


def test_every_state_is_in_one_column_and_too_many_are_refused() -> None:
    scenario = build(override(read_preset("vllm"), {"scheduler.policy": "prompt-only"}), "test")
    graph = state_graph(scenario)
    columns = layers(graph)
    assert sorted(n for column in columns for n in column) == list(range(len(graph.nodes)))
    with pytest.raises(ValueError, match="at most 200"):
        svg(graph, "all")


@pytest.mark.parametrize("command", ["graph", "picture", "explore"])
def test_a_fault_of_the_checker_is_no_violation(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr("checker.outputs.graphs.explore", broken)
    monkeypatch.setattr("checker.check.check", broken)
    outcome = check.__wrapped__(command, *SMALL)
    assert outcome.code == 3
    assert "Traceback" in outcome.err
    assert outcome.err.endswith(f"check {command}: a fault of the checker, please report it\n")
