/* The scheduler step of vLLM and of vllm-rbln in Promela: a second writing of models/vllm.py,
 * models/rbln.py and models/environment.py, for SPIN to count. promela.py puts the constants of a
 * scenario before this text and its environment's choices where it says CHOICES. Rule numbers are
 * those of docs/rules.md.
 *
 * One step is one atomic sequence: schedule() in a d_step, then the arrivals, then the answers for
 * each request that sampled. Every path through it ends in a successor of its own, so the states
 * that SPIN stores are those between steps, and its transitions are the steps.
 */

#define UNARRIVED 0
#define WAITING   1
#define PREEMPTED 2
#define RUNNING   3
#define FINISHED  4
#define SAMPLING  5             /* inside a step only: its answer is to come */

#define CLOSED    0
#define CLEAN     1
#define CONTENDED 2

#define MIN(a, b)  ((a) < (b) -> (a) : (b))
#define POS(a)     ((a) > 0 -> (a) : 0)
#define CDIV(a, b) (((a) + (b) - 1) / (b))
#define NUM_TOKENS(r) (prompt[r] + outputs[r])
#define SLOTS(t)   MIN((t) + LOOKAHEAD, MAX_MODEL_LEN)    /* R4 */
#define LAST_PREFILL(r) (computed[r] < NUM_TOKENS(r) - 1) /* R33 */
#define BUSY       (num_running + num_waiting > 0)

/* What the scheduler remembers; a finished or absent request is all zero but for its status, and
 * so is the unused end of a queue. */
byte    status[N];
tokens_t prompt[N], outputs[N], computed[N];
byte    drafts[N];
blocks_t blocks[N_TABLES];
byte    chunk[N];               /* is_prefill_chunk, R22 */
byte    window[N];
byte    running[N], waiting[N];
byte    num_running, num_waiting;
#ifdef FIXED_ARRIVALS
clock_t clock;
#else
byte    arrived;                /* requests arrive in order: the first not to have */
#endif

/* Scratch of one d_step: not part of a state. */
hidden int scheduled[N];        /* tokens, drafts included */
hidden int spec[N];             /* drafts scheduled; -n: n placeholders, R21 */
hidden int rank[N];             /* constant */
hidden int i, j, r, victim, place, position;
hidden int available, need, slots, tokens, budget, inputs, margin, num_scheduled, decodes;
hidden byte preempted, self_preempted, prefill, padded, granted;

/* --- queues ----------------------------------------------------------------------------------- */

inline remove_running(at) {
  num_running--;
  j = at;
  do
  :: j < num_running -> running[j] = running[j + 1]; j++
  :: else -> break
  od;
  running[num_running] = 0
}

inline insert_waiting(who, at) {
  j = num_waiting;
  do
  :: j > at -> waiting[j] = waiting[j - 1]; j--
  :: else -> break
  od;
  waiting[at] = who;
  num_waiting++
}

/* The place that the order of priorities gives, and an end of the queue without them (R14, R27). */
inline find_place(who, otherwise) {
  place = otherwise;
#ifdef PRIORITY
  place = 0;
  do
  :: place < num_waiting && rank[waiting[place]] < rank[who] -> place++
  :: else -> break
  od
#endif
}

inline arrive(who, length) {
  status[who] = WAITING;
  prompt[who] = length;
  find_place(who, num_waiting);
  insert_waiting(who, place)
}

/* --- blocks ----------------------------------------------------------------------------------- */

inline begin() {
  i = 0;
  available = USABLE_BLOCKS;
  do
  :: i < N_TABLES -> available = available - blocks[i]; i++
  :: else -> break
  od;
  for (i : 0 .. N - 1) {
    scheduled[i] = 0;
    spec[i] = 0
  }
  budget = MAX_NUM_BATCHED_TOKENS;
  inputs = MAX_NUM_BATCHED_TOKENS;
  preempted = false;
  prefill = false;
  num_scheduled = 0;
  position = 0
}

/* Takes `need` blocks for r, to reach `slots` slots (R2, R3). */
inline take() {
  if
  :: need > 0 ->
     available = available - need;
     GROW(r, slots);
     for (j : 0 .. N - 1) {
       if
       :: j != r && window[j] == CLEAN -> window[j] = CONTENDED
       :: else
       fi
     }
  :: else
  fi
}

/* Picks the victim, takes its blocks and puts it in the queue; `place` is where it stood (R13, R14). */
inline preempt() {
  place = num_running - 1;
#ifdef PRIORITY
  for (j : 0 .. num_running - 1) {
    if
    :: rank[running[j]] > rank[running[place]] -> place = j
    :: else
    fi
  }
#endif
  victim = running[place];
  i = place;
  remove_running(i);
  available = available + HELD(victim);
  RELEASE(victim);
  status[victim] = PREEMPTED;
  computed[victim] = 0;
  drafts[victim] = 0;
  chunk[victim] = 0;
  window[victim] = CLOSED;
  preempted = true;
  find_place(victim, 0);
  insert_waiting(victim, place);
  place = i
}

/* Blocks for r up to its first computed + tokens, preempting as long as it takes. */
inline allocate_running() {
  self_preempted = false;
  slots = SLOTS(computed[r] + tokens);
  do
  :: need = NEED(r, slots);
     if
     :: need <= available -> take(); break
     :: else ->
        preempt();
#ifdef RBLN
        if
        :: scheduled[victim] > 0 -> budget = budget + scheduled[victim]; position-- /* R17 */
        :: else
        fi;
#else
        if
        :: place < position -> position--                  /* R17 */
        :: else
        fi;
        if
        :: scheduled[victim] > 0 ->
           budget = budget + scheduled[victim];
           inputs = inputs + scheduled[victim] + DRAFT_SLOTS
        :: else
        fi;
#endif
        if
        :: scheduled[victim] > 0 -> scheduled[victim] = 0; spec[victim] = 0; num_scheduled--
        :: else
        fi;
        if
        :: victim == r -> self_preempted = true; break
        :: else
        fi
     fi
  od
}

inline put_in_step() {
  scheduled[r] = tokens;
  num_scheduled++;
  if
  :: drafts[r] > 0 -> spec[r] = POS(tokens + computed[r] - NUM_TOKENS(r)) /* R12 */
  :: else
  fi;
  budget = budget - tokens;
  inputs = inputs - tokens - DRAFT_SLOTS
}

/* The head of the queue, r, with its first `tokens` tokens: gate, then slots (R6, R8). */
inline admit() {
  granted = true;
  margin = (num_running > 0 -> WATERMARK_BLOCKS : 0);
#ifdef GATE_TOKENS
  slots = GATE_TOKENS(NUM_TOKENS(r));
  need = NEED(r, slots);
  granted = (need + margin <= available);
#endif
  if
  :: granted -> slots = SLOTS(computed[r] + tokens); need = NEED(r, slots)
  :: else
  fi;
  if
  :: granted && need + margin <= available ->
     num_waiting--;
     j = 0;
     do
     :: j < num_waiting -> waiting[j] = waiting[j + 1]; j++
     :: else -> break
     od;
     waiting[num_waiting] = 0;
     running[num_running] = r;
     num_running++;
     window[r] = CLEAN;
     take();
     scheduled[r] = tokens;
     num_scheduled++;
     budget = budget - tokens;
     inputs = inputs - tokens - DRAFT_SLOTS
  :: else -> granted = false
  fi
}

/* --- the two schedulers ----------------------------------------------------------------------- */

#ifdef RBLN

inline schedule() {
  begin();
  if
  :: num_running > 0 && LAST_PREFILL(running[num_running - 1]) -> position = num_running - 1 /* R33 */
  :: else
  fi;
  do
  :: position < num_running && budget > 0 ->
     r = running[position];
     tokens = MIN(NUM_TOKENS(r) + drafts[r] - computed[r], MAX_MODEL_LEN - computed[r] - 1); /* R9 */
     tokens = MIN(tokens, budget);
     if
     :: tokens == 0 -> position++                          /* R11 */
     :: else ->
        allocate_running();
        if
        :: self_preempted -> break                         /* R15, R40 */
        :: else -> put_in_step(); position++
        fi
     fi
  :: else -> break
  od;
  /* Is the first one scheduled in prefill? Running requests are scheduled in their order. */
  position = 0;
  do
  :: position < num_running && scheduled[running[position]] == 0 -> position++
  :: position < num_running && scheduled[running[position]] > 0 ->
     prefill = LAST_PREFILL(running[position]);
     break
  :: position >= num_running -> break
  od;
  decodes = num_scheduled;
  if
  :: !preempted && !prefill ->                             /* R16, R34 */
     do
     :: num_waiting > 0 && budget > 0 && num_running < MAX_NUM_SEQS -> /* R20, R35 */
        r = waiting[0];
        prefill = LAST_PREFILL(r);
        if
        :: prefill && num_scheduled > decodes -> break     /* R37 */
        :: else
        fi;
        tokens = MIN(NUM_TOKENS(r) - computed[r], MAX_NUM_BATCHED_TOKENS);
        admit();
        if
        :: !granted -> break
        :: granted && prefill ->                           /* R36: the decodes leave the step */
           for (j : 0 .. N - 1) {
             if
             :: j != r && scheduled[j] > 0 -> scheduled[j] = 0; drafts[j] = spec[j]
             :: else
             fi
           }
           break
        :: else
        fi
     :: else -> break
     od
  :: else
  fi
}

#else

#define LARGEST MIN(budget, inputs - DRAFT_SLOTS)          /* R10 */

inline schedule() {
  begin();
  do
  :: position < num_running && budget > 0 && inputs > DRAFT_SLOTS ->
     r = running[position];
     tokens = MIN(NUM_TOKENS(r) + drafts[r] - computed[r], MAX_MODEL_LEN - computed[r] - 1); /* R9 */
     tokens = MIN(tokens, LARGEST);
     if
     :: tokens == 0 -> position++                          /* R11 */
     :: else ->
        allocate_running();
        if
#ifndef OUTLIVES_SELF_PREEMPTION
        :: self_preempted -> break                         /* R15 */
#else
        :: self_preempted -> skip
#endif
        :: else -> put_in_step(); prefill = prefill || chunk[r]; position++
        fi
     fi
  :: else -> break
  od;
  decodes = num_scheduled;
  if
  :: !preempted ->                                         /* R16 */
     do
     :: num_waiting > 0 && budget > 0 && inputs > DRAFT_SLOTS && num_running < MAX_NUM_SEQS ->
        r = waiting[0];
        tokens = NUM_TOKENS(r) - computed[r];
        padded = false;
        if
        :: tokens == 1 && K > 0 && !prefill && computed[r] + 1 + K + 1 <= MAX_MODEL_LEN &&
           (decodes > 0 || computed[r] > 0) ->          /* R21 */
           if
           :: 1 + K > LARGEST -> break                     /* R21b */
           :: else -> tokens = 1 + K; padded = true
           fi
        :: else
        fi;
        tokens = MIN(tokens, LARGEST);
        admit();
        if
        :: !granted -> break
        :: granted && padded -> spec[r] = -K
        :: else
        fi
     :: else -> break
     od
  :: else
  fi
}

#endif

/* --- after the model -------------------------------------------------------------------------- */

/* Computed tokens advance by all that was scheduled; rejected placeholders come off (R22, R23). */
inline update_after_schedule() {
  for (r : 0 .. N - 1) {
    if
    :: scheduled[r] > 0 ->
       if
       :: status[r] == RUNNING && !chunk[r] -> window[r] = CLOSED
       :: else
       fi;
       computed[r] = computed[r] + scheduled[r];
       drafts[r] = 0;
       if
       :: computed[r] < NUM_TOKENS(r) -> status[r] = RUNNING; chunk[r] = 1
       :: else ->                                          /* R24 */
          status[r] = SAMPLING;
          chunk[r] = 0;
          if
          :: spec[r] > 0 -> drafts[r] = spec[r]
          :: else -> computed[r] = computed[r] + spec[r]
          fi
       fi
    :: else
    fi
  }
}

/* Some number of accepted drafts, within the environment's bounds. */
#define MOST(who)            MIN(ACCEPT_MOST, drafts[who])
#define ACCEPTABLE(who, a)   ((a) <= MOST(who) && ((a) >= ACCEPT_LEAST || (a) == drafts[who]))
/* It lives on after emitting 1 + a tokens (R25). */
#define LIVES(who, most, a)  (NUM_TOKENS(who) + 1 + (a) < MAX_MODEL_LEN && outputs[who] + 1 + (a) < (most))
#define MAY_ACCEPT(who, most, a) (status[who] == SAMPLING && ACCEPTABLE(who, a) && LIVES(who, most, a))
#ifdef EOS
#define MAY_FINISH(who, most) (status[who] == SAMPLING)
#else
#define MAY_FINISH(who, most) (status[who] == SAMPLING && !LIVES(who, most, MOST(who)))
#endif

inline emit(who, accepted, proposed) {
  status[who] = RUNNING;
  outputs[who] = outputs[who] + 1 + accepted;
  computed[who] = computed[who] - (drafts[who] - accepted);
  drafts[who] = proposed
}

inline finish(who) {
  status[who] = FINISHED;
  prompt[who] = 0;
  outputs[who] = 0;
  computed[who] = 0;
  drafts[who] = 0;
  RELEASE(who);
  chunk[who] = 0;
  window[who] = CLOSED;
  i = 0;
  do
  :: running[i] != who -> i++
  :: else -> break
  od;
  remove_running(i)
}

/* --- the environment's choices: promela.py writes them here ----------------------------------- */

CHOICES

/* --- the engine ------------------------------------------------------------------------------- */

init {
  atomic {
    set_ranks();
    first_arrivals()
  }
end:
  do
  :: atomic {
       WAKES ->
       d_step { schedule(); update_after_schedule() }
       next_arrivals();
       answers()
     }
#ifndef FIXED_ARRIVALS
  :: atomic { !BUSY && arrived < N -> first_arrivals() }
#endif
  od
}
