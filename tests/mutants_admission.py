"""Edits of the model that leave out rules R1 to R8 and R19 to R22."""

from __future__ import annotations

from mutation import Mutant

CONFIG = "models/config.py"
ENVIRONMENT = "models/environment.py"
FIELDS = "checker/fields.py"
GATES = "models/gates.py"
KV_CACHE = "models/kv_cache.py"
RBLN = "models/rbln.py"
SCHEDULER = "models/scheduler.py"
SCRIPT = "models/script.py"
VLLM = "models/vllm.py"
ARITHMETIC = "models/arithmetic.py"

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
        "        lookahead = self.num_lookahead_tokens\n",
        "        lookahead = self.num_spec_tokens\n",
    ),
    Mutant(
        "R5",
        "every drafter takes L slots of the input budget",
        VLLM,
        "_Budget(scenario.engine.max_num_batched_tokens, scenario.engine.draft_slots)",
        "_Budget(scenario.engine.max_num_batched_tokens, scenario.engine.num_lookahead_tokens)",
    ),
    Mutant(
        "R5",
        "a draft model has no draft slot",
        FIELDS,
        '"draft_model": lambda k: (k, 1),',
        '"draft_model": lambda k: (k, 0),',
    ),
    Mutant(
        "R5",
        "dflash is as a draft model",
        FIELDS,
        '"dflash": lambda k: (k + 1, k),',
        '"dflash": lambda k: (k, 1),',
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
        "        tokens = min(tokens, room)\n",
        "        if tokens > room:\n            break\n",
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
        "below_limit = request.computed + window + 1 <= engine.max_model_len",
        "below_limit = True",
    ),
    Mutant(
        "R21",
        "padding whether or not a running request was scheduled",
        VLLM,
        "if below_limit and (running_scheduled or request.computed):",
        "if room:",
    ),
    Mutant(
        "R21",
        "no padding for loaded tokens alone",
        VLLM,
        "if below_limit and (running_scheduled or request.computed):",
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
        "                if window > room:  # R21b: rather not scheduled than unpadded\n"
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
