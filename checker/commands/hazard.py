"""``check hazard``: which prompt lengths of a deployment are exposed, and what the correction costs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from models.arithmetic import cdiv
from models.gates import Admission, FirstDecodeStepAlways, PromptOnly
from models.kv_cache import num_blocks_to_allocate

NAME = "hazard"
HELP = "which prompt lengths are exposed in a deployment, and what the corrected gate costs"
SHOWN_RANGES = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--block-size", type=_at_least(1), required=True, metavar="TOKENS")
    parser.add_argument("--spec-tokens", type=_at_least(0), required=True, metavar="K")
    parser.add_argument("--lookahead", type=_at_least(0), default=0, metavar="L")
    parser.add_argument(
        "--max-model-len", type=_at_least(2), default=32768, metavar="TOKENS", help="default: 32768"
    )
    parser.add_argument(
        "--free-blocks",
        type=_at_least(1),
        metavar="F",
        help="only the prompts that fail with F blocks free (default: with any number)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the hazard: a report, not a verdict, so always 0."""
    exposed = {
        "prompt-only": exposed_prompts(args, 0),
        "lookahead-only": exposed_prompts(args, args.lookahead),
    }
    if args.format == "json":
        print(json.dumps(_document(args, exposed), indent=1))
    else:
        _print(args, exposed)
    return 0


def exposed_prompts(args: argparse.Namespace, margin: int) -> list[int]:
    """Prompts in the closed form of theorem 2 for a gate's margin.

    With no number of free blocks given, it is the least that lets the prompt in: if a prompt fails
    with any, it fails with that.
    """
    from properties.theorems import in_failing_set

    found = []
    for prompt in range(1, args.max_model_len):
        counted = min(prompt + margin, args.max_model_len)
        free = args.free_blocks or num_blocks_to_allocate(counted, (args.block_size,), (0,))
        values = {
            "B": args.block_size,
            "T": prompt,
            "k": args.spec_tokens,
            "L": args.lookahead,
            "M": args.max_model_len,
            "F": free,
            "m": margin,
        }
        if in_failing_set(values):
            found.append(prompt)
    return found


def extra_blocks(args: argparse.Namespace) -> dict[int, int]:
    """Blocks that the corrected gate asks for beyond the released one, by prompt, where any."""
    extra = {}
    for prompt in range(1, args.max_model_len):
        request = Admission(prompt, args.spec_tokens, args.lookahead, args.max_model_len)
        corrected, released = FirstDecodeStepAlways().tokens(request), PromptOnly().tokens(request)
        assert isinstance(corrected, int)
        assert isinstance(released, int)
        more = cdiv(corrected, args.block_size) - cdiv(released, args.block_size)
        if more:
            extra[prompt] = more
    return extra


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers.

    >>> ranges([29, 30, 31, 45])
    [(29, 31), (45, 45)]
    """
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    return [(run[0], run[-1]) for run in found]


def _print(args: argparse.Namespace, exposed: dict[str, list[int]]) -> None:
    size, last = args.block_size, args.max_model_len - 1
    print(
        f"block size {size}, k {args.spec_tokens}, lookahead {args.lookahead}, "
        f"max_model_len {args.max_model_len}: a request preempts itself by its first decode step, "
        "with nobody else taking a block" + _or_waits(args)
    )
    for policy, prompts in exposed.items():
        share = len(prompts) / last
        print(f"{policy}: {len(prompts):,} of {last:,} prompt lengths exposed ({share:.1%})")
        if prompts:
            print(f"  prompt mod {size}: {_spans(ranges(sorted({p % size for p in prompts})))}")
            print(f"  prompts: {_spans(ranges(prompts))}")
    print("first-decode-step: none exposed (theorem 1)" + _unless(args))
    extra = extra_blocks(args)
    share = len(extra) / last
    print(
        f"  its cost: at most {max(extra.values(), default=0)} more blocks at admission, "
        f"for {share:.1%} of the prompt lengths"
    )


def _or_waits(args: argparse.Namespace) -> str:
    """With a lookahead of a block or more the first chunk, a token, may be refused already."""
    if args.lookahead < args.block_size:
        return ""
    return "; or it waits, let in by the gate and refused its first chunk"


def _unless(args: argparse.Namespace) -> str:
    if args.spec_tokens:
        return ""
    return "; but with k = 0 it is prompt-only, use first-decode-step-always"


def _spans(runs: Sequence[tuple[int, int]]) -> str:
    shown = [str(low) if low == high else f"{low}..{high}" for low, high in runs[:SHOWN_RANGES]]
    more = f" and {len(runs) - SHOWN_RANGES:,} more ranges" if len(runs) > SHOWN_RANGES else ""
    return ", ".join(shown) + more


def _document(args: argparse.Namespace, exposed: dict[str, list[int]]) -> dict[str, Any]:
    extra = extra_blocks(args)
    return {
        "schema_version": 1,
        "block_size": args.block_size,
        "num_speculative_tokens": args.spec_tokens,
        "num_lookahead_tokens": args.lookahead,
        "max_model_len": args.max_model_len,
        "free_blocks": args.free_blocks,
        "exposed": {
            policy: {
                "prompts": len(prompts),
                "share": len(prompts) / (args.max_model_len - 1),
                "residues": sorted({prompt % args.block_size for prompt in prompts}),
                "ranges": ranges(prompts),
            }
            for policy, prompts in exposed.items()
        },
        "corrected_gate": {
            "most_extra_blocks": max(extra.values(), default=0),
            "share": len(extra) / (args.max_model_len - 1),
        },
    }


def _at_least(least: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    parse.__name__ = f"integer of at least {least}"
    return parse
