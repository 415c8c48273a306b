"""Scenarios: every field from a file and from the command line, and what is said of a wrong one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import check
from hypothesis import given, settings
from hypothesis import strategies as st

from checker.fields import DRAFTERS, FIELDS, REQUEST_FIELDS, Field
from checker.scenario import (
    ScenarioError,
    build,
    override,
    parse_option,
    parse_request,
    parse_value,
    preset_names,
    read_file,
    read_preset,
    to_document,
    to_toml,
)
from models.config import Scenario

SMALL: dict[str, Any] = {
    "pool": {"usable_blocks": 4, "block_size": 4},
    "budgets": {"max_model_len": 16},
    "requests": [{"id": "a", "prompt": 3, "max_tokens": 2}],
}

# A value of each field that is right and not the default, as it is written in a file and as an option.
RIGHT: dict[str, tuple[Any, str]] = {
    "scheduler.scheduler": ("rbln", "rbln"),
    "scheduler.release": ("0.33", "0.33"),
    "scheduler.policy": ("none", "none"),
    "scheduler.scheduling_policy": ("priority", "priority"),
    "scheduler.watermark": (0.25, "0.25"),
    "pool.usable_blocks": (9, "9"),
    "pool.block_size": ([16, 8], "[16, 8]"),
    "budgets.max_num_batched_tokens": (5, "5"),
    "budgets.max_num_seqs": (2, "2"),
    "budgets.max_model_len": (17, "17"),
    "speculation.method": ("eagle", "eagle"),
    "speculation.num_speculative_tokens": (2, "2"),
    "speculation.num_lookahead_tokens": (1, "1"),
    "speculation.draft_slots": (1, "1"),
    "environment.accepted": ([1, 2], "1..2"),
    "environment.proposed": ("up-to", "up-to"),
    "environment.eos": (True, "true"),
}

# Wrong values, with what is said to be allowed.
AT_LEAST_0 = "must be an integer of at least 0"
AT_LEAST_1 = "must be an integer of at least 1"
WRONG: dict[str, tuple[list[Any], str]] = {
    "scheduler.scheduler": (["sglang", 1, True], "must be one of 'vllm', 'rbln'"),
    "scheduler.release": (["0.29", 0.4, "latest"], "must be one of '0.30', '0.31', '0.32', '0.33'"),
    "scheduler.policy": ([""], "must be a non-empty string of printable characters"),
    "scheduler.scheduling_policy": (["lifo", 0], "must be one of 'fcfs', 'priority'"),
    "scheduler.watermark": ([-0.1, 1, 1.5, "low", True], "must be a number from 0 to below 1"),
    "pool.usable_blocks": ([0, -1, 1.5, "many", True], AT_LEAST_1),
    "pool.block_size": (
        [0, "16", 16.0, [], [16, 0], True],
        "must be a positive integer, or a list of one for each KV cache group, such as [16, 8]",
    ),
    "budgets.max_num_batched_tokens": ([0, 2.0, "all"], AT_LEAST_1),
    "budgets.max_num_seqs": ([0, "all"], AT_LEAST_1),
    "budgets.max_model_len": ([1, 0, "long"], "must be an integer of at least 2"),
    "speculation.method": (["medusa", 3], "must be one of " + ", ".join(map(repr, DRAFTERS))),
    "speculation.num_speculative_tokens": ([-1, 1.5, "three"], AT_LEAST_0),
    "speculation.num_lookahead_tokens": ([-1, "k"], AT_LEAST_0),
    "speculation.draft_slots": ([-1, "one"], AT_LEAST_0),
    "environment.accepted": (
        [-1, "all", [2, 1], [1, 2, 3], 0.5],
        'must be "any", an integer of at least 0, or [least, most]',
    ),
    "environment.proposed": (["never", 2], "must be one of 'always', 'up-to'"),
    "environment.eos": ([0, "yes", "False"], "must be true or false"),
    "requests.id": ([1, "", " ", "a\nb", "\x1b[31m"], "must be a non-empty string of printable"),
    "requests.prompt": (
        [0, "long", [4, 3], [1], [1, 2, 3], True],
        "must be an integer of at least 1, or [least, most] with least <= most",
    ),
    "requests.max_tokens": ([0, 1.5, "few"], AT_LEAST_1),
    "requests.priority": ([-1, "high"], AT_LEAST_0),
    "requests.arrival": ([-1, "late"], AT_LEAST_0),
}


def write(path: Path, document: dict[str, Any]) -> Path:
    """The document as a TOML file, one section after the other."""
    lines = [f"{name} = {toml(value)}" for name, value in document.items() if not nested(value)]
    for section, value in document.items():
        for table in value if isinstance(value, list) else [value]:
            if nested(value):
                lines.append(f"[[{section}]]" if isinstance(value, list) else f"[{section}]")
                lines += [f"{name} = {toml(one)}" for name, one in table.items()]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and value and nested(value[0]))


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(one):04x}" for one in value) + '"'
    return str(value)


def with_field(field: Field, value: Any) -> dict[str, Any]:
    if field.section != "requests":
        return override(SMALL, {field.path: value})
    return SMALL | {"requests": [SMALL["requests"][0] | {field.name: value}]}


def refused(arguments: tuple[str, ...]) -> str:
    """The one line that is said of wrong input."""
    outcome = check(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    return line


# --- right values ----------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.path)
def test_a_field_means_the_same_in_a_file_and_as_an_option(field: Field, tmp_path: Path) -> None:
    value, words = RIGHT[field.path]
    in_file = write(tmp_path / "with.toml", with_field(field, value))
    without = write(tmp_path / "without.toml", SMALL)
    by_file = tomllib.loads(check("--scenario", str(in_file), "--print-scenario").out)
    option = check("--scenario", str(without), field.flag, words, "--print-scenario")
    assert by_file == tomllib.loads(option.out) | {"name": by_file["name"]}
    unset = tomllib.loads(check("--scenario", str(without), "--print-scenario").out)
    assert {k: v for k, v in by_file.items() if k != "name"} != {
        k: v for k, v in unset.items() if k != "name"
    }


def test_every_field_is_tried() -> None:
    assert set(RIGHT) == {field.path for field in FIELDS}
    assert set(WRONG) == {field.path for field in (*FIELDS, *REQUEST_FIELDS)}


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("policy", ["prompt-only", "first-decode-step"])
def test_a_printed_scenario_is_the_same_scenario(name: str, policy: str) -> None:
    scenario = build(override(read_preset(name), {"scheduler.policy": policy}), name)
    printed = to_toml(to_document(scenario, policy))
    assert build(tomllib.loads(printed), "elsewhere") == scenario


def test_a_printed_scenario_has_every_field_and_its_meaning() -> None:
    printed = check("--preset", "vllm", "--print-scenario").out
    for field in (*FIELDS, *REQUEST_FIELDS):
        if field.name not in ("method", "arrival"):  # resolved; left out
            assert f"{field.name} = " in printed
            assert field.doc in printed


def test_strings_of_a_printed_scenario_are_escaped() -> None:
    odd = 'a "b" \\ é 请'
    document = to_document(small(), "none") | {"name": odd}
    assert tomllib.loads(to_toml(document))["name"] == odd


def small(**changes: Any) -> Scenario:
    return build(override(SMALL, {k.replace("__", "."): v for k, v in changes.items()}), "small")


@pytest.mark.parametrize(
    ("method", "k", "lookahead", "slots"),
    [
        ("ngram", 3, 0, 0),
        ("draft_model", 3, 3, 1),
        ("eagle", 3, 3, 0),
        ("mtp", 2, 2, 0),
        ("dflash", 3, 4, 3),
        ("eagle", 0, 0, 0),
    ],
)
def test_a_drafter_sets_lookahead_and_draft_slots(
    method: str, k: int, lookahead: int, slots: int
) -> None:
    chosen = {"speculation__method": method, "speculation__num_speculative_tokens": k}
    engine = small(**chosen).engine
    assert (engine.num_lookahead_tokens, engine.draft_slots) == (lookahead, slots)
    given = {"speculation__num_lookahead_tokens": 5, "speculation__draft_slots": 2}
    engine = small(**chosen, **given).engine
    assert (engine.num_lookahead_tokens, engine.draft_slots) == (5, 2)


def test_a_scenario_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", SMALL)
    assert build(read_file(path), "mine.toml").name == "mine.toml"


def test_the_policy_of_a_file_is_used_and_an_option_beats_it(tmp_path: Path) -> None:
    path = str(write(tmp_path / "s.toml", override(SMALL, {"scheduler.policy": "none"})))
    assert "vllm 0.32, none:" in check("--scenario", path).out
    assert "lookahead-only:" in check("--scenario", path, "--policy", "lookahead-only").out


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
def test_line_ends_and_byte_order_marks_of_other_systems_are_read(
    tmp_path: Path, ending: str, mark: str
) -> None:
    path = write(tmp_path / "s.toml", SMALL | {"name": "s"})
    text = mark + path.read_text().replace("\n", ending)
    path.write_bytes(text.encode())
    assert read_file(path) == SMALL | {"name": "s"}


def test_ids_may_have_any_letters(tmp_path: Path) -> None:
    ids = ["请求", "ключ", "[red]x[/red]", "é"]
    requests = [{"id": one, "prompt": 4, "max_tokens": 2} for one in ids]
    path = str(write(tmp_path / "s.toml", SMALL | {"requests": requests}))
    text = check("--scenario", path, "--usable-blocks", "5").out
    header = next(line for line in text.splitlines() if "what happened" in line)
    assert [cell.strip() for cell in header.strip("┃").split("┃")][2:-2] == ids
    assert "[red]x[/red] arrives with 4 tokens" in text
    assert "pool: A = 请求, B = ключ, C = [red]x[/red], D = é" in text


def test_fixed_arrivals_are_kept() -> None:
    requests = [
        {"id": "a", "prompt": 3, "max_tokens": 2, "arrival": 0},
        {"id": "b", "prompt": 3, "max_tokens": 2, "arrival": 2},
    ]
    scenario = build(SMALL | {"requests": requests}, "s")
    assert scenario.fixed_arrivals
    assert scenario.horizon == 2
    assert build(to_document(scenario, "prompt-only"), "s") == scenario


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("true", True),
        ("26..33", [26, 33]),
        ("26 .. 33", [26, 33]),
        ("[16, 8]", [16, 8]),
        ("up-to", "up-to"),
        ('"quoted"', "quoted"),
        ("a..b", "a..b"),
        ("", ""),
    ],
)
def test_values_on_the_command_line(words: str, value: Any) -> None:
    assert parse_value(words) == value


def test_requests_on_the_command_line() -> None:
    assert parse_request("id=1, prompt=2..5, max_tokens=4, priority=1, arrival=3") == {
        "id": "1",
        "prompt": [2, 5],
        "max_tokens": 4,
        "priority": 1,
        "arrival": 3,
    }
    outcome = check("--preset", "vllm", "--request", "id=7,prompt=26..33,max_tokens=4")
    assert "; 7(26..33+4)" in outcome.out


# --- wrong values ----------------------------------------------------------------------------

EVERY_WRONG = [
    pytest.param(field, value, WRONG[field.path][1], id=f"{field.path}={value!r}")
    for field in (*FIELDS, *REQUEST_FIELDS)
    for value in WRONG[field.path][0]
]


@pytest.mark.parametrize(("field", "value", "allowed"), EVERY_WRONG)
def test_a_wrong_value_in_a_file_is_one_clear_line(
    field: Field, value: Any, allowed: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.toml", with_field(field, value))
    line = refused(("--scenario", str(path)))
    where = field.path.replace("requests.", "requests[0].")
    unit = f" ({field.unit})" if field.unit else ""
    assert line.startswith(f"check: {path}: {where}{unit}: got {value!r}; {allowed}")


def wrong_as_option(field: Field, value: Any) -> bool:
    """Whether a wrong value can be written as an option and is wrong there too."""
    if field.path == "requests.id":
        return isinstance(value, str)  # whatever is written there is text
    if field.path == "requests.prompt":
        return not isinstance(value, list)  # commas separate pairs
    return (field.path, value) != ("pool.block_size", "16")


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [case for case in EVERY_WRONG if wrong_as_option(*case.values[:2])],
)
def test_a_wrong_value_on_the_command_line_names_the_option(
    field: Field, value: Any, allowed: str
) -> None:
    words = value if isinstance(value, str) else toml(value)
    if field.path == "scheduler.scheduler":  # a choice of argparse's
        assert "argument --scheduler: invalid choice" in check("--scheduler", words).err
        return
    if field.section == "requests":
        pairs = {"id": "a", "prompt": "3", "max_tokens": "2"} | {field.name: words}
        request = ",".join(f"{name}={word}" for name, word in pairs.items())
        line = check("--preset", "vllm", "--request", request).err
        assert line.startswith(f"check: --request {request}: {field.name}")
    else:
        line = refused(("--preset", "vllm", f"{field.flag}={words}"))
        assert line.startswith(f"check: {field.flag}") or field.name == "policy"
    assert allowed in line


def test_a_typing_error_gets_a_suggestion(tmp_path: Path) -> None:
    for document, said in (
        (
            override(SMALL, {"pool.useable_blocks": 4}),
            "pool.useable_blocks: unknown field; did you ",
        ),
        (SMALL | {"bugdets": {}}, "bugdets: unknown field; did you mean budgets?"),
        (
            SMALL | {"requests": [{"id": "a", "promt": 3, "max_tokens": 2}]},
            "requests[0].promt: unknown field; did you mean requests[0].prompt?",
        ),
        (override(SMALL, {"pool.xyz": 4}), "pool.xyz: unknown field; known: block_size, usable_"),
    ):
        path = write(tmp_path / "s.toml", document)
        assert f"{path}: {said}" in refused_again(path)
    line = refused(("--preset", "vllm", "--request", "id=a,promt=3,max_tokens=2"))
    assert line.endswith("promt: unknown field; did you mean prompt?")


def refused_again(path: Path) -> str:
    """As ``refused``, for a file that was written anew."""
    check.cache_clear()
    return refused(("--scenario", str(path)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requests": []}, "requests: must be a list of at least one [[requests]] table"),
        ({"requests": {"id": "a"}}, "requests: must be a list of at least one [[requests]] table"),
        ({"requests": [3]}, "requests[0]: got 3; must be a table"),
        ({"requests": [{"id": "a", "max_tokens": 2}]}, "requests[0].prompt (tokens): is missing;"),
        ({"requests": [{"prompt": 3, "max_tokens": 2}]}, "requests[0].id: is missing;"),
        ({"requests": [{"id": "a", "prompt": 3}]}, "requests[0].max_tokens (tokens): is missing;"),
        ({"pool": 5}, "pool: got 5; must be a table"),
        ({"scheduler": "vllm"}, "scheduler: got 'vllm'; must be a table"),
        ({"name": 5}, "name: got 5; must be a non-empty string"),
        (
            {"requests": [{"id": "a", "prompt": 16, "max_tokens": 2}]},
            "requests[0].prompt: got 16 tokens; must be below budgets.max_model_len = 16",
        ),
        (
            {"requests": [{"id": "a", "prompt": 3, "max_tokens": 2}] * 2},
            "requests[0].id: got 'a' twice; ids must differ",
        ),
        (
            {
                "requests": [
                    {"id": "a", "prompt": 3, "max_tokens": 2, "arrival": 0},
                    {"id": "b", "prompt": 3, "max_tokens": 2},
                ]
            },
            "requests[1].arrival: give every request a fixed arrival, or none",
        ),
        (
            {
                "scheduler": {"release": "0.33"},
                "speculation": {"method": "eagle"},
                "budgets": {"max_num_batched_tokens": 3, "max_model_len": 16},
            },
            "budgets.max_num_batched_tokens: got 3; vLLM 0.33 refuses to start unless it is above "
            "the lookahead, 3",
        ),
        (
            {
                "speculation": {"draft_slots": 4},
                "budgets": {"max_num_batched_tokens": 4, "max_model_len": 16},
            },
            "budgets.max_num_batched_tokens: got 4; must be above speculation.draft_slots = 4",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(SMALL | change, "here")
    assert str(caught.value).startswith(f"here: {said}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[pool\n", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"", "requests: must be a list of at least one [[requests]] table"),
        (b"[pool]\nusable_blocks = 4\nusable_blocks = 5\n", "not valid TOML"),
        (b"pool = 5\n", "pool: got 5; must be a table"),
        (b"scheduler = 5\n", "scheduler: got 5; must be a table"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(
    content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(content)
    assert refused(("--scenario", str(path))).startswith(f"check: {path}: {said}")


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    assert "cannot be read (Is a directory)" in refused(("--scenario", str(tmp_path)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("v", "got 'v'; write name=value pairs with commas between"),
        ("id=v,prompt=3", "max_tokens (tokens): is missing"),
        ("id=v,prompt=[3,4],max_tokens=2", "got '4]'; write name=value pairs"),
        ("id=v,id=w,prompt=3,max_tokens=2", "id is given twice"),
        ("id=v,prompt=5..3,max_tokens=2", "prompt (tokens): got [5, 3]; must be an integer"),
    ],
)
def test_a_wrong_request_on_the_command_line(words: str, said: str) -> None:
    line = refused(("--preset", "vllm", "--request", words))
    assert line.startswith(f"check: --request {words}: {said}")


# --- any document at all ---------------------------------------------------------------------

NAMES = [*sorted({field.name for field in (*FIELDS, *REQUEST_FIELDS)} - {"policy"}), "nope"]
SECTIONS = [*dict.fromkeys(field.section for field in FIELDS), "requests", "name", "nope"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 40),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["vllm", "rbln", "any", "0.33", "eagle", "up-to", "priority"]),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
TABLES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
DOCUMENTS = st.dictionaries(
    st.sampled_from(SECTIONS), st.one_of(TABLES, st.lists(TABLES, max_size=2), VALUES), max_size=4
)


def attempt(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What a function returns, or what it says of its arguments."""
    try:
        return function(*arguments), ""
    except ScenarioError as error:
        return None, str(error)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_a_scenario_or_one_clear_line(changes: dict[str, Any]) -> None:
    scenario, said = attempt(build, SMALL | changes, "here")
    if said:
        assert said.startswith("here: ")
        assert len(said.splitlines()) == 1
    else:
        assert build(to_document(scenario, "prompt-only"), "here") == scenario


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_any_words_on_the_command_line_are_a_value_or_one_clear_line(words: str) -> None:
    for field in FIELDS:
        if field.name != "policy":
            value, said = attempt(parse_option, field, words)
            assert said.startswith(field.flag if said else "")
            assert len(said.splitlines()) == (1 if said else 0)
            assert said or field.parse(value) is not None
    request, said = attempt(parse_request, words)
    assert said.startswith("--request ") or request["id"]
