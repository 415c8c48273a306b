"""What verdicts and exit codes mean, and the releases behind them: once, for help, docs and explain."""

from __future__ import annotations

VERDICTS = {
    "PROVED": "a theorem, for all parameters, with its assumptions",
    "HOLDS": "every reachable state of this instance was explored",
    "INCONCLUSIVE": "a limit was met; the evidence says which figure to raise",
    "VIOLATED": "a run shows it; it was replayed before it is shown",
}
EXIT_CODES = {
    0: "every required property holds",
    1: "one is violated",
    2: "the input is wrong",
    3: "inconclusive: a limit left the answer open",
    130: "interrupted",
}
# The releases whose schedulers the model was held against, and how.
HELD_AGAINST = {
    "vLLM": ("0.30.0", "0.32.0 (recorded runs)", "0.33.0"),
    "vllm-rbln": ("0.12.0 (recorded runs)",),
}


def version_text(version: str) -> str:
    """What ``--version`` prints."""
    lines = [f"kvgate {version}"]
    lines += [f"model held against {name} {', '.join(of)}" for name, of in HELD_AGAINST.items()]
    return "\n".join(lines)
