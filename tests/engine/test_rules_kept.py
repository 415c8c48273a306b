"""The installed release, rule by rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checker.cli import main
from checker.engines.driver import Engine
from checker.releases import RuleVerdict, Survey, survey

pytestmark = pytest.mark.engine

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CORE = [f"R{n}" for n in range(1, 28) if n != 11]  # R11 cannot be reached in this scope
RULES = {
    "vllm": [*CORE, "R21b", "R30", "R49"],
    "rbln": [
        *(rule for rule in CORE if rule not in ("R5", "R10", "R21", "R22")),
        *(f"R{n}" for n in range(33, 42)),
    ],
}
DEPARTURES = {"R15", "R30", "R49"}  # of 0.33
EVERY_RULE = sorted({*RULES["vllm"], *RULES["rbln"]}, key=lambda rule: int(rule[1:].rstrip("b")))
FOUND: dict[str, Survey] = {}


@pytest.fixture
def found(engine: Engine) -> Survey:
    """All recorded runs on the installed release, once."""
    if engine.name not in FOUND:
        FOUND[engine.name] = survey(engine, sorted(GOLDEN.rglob("*.json")))
    return FOUND[engine.name]


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_a_rule_is_kept(engine: Engine, found: Survey, rule: str) -> None:
    """A scheduler without the rule would have done otherwise in at least one recorded run."""
    if rule not in RULES[engine.name]:
        pytest.skip(f"{rule} is not a rule of {engine.name}")
    verdicts = {a.verdict for a in found.aspects if a.rule == rule}
    departs = engine.modelled >= "0.33" and rule in DEPARTURES
    assert verdicts
    if departs:
        assert RuleVerdict.DEPARTS in verdicts
    else:
        assert verdicts == {RuleVerdict.KEPT}


def test_what_departs_is_explained(engine: Engine, found: Survey) -> None:
    """Within the model's scope the model of the installed release does the same."""
    assert len(found.runs) > 200
    for run in found.departing:
        assert engine.modelled >= "0.33"
        assert run.modelled or run.name.startswith("vllm-prefix/")


def test_the_command_prints_the_table(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["conform", "--engine", engine.name, str(GOLDEN), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    departs = {rule["rule"] for rule in document["rules"] if rule["verdict"] == "departs"}
    newer = engine.modelled >= "0.33"
    assert departs == (DEPARTURES if newer else set())
    assert code == (1 if newer else 0)
    assert document["release"] == engine.release
