"""Edits of the model that leave out rules R9 to R18 and R23 to R27."""

from __future__ import annotations

from mutation import Mutant

CONFIG = "models/config.py"
ENVIRONMENT = "models/environment.py"
KV_CACHE = "models/kv_cache.py"
RBLN = "models/rbln.py"
SCHEDULER = "models/scheduler.py"
VLLM = "models/vllm.py"
CONFORM = "checker/conform.py"

RUNNING_LOOP = (
    Mutant(
        "R9",
        "drafts are not scheduled",
        KV_CACHE,
        "return minimum(num_tokens + drafts - computed, max_model_len - computed - 1)",
        "return minimum(num_tokens - computed, max_model_len - computed - 1)",
    ),
    Mutant(
        "R9",
        "no position is kept for the sampled token",
        KV_CACHE,
        "return minimum(num_tokens + drafts - computed, max_model_len - computed - 1)",
        "return minimum(num_tokens + drafts - computed, max_model_len - computed)",
    ),
    Mutant(
        "R9",
        "tokens are not capped at M",
        KV_CACHE,
        "return minimum(num_tokens + drafts - computed, max_model_len - computed - 1)",
        "return num_tokens + drafts - computed",
    ),
    Mutant(
        "R9",
        "vllm: a running request may exceed the budget",
        VLLM,
        "tokens = min(wanted, room)",
        "tokens = wanted",
    ),
    Mutant(
        "R9",
        "rbln: a running request may exceed the budget",
        RBLN,
        "tokens = min(wanted, token_budget)",
        "tokens = wanted",
    ),
    Mutant(
        "R10",
        "draft slots are not charged",
        VLLM,
        "self.inputs -= tokens + self.draft_slots",
        "self.inputs -= tokens",
    ),
    Mutant(
        "R10",
        "a request may take the last draft slots as tokens",
        VLLM,
        "return min(self.tokens, self.inputs - self.draft_slots)",
        "return min(self.tokens, self.inputs)",
    ),
    Mutant(
        "R11",
        "vllm: a request with nothing to do ends the loop",
        VLLM,
        "        if tokens == 0:  # R11: skipped, not a stop\n"
        "            position += 1\n"
        "            continue\n",
        "        if tokens == 0:\n            break\n",
    ),
    Mutant(
        "R11",
        "rbln: a request with nothing to do ends the loop",
        RBLN,
        "        if tokens == 0:  # R11: skipped, not a stop\n"
        "            position += 1\n"
        "            continue\n",
        "        if tokens == 0:\n            break\n",
    ),
    Mutant(
        "R12",
        "drafts past the budget count as scheduled",
        SCHEDULER,
        "drafts = tokens + request.computed - request.num_tokens",
        "drafts = request.drafts",
    ),
    Mutant(
        "R12",
        "a running request that is not scheduled loses its drafts",
        ENVIRONMENT,
        "    requests = list(state.requests)\n",
        "    requests = [r._replace(drafts=r.drafts if i in output.scheduled else 0)\n"
        "                for i, r in enumerate(state.requests)]\n",
    ),
)

PREEMPTION = (
    Mutant(
        "R13",
        "the victim is the first of the running requests",
        SCHEDULER,
        "self.running[-1]",
        "self.running[0]",
    ),
    Mutant(
        "R13",
        "the victim is never one of higher rank than the last",
        SCHEDULER,
        "victim = max(self.running, key=rank) if priority else self.running[-1]",
        "victim = self.running[-1]",
    ),
    Mutant(
        "R13",
        "the victim is never one that this step has scheduled",
        SCHEDULER,
        "max(self.running, key=rank)",
        "max([r for r in self.running if r not in self.scheduled], key=rank)",
    ),
    Mutant(
        "R13",
        "the requester is never the victim while another runs",
        SCHEDULER,
        "else self.running[-1]",
        "else ([r for r in self.running if r != index] or [index])[-1]",
    ),
    Mutant(
        "R13",
        "among equals the least urgent is the last of the workload",
        CONFIG,
        "return (spec.priority, spec.arrival or 0, index)",
        "return (spec.priority, 0, index)",
    ),
    Mutant(
        "R13",
        "vllm: one victim at most",
        VLLM,
        "            if victim == index:\n",
        "            if victim == index or step.engine.allocation(\n"
        "                step.blocks[index], request.computed + tokens).new_blocks > step.free:\n",
    ),
    Mutant(
        "R13",
        "rbln: one victim at most",
        RBLN,
        "            if victim == index:\n",
        "            if victim == index or step.engine.allocation(\n"
        "                step.blocks[index], request.computed + tokens).new_blocks > step.free:\n",
    ),
    Mutant(
        "R14",
        "blocks of a victim are free only in the next step",
        SCHEDULER,
        "        self.free += sum(self.blocks[victim])\n",
        "",
    ),
    Mutant(
        "R14",
        "a victim keeps its computed tokens",
        ENVIRONMENT,
        "computed=0, drafts=0, is_prefill_chunk=False",
        "drafts=0, is_prefill_chunk=False",
    ),
    Mutant(
        "R14",
        "a victim keeps its drafts",
        ENVIRONMENT,
        "computed=0, drafts=0, is_prefill_chunk=False",
        "computed=0, is_prefill_chunk=False",
    ),
    Mutant(
        "R14",
        "a victim loses its outputs",
        ENVIRONMENT,
        "computed=0, drafts=0, is_prefill_chunk=False",
        "outputs=0, computed=0, drafts=0, is_prefill_chunk=False",
    ),
    Mutant(
        "R14",
        "a victim goes to the back of the queue",
        SCHEDULER,
        "self.waiting.insert(0, victim)",
        "self.waiting.append(victim)",
    ),
    Mutant(
        "R14",
        "a victim goes to the front of a priority queue",
        SCHEDULER,
        "        if priority:\n            self.waiting.sort(key=rank)\n",
        "",
    ),
    Mutant(
        "R15",
        "vllm: the running loop goes on after a self-preemption",
        VLLM,
        "            break  # R15: later requests are not scheduled in this step\n",
        "            continue\n",
    ),
    Mutant(
        "R15",
        "rbln: the running loop goes on after a self-preemption",
        RBLN,
        "            break\n        step.schedule_running(index, tokens)",
        "            continue\n        step.schedule_running(index, tokens)",
    ),
    Mutant(
        "R15",
        "0.33 ends the running loop as well",
        CONFIG,
        'and self.release >= "0.33"',
        "and False",
    ),
    Mutant(
        "R16",
        "vllm: the waiting loop runs after a preemption",
        VLLM,
        "if not step.preempted:",
        "if True:",
    ),
    Mutant(
        "R16",
        "rbln: the waiting loop runs after a preemption",
        RBLN,
        "if not step.preempted and not prefill_runs:",
        "if not prefill_runs:",
    ),
    Mutant(
        "R17",
        "vllm: a victim does not give its tokens back",
        VLLM,
        "                budget.restore(restored)\n",
        "                pass\n",
    ),
    Mutant(
        "R17",
        "vllm: a victim gives its tokens back, not its draft slots",
        VLLM,
        "self.inputs += tokens + self.draft_slots",
        "self.inputs += tokens",
    ),
    Mutant(
        "R17",
        "vllm: the requester gets what a victim gives back",
        VLLM,
        "                budget.restore(restored)\n",
        "                budget.restore(restored)\n"
        "                tokens = min(wanted, budget.room)\n",
    ),
    Mutant(
        "R17",
        "vllm: the loop index does not step back",
        VLLM,
        "            if victim in ahead:  # R17: the index steps back if the victim stood before\n"
        "                position -= 1\n",
        "",
    ),
    Mutant(
        "R17",
        "vllm: the loop index steps back for a scheduled victim only, as vllm-rbln does",
        VLLM,
        "if victim in ahead:",
        "if victim in step.scheduled:",
    ),
    Mutant(
        "R17",
        "rbln: a victim does not give its tokens back",
        RBLN,
        "                token_budget += restored\n",
        "",
    ),
    Mutant(
        "R17",
        "rbln: the loop index does not step back",
        RBLN,
        "                position -= 1\n",
        "",
    ),
    Mutant(
        "R17",
        "rbln: the loop index steps back for any victim that stood before, as vLLM does",
        RBLN,
        "            victim = step.preempt_for(index, shortage)\n"
        "            if restored := step.take_back(victim):  # R17: here only a scheduled one counts\n"
        "                token_budget += restored\n"
        "                position -= 1\n",
        "            ahead = running[:position]\n"
        "            victim = step.preempt_for(index, shortage)\n"
        "            position -= victim in ahead\n"
        "            token_budget += step.take_back(victim) or 0\n",
    ),
    Mutant(
        "R17",
        "a victim stays in the step",
        SCHEDULER,
        "return self.scheduled.pop(victim, None)",
        "return self.scheduled.get(victim)",
    ),
    Mutant(
        "R17",
        "drafts of a victim stay in the step",
        SCHEDULER,
        "        self.drafts.pop(victim, None)\n",
        "",
    ),
    Mutant(
        "R18",
        "blocks of a request that emits its last token are free in the same step",
        SCHEDULER,
        "usable_blocks - sum(map(sum, self.blocks))",
        "usable_blocks - sum(sum(r.blocks) for i, r in enumerate(state.requests)"
        " if r.status != 3 or r.outputs + 1 < scenario.requests[i].max_tokens)",
    ),
)

AFTER_THE_MODEL = (
    Mutant(
        "R23",
        "rejected drafts count as computed",
        ENVIRONMENT,
        "computed=computed - (drafts - accepted),",
        "computed=computed,",
    ),
    Mutant(
        "R23",
        "accepted drafts come off as well",
        ENVIRONMENT,
        "computed=computed - (drafts - accepted),",
        "computed=computed - drafts,",
    ),
    Mutant(
        "R24",
        "every chunk samples",
        ENVIRONMENT,
        "return request.computed + tokens >= request.num_tokens",
        "return True",
    ),
    Mutant(
        "R24",
        "the last chunk does not emit",
        ENVIRONMENT,
        "    emitted = 1 + accepted\n",
        "    emitted = accepted + (request.outputs > 0)\n",
    ),
    Mutant(
        "R25",
        "the length M does not stop a request",
        ENVIRONMENT,
        "if num_tokens + emitted >= engine.max_model_len or",
        "if",
    ),
    Mutant(
        "R25",
        "max_tokens does not stop a request",
        ENVIRONMENT,
        "if num_tokens + emitted >= engine.max_model_len or request.outputs + emitted >= max_tokens:",
        "if num_tokens + emitted >= engine.max_model_len:",
    ),
    Mutant(
        "R25",
        "tokens past the stop are kept",
        CONFORM,
        "return min(step.sampled[index], room)",
        "return step.sampled[index]",
    ),
    Mutant(
        "R26",
        "prefill chunks get drafts",
        ENVIRONMENT,
        "computed=computed, drafts=0, is_prefill_chunk=True",
        "computed=computed, drafts=engine.num_spec_tokens, is_prefill_chunk=True",
    ),
    Mutant(
        "R26",
        "the next step has no drafts",
        ENVIRONMENT,
        "        drafts=proposed,\n",
        "        drafts=0,\n",
    ),
    Mutant(
        "R27",
        "arrivals go to the front of the queue",
        ENVIRONMENT,
        "queue = waiting + arrived",
        "queue = arrived + waiting",
    ),
    Mutant(
        "R27",
        "arrivals come after the schedule",
        ENVIRONMENT,
        "(scenario.requests[i].arrival or 0) <= clock",
        "(scenario.requests[i].arrival or 0) < clock",
    ),
    Mutant(
        "R27",
        "priority does not order the queue",
        ENVIRONMENT,
        "return tuple(sorted(queue, key=scenario.rank))",
        "return queue",
    ),
)

# The model clears the prefill flag of a victim, vLLM keeps it (R14): nothing reads it while the
# request waits, and the step that admits it again sets it.
UNREAD = Mutant(
    "R14",
    "a victim keeps its prefill flag",
    ENVIRONMENT,
    "computed=0, drafts=0, is_prefill_chunk=False",
    "computed=0, drafts=0",
)
