"""Edits of the model that leave out rules R33 to R41."""

from __future__ import annotations

from mutation import Mutant

CONFIG = "models/config.py"
RBLN = "models/rbln.py"
SCHEDULER = "models/scheduler.py"

RBLN_SCHEDULER = (
    Mutant(
        "R33",
        "prefills and decodes run together",
        RBLN,
        "position = len(running) - 1 if prefill_last else 0",
        "position = 0",
    ),
    Mutant(
        "R33",
        "one token left is a prefill",
        RBLN,
        "return request.computed < request.num_tokens - 1",
        "return request.computed < request.num_tokens",
    ),
    Mutant(
        "R34",
        "the waiting loop runs beside a running prefill",
        RBLN,
        "if not step.preempted and not prefill_runs:",
        "if not step.preempted:",
    ),
    Mutant(
        "R35",
        "admission needs no budget left by the decodes",
        RBLN,
        "while step.waiting and token_budget > 0:",
        "while step.waiting:",
    ),
    Mutant(
        "R35",
        "the first chunk gets what the decodes have left",
        RBLN,
        "tokens = min(request.num_tokens - request.computed, engine.max_num_batched_tokens)",
        "tokens = min(request.num_tokens - request.computed, token_budget)",
    ),
    Mutant(
        "R36",
        "the decodes stay in the step",
        RBLN,
        "            _evict(step, decodes)\n",
        "",
    ),
    Mutant(
        "R36",
        "the decodes lose their drafts",
        RBLN,
        "step.pending[index] = step.drafts.pop(index, 0)",
        "step.pending[index] = step.drafts.pop(index, 0) * 0",
    ),
    Mutant(
        "R36",
        "the decodes get back the drafts that the budget had cut",
        RBLN,
        "step.pending[index] = step.drafts.pop(index, 0)",
        "step.drafts.pop(index, 0)\n        step.pending[index] = step.requests[index].drafts",
    ),
    Mutant(
        "R36",
        "the decodes give back the blocks of this step",
        RBLN,
        "        del step.scheduled[index]\n",
        "        del step.scheduled[index]\n"
        "        step.free += sum(step.blocks[index]) - sum(step.requests[index].blocks)\n"
        "        step.blocks[index] = step.requests[index].blocks\n",
    ),
    Mutant(
        "R37",
        "a prefill joins one-token requests",
        RBLN,
        "        if prefill and len(step.scheduled) > len(decodes):  # R37: it waits without a refusal\n"
        "            break\n",
        "",
    ),
    Mutant(
        "R37",
        "a one-token request goes alone",
        RBLN,
        "        if prefill:\n            _evict",
        "        if True:\n            _evict",
    ),
    Mutant(
        "R37",
        "one-token requests join an admitted prefill",
        RBLN,
        "            _evict(step, decodes)\n            break\n",
        "            _evict(step, decodes)\n            decodes = []\n",
    ),
    Mutant(
        "R38",
        "the lookahead is not raised to k",
        CONFIG,
        "            lookahead = max(lookahead, self.num_spec_tokens)\n",
        "            pass\n",
    ),
    Mutant(
        "R38",
        "draft slots are charged",
        RBLN,
        "        step.schedule_running(index, tokens)\n        token_budget -= tokens\n",
        "        step.schedule_running(index, tokens)\n"
        "        token_budget -= tokens + step.engine.draft_slots\n",
    ),
    Mutant(
        "R38",
        "one-token requests are padded",
        RBLN,
        "        if not step.admit(index, request.computed + tokens):\n",
        "        if tokens == 1 and step.scheduled:\n"
        "            tokens += engine.num_spec_tokens\n"
        "        if not step.admit(index, request.computed + tokens):\n",
    ),
    Mutant(
        "R39",
        "any number of decodes may run",
        RBLN,
        "if len(step.running) >= engine.max_num_seqs:",
        "if False:",
    ),
    Mutant(
        "R40",
        "the decodes run when a lone prefill has preempted itself",
        RBLN,
        "        if self_preempted:  # R15, R40\n            break\n",
        "        if self_preempted:\n            position = 0\n            continue\n",
    ),
    Mutant(
        "R40",
        "the waiting loop runs when a lone prefill has preempted itself",
        RBLN,
        "if not step.preempted and not prefill_runs:",
        "if not prefill_runs and (step.running or not step.preempted):",
    ),
    Mutant(
        "R41",
        "an admitted request stands before the decodes",
        SCHEDULER,
        "self.running.append(index)",
        "self.running.insert(0, index)",
    ),
)
