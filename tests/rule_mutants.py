"""For every rule of ``docs/rules.md``: edits of the model that leave the rule out."""

from __future__ import annotations

from mutation import Mutant

CONFIG = "models/config.py"
ENVIRONMENT = "models/environment.py"
GATES = "models/gates.py"
KV_CACHE = "models/kv_cache.py"
RBLN = "models/rbln.py"
SCHEDULER = "models/scheduler.py"
SCRIPT = "models/script.py"
VLLM = "models/vllm.py"
ARITHMETIC = "models/arithmetic.py"
CONFORM = "checker/conform.py"

POOL = (
    Mutant(
        "R1",
        "the null block is handed out",
        SCHEDULER,
        "self.free = scenario.engine.usable_blocks -",
        "self.free = scenario.engine.usable_blocks + 1 -",
    ),
    Mutant(
        "R1",
        "the watermark leaves the null block out",
        CONFIG,
        "int(self.watermark * (self.usable_blocks + 1))",
        "int(self.watermark * self.usable_blocks)",
    ),
    Mutant(
        "R2",
        "a part of a block takes none",
        ARITHMETIC,
        "return -(-numerator // divisor)",
        "return numerator // divisor",
    ),
    Mutant(
        "R2",
        "every group has the blocks of the first",
        KV_CACHE,
        "maximum(cdiv(tokens, block_size) - have, 0)",
        "maximum(cdiv(tokens, block_sizes[0]) - have, 0)",
    ),
    Mutant(
        "R2",
        "every group has a pool of its own",
        KV_CACHE,
        "total = total + maximum(cdiv(tokens, block_size) - have, 0)",
        "total = maximum(total, maximum(cdiv(tokens, block_size) - have, 0))",
    ),
    Mutant(
        "R3",
        "an allocation gives back what it does not need",
        KV_CACHE,
        "maximum(cdiv(tokens, block_size) - have, 0)",
        "(cdiv(tokens, block_size) - have)",
    ),
    Mutant(
        "R3",
        "rejected drafts give their blocks back",
        ENVIRONMENT,
        "computed=computed - (drafts - accepted),",
        "computed=computed - (drafts - accepted), blocks=tuple(min(have, -(-(computed - drafts"
        " + accepted) // size)) for have, size in zip(request.blocks, engine.block_sizes)),",
    ),
    Mutant(
        "R4",
        "no lookahead",
        KV_CACHE,
        "return minimum(computed + new_tokens + lookahead, max_model_len)",
        "return minimum(computed + new_tokens, max_model_len)",
    ),
    Mutant(
        "R4",
        "no lookahead at admission",
        SCHEDULER,
        "wanted = engine.allocation(held, tokens)",
        "wanted = engine.allocation(held, tokens - engine.lookahead)",
    ),
    Mutant(
        "R4",
        "slots are not capped at M",
        KV_CACHE,
        "return minimum(computed + new_tokens + lookahead, max_model_len)",
        "return computed + new_tokens + lookahead",
    ),
    Mutant(
        "R5",
        "every drafter has a lookahead of k",
        CONFIG,
        "        return self.num_lookahead_tokens\n",
        "        return self.num_spec_tokens\n",
    ),
    Mutant(
        "R5",
        "every drafter takes L slots of the input budget",
        VLLM,
        "_Budget(scenario.engine.max_num_batched_tokens, scenario.engine.draft_slots)",
        "_Budget(scenario.engine.max_num_batched_tokens, scenario.engine.num_lookahead_tokens)",
    ),
)

GATE = (
    Mutant(
        "R6",
        "the gate counts the prompt, not what has been emitted since",
        SCHEDULER,
        "engine.gate_tokens(self.requests[index].num_tokens)",
        "engine.gate_tokens(self.requests[index].prompt)",
    ),
    Mutant(
        "R6",
        "lookahead-only is not capped at M",
        GATES,
        "return minimum(request.num_tokens + request.num_lookahead_tokens, request.max_model_len)",
        "return request.num_tokens + request.num_lookahead_tokens",
    ),
    Mutant(
        "R6",
        "first-decode-step is not capped at M",
        GATES,
        "return minimum(request.num_tokens + margin, request.max_model_len)",
        "return request.num_tokens + margin",
    ),
    Mutant(
        "R6",
        "prompt-only is not capped at M",
        GATES,
        "return minimum(request.num_tokens, request.max_model_len)",
        "return request.num_tokens",
    ),
    Mutant(
        "R6",
        "first-decode-step leaves out the 1 of the sampled token",
        GATES,
        "            1 + request.num_spec_tokens + request.num_lookahead_tokens,",
        "            request.num_spec_tokens + request.num_lookahead_tokens,",
    ),
    Mutant(
        "R6",
        "first-decode-step leaves out the drafts",
        GATES,
        "            1 + request.num_spec_tokens + request.num_lookahead_tokens,",
        "            1 + request.num_lookahead_tokens,",
    ),
    Mutant(
        "R6",
        "first-decode-step leaves out the lookahead",
        GATES,
        "            1 + request.num_spec_tokens + request.num_lookahead_tokens,",
        "            1 + request.num_spec_tokens,",
    ),
    Mutant(
        "R6",
        "first-decode-step has its margin without speculation too",
        GATES,
        "request.num_spec_tokens > 0,",
        "request.num_spec_tokens >= 0,",
    ),
    Mutant(
        "R6",
        "no gate at all",
        SCHEDULER,
        "if gate_tokens is not None:",
        "if False:",
    ),
    Mutant(
        "R7",
        "the gate reserves what it counts",
        SCHEDULER,
        "wanted = engine.allocation(held, tokens)",
        "wanted = engine.allocation(held, max(tokens, (gate_tokens or 0) - engine.lookahead))",
    ),
    Mutant(
        "R8",
        "no watermark",
        SCHEDULER,
        "watermark = engine.watermark_blocks if self.running else 0",
        "watermark = 0",
    ),
    Mutant(
        "R8",
        "the watermark counts for a request alone too",
        SCHEDULER,
        "watermark = engine.watermark_blocks if self.running else 0",
        "watermark = engine.watermark_blocks",
    ),
    Mutant(
        "R8",
        "the watermark counts only if a running request was scheduled",
        SCHEDULER,
        "watermark = engine.watermark_blocks if self.running else 0",
        "watermark = engine.watermark_blocks if self.scheduled else 0",
    ),
    Mutant(
        "R8",
        "the gate has no watermark",
        SCHEDULER,
        "if not fits(whole, watermark, self.free):",
        "if not fits(whole, 0, self.free):",
    ),
    Mutant(
        "R8",
        "the slots of the chunk have no watermark",
        SCHEDULER,
        "if not fits(wanted.new_blocks, watermark, self.free):",
        "if not fits(wanted.new_blocks, 0, self.free):",
    ),
    Mutant(
        "R8",
        "running requests keep the watermark free",
        SCHEDULER,
        "if not fits(wanted.new_blocks, 0, self.free):",
        "if not fits(wanted.new_blocks, self.engine.watermark_blocks, self.free):",
    ),
)

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
        "tokens = min(wanted, budget.largest)",
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
        "R10",
        "the loops go on until the input budget is empty",
        VLLM,
        "self.inputs <= self.draft_slots",
        "self.inputs <= 0",
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
        "                tokens = min(wanted, budget.largest)\n",
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

WAITING_LOOP = (
    Mutant(
        "R19",
        "vllm: whoever fits goes past the head",
        VLLM,
        "        index = step.waiting[0]\n",
        "        step.waiting.sort(key=lambda i: sum(engine.allocation(\n"
        "            engine.no_blocks, step.requests[i].num_tokens).table) > step.free)\n"
        "        index = step.waiting[0]\n",
    ),
    Mutant(
        "R19",
        "rbln: whoever fits goes past the head",
        RBLN,
        "        index = step.waiting[0]\n",
        "        step.waiting.sort(key=lambda i: sum(engine.allocation(\n"
        "            engine.no_blocks, step.requests[i].num_tokens).table) > step.free)\n"
        "        index = step.waiting[0]\n",
    ),
    Mutant(
        "R19",
        "vllm: a resumed request recomputes its prompt only",
        VLLM,
        "tokens = request.num_tokens - request.computed",
        "tokens = request.prompt - request.computed",
    ),
    Mutant(
        "R19",
        "rbln: a resumed request recomputes its prompt only",
        RBLN,
        "min(request.num_tokens - request.computed,",
        "min(request.prompt - request.computed,",
    ),
    Mutant(
        "R19",
        "a prompt is not cut to the budget that is left",
        VLLM,
        "        tokens = min(tokens, budget.largest)\n",
        "        if tokens > budget.largest:\n            break\n",
    ),
    Mutant(
        "R20",
        "vllm: any number of requests may run",
        VLLM,
        "if len(step.running) >= engine.max_num_seqs:",
        "if False:",
    ),
    Mutant(
        "R20",
        "rbln: any number of requests may run",
        RBLN,
        "if len(step.running) >= engine.max_num_seqs:",
        "if False:",
    ),
    Mutant(
        "R20",
        "max_num_seqs counts the scheduled requests",
        VLLM,
        "if len(step.running) >= engine.max_num_seqs:",
        "if len(step.scheduled) >= engine.max_num_seqs:",
    ),
    Mutant(
        "R21",
        "no padding",
        VLLM,
        "tokens, padded = window, True",
        "pass",
    ),
    Mutant(
        "R21",
        "padding past M",
        VLLM,
        "room = request.computed + window + 1 <= engine.max_model_len",
        "room = True",
    ),
    Mutant(
        "R21",
        "padding whether or not a running request was scheduled",
        VLLM,
        "if room and (running_scheduled or request.computed):",
        "if room:",
    ),
    Mutant(
        "R21",
        "no padding for loaded tokens alone",
        VLLM,
        "if room and (running_scheduled or request.computed):",
        "if room and running_scheduled:",
    ),
    Mutant(
        "R21",
        "placeholders may be accepted",
        SCRIPT,
        "return min(self._entry(outputs)[1], drafts) if drafts > 0 else 0",
        "return min(self._entry(outputs)[1], abs(drafts))",
    ),
    Mutant(
        "R21b",
        "a padded decode that does not fit the budget goes unpadded",
        VLLM,
        "                    break\n                tokens, padded = window, True\n",
        "                    pass\n                else:\n"
        "                    tokens, padded = window, True\n",
    ),
    Mutant(
        "R21b",
        "a padded decode is cut to the budget",
        VLLM,
        "                if window > budget.largest:  # R21b: rather not scheduled than unpadded\n"
        "                    break\n",
        "",
    ),
    Mutant(
        "R22",
        "a prefill in the step does not stop padding",
        VLLM,
        "prefill_scheduled |= request.is_prefill_chunk",
        "pass",
    ),
    Mutant(
        "R22",
        "the flag is that of this step's chunk",
        VLLM,
        "prefill_scheduled |= request.is_prefill_chunk",
        "prefill_scheduled |= request.computed + tokens < request.num_tokens",
    ),
    Mutant(
        "R22",
        "prompts admitted in this step count",
        VLLM,
        "        step.scheduled[index] = tokens\n",
        "        step.scheduled[index] = tokens\n"
        "        prefill_scheduled |= request.computed + 1 < request.num_tokens\n",
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
        "return max(self.num_lookahead_tokens, self.num_spec_tokens)",
        "return self.num_lookahead_tokens",
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

MUTANTS = (
    *POOL,
    *GATE,
    *RUNNING_LOOP,
    *PREEMPTION,
    *WAITING_LOOP,
    *AFTER_THE_MODEL,
    *RBLN_SCHEDULER,
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
