/* Tenure: what a store decides about tenures, leases and claims, and why no two members hold one lease.
 *
 * A member JOINs and gets a tenure. BEATs extend it. It ends once: the member leaves, it lapses, another join of the same
 * member supersedes it, or an operator expels it. A lease has one holder, a claim is an entry "this key is mine"; both
 * are held under a tenure and released exactly once after it has ended.
 *
 * Read it in this order: the store's state, the process's state, `left`, `open`, the steps of the store, the calls of a
 * process, the environment, `judge` (the invariants). Every option of the loop at the end is one atomic step.
 *
 * Time is counted in units. Every time is stored as the units left until it, so time has no end and the search is
 * complete. `spec/README.md` says how to run it. Each DEFECT_... switch plants a defect that the search must find; each
 * GOAL_NO claims that a state is impossible, and the search must refute it.
 */
#ifndef TENURES
#define TENURES 2           /* tenures at a time: of two members, or two of one member that started twice */
#endif
#ifndef GOAL_NO
#define GOAL_NO 0
#endif
#define NOBODY  TENURES
#define TTL     3           /* how long a tenure lives without a beat; 4.8 s when a trace is replayed */
#define MAX_TTL 4           /* the longest ttl that the store allows: 6.4 s */
#define GAP     1           /* a longer silence of the store is a gap: min(2 s, 5/12 of the ttl) in whole units */
#define DRIFT   1           /* how much a process's clock loses against the store's within one ttl */
#ifdef DEFECT_NO_MARGIN
#define MARGIN  0
#else
#define MARGIN  1           /* how much earlier than its ttl a process stops trusting itself */
#endif
#ifndef FALL
#define FALL    0           /* how many units the clock falls back when the data is lost; less than MAX_TTL */
#endif
#define NUMBERS 2           /* tokens per unit at most; stands for a million */

mtype = { none, living, ended, running,                             /* what the store knows of a tenure */
          join, beat, alive, over,                                  /* a call on its way, or its answer */
          joined, renewed, granted, kept, held, unsettled,          /* answers of the steps */
          left, claimed, moved, released, done };                   /* answers of the other steps */

typedef Tenure {
  /* In the store. `running`: the tenure was superseded or expelled, and its process may not know it. */
  mtype is = none;
  bit   member;
  byte  deadline;           /* units until the last beat is too old */
  byte  span;               /* units that a gap gives back: the ttl, or what was left when the tenure ended */
  bit   burst;              /* ended less than 250 ms ago: its holdings are not released yet */
  /* In its process. */
  bit   runs;
  mtype call = none;        /* the join or beat that is on its way, then its answer */
  byte  age;                /* units since the call was sent */
  byte  trust;              /* units for which the process trusts its tenure, by the slowest allowed clock */
  bit   works;              /* the store granted it the lease */
  /* Only for `judge`. */
  byte  served;             /* units in which the store served and no beat arrived */
  bit   dead;               /* the tenure has ended */
  bit   owns_lease, owns_claim;
}

Tenure T[TENURES];
byte lease = NOBODY, claim = NOBODY;    /* the rows of the store: which tenure has it */
byte silence;                           /* units since the last step of the store wrote its tick */
byte since = TTL;                       /* units since the store resumed after a gap, at most TTL */
byte wait;                              /* units for which the group grants no lease */
bit  doubt;                             /* the store was empty when it began, and no old member was heard */
short seq = -1, top = -1;               /* the store's last token and the highest ever given, minus the store's clock */
byte alone;                             /* units since every process stopped */

#define MAX(a, b)   ((a) > (b) -> (a) : (b))
#define MIN(a, b)   ((a) < (b) -> (a) : (b))
#define DOWN(a, by) ((a) > (by) -> (a) - (by) : 0)
#define EACH(t)     for (t : 0 .. TENURES - 1)

/* The end of a tenure, E = max(deadline, resumed_at + ttl), as units from now. */
#define LEFT(t)     MAX(T[t].deadline, DOWN(T[t].span, since))
/* A read writes nothing. It counts a gap that no step has met as if the store resumed now. */
#define LEFT_READ(t) (silence > GAP -> MAX(T[t].deadline, T[t].span) : LEFT(t))
#ifdef DEFECT_GHOST_READ
#define ALIVE(t)    (T[t].is == living)                         /* shown until a sweep has ended it */
#else
#define ALIVE(t)    (T[t].is == living && LEFT_READ(t) > 0)
#endif
#define SHOWN(row)  (row != NOBODY && ALIVE(row))

/* A row is taken while its tenure lives, or while the process of the ended tenure may still run. */
#ifdef DEFECT_EARLY_GRANT
#define TAKEN(row)  (row != NOBODY && T[row].is == living)
#else
#define TAKEN(row)  (row != NOBODY && T[row].is != ended && LEFT(row) > 0)
#endif
#define ANY_LIVING  (T[0].is == living || T[TENURES - 1].is == living)

/* ---- every step of the store that changes something ---- */

inline restart() {                      /* every ttl restarts; nothing is granted until the last may have lapsed */
  since = 0;
  if :: ANY_LIVING -> wait = MAX(wait, TTL); doubt = 0 :: else fi
}
inline open() {                         /* begins every step: compares the clock with the last tick, writes the tick */
  EACH(i) { T[i].served = (silence > GAP || T[i].is != living -> 0 : MIN(T[i].served + silence, TTL)) }
#ifndef DEFECT_NO_GAP
  if :: silence > GAP -> restart() :: else fi;
#endif
  silence = 0
}
inline finish(t, how) {                 /* ends a tenure; `running` keeps the end that it had */
  T[t].deadline = (how == running -> LEFT(t) : 0);
  T[t].span = T[t].deadline;
  T[t].is = how; T[t].burst = 1; T[t].dead = 1; T[t].served = 0
}
inline end_if_past(t) {                 /* a step ends each tenure that it meets past its end */
  if
  :: T[t].is == living && LEFT(t) == 0 ->
     assert(T[t].trust == 0);           /* its process has stopped trusting it */
     assert(T[t].served >= TTL);        /* the store served for a whole ttl without a beat of it */
     finish(t, ended)
  :: else fi
}
inline next_token() {                   /* max(last + 1, clock) */
#ifndef DEFECT_TOKEN_REUSED
  seq++;
#endif
  seq = MAX(seq, 0);
  assert(seq > top);                    /* tokens rise for ever */
  top = seq
}

/* A free row, or the row of an ended tenure, becomes this tenure's. */
#define GAIN(t, row, owns) if :: row != NOBODY -> T[row].owns = 0 :: else fi; row = t; T[t].owns = 1

/* ---- the steps ---- */

inline do_join(t) {
  open();
  EACH(i) {
    if
    :: i != t && T[i].is == living && T[i].member == T[t].member ->
       end_if_past(i);
       if
       :: T[i].is == living -> finish(i, running)       /* superseded */
       :: else fi
    :: else fi
  };
  T[t].is = living; T[t].deadline = TTL; T[t].span = TTL; T[t].served = 0; T[t].burst = 0; T[t].dead = 0;
  r = joined;
  printf("step join %d m%d", t, T[t].member)
}
inline do_beat(t) {
  open(); end_if_past(t);
  r = over;
  if
  :: T[t].is == living -> r = renewed; T[t].deadline = TTL; T[t].served = 0
#ifdef DEFECT_BEAT_REVIVES
  :: T[t].is == ended -> r = renewed; T[t].is = living; T[t].deadline = TTL; T[t].span = TTL
#endif
  :: T[t].is == none && doubt && ANY_LIVING -> restart();      /* an older member is proof that data was lost */
     EACH(i) { T[i].served = 0 }
  :: T[t].is == none && doubt && !ANY_LIVING -> doubt = 0
  :: else fi;
  printf("step beat %d", t)
}
inline do_acquire(t) {
  open(); end_if_past(t);
  if
  :: T[t].is != living -> r = over
  :: T[t].is == living && lease == t -> r = kept
  :: else ->
     if :: lease != NOBODY -> end_if_past(lease) :: else fi;
     if
     :: TAKEN(lease) -> r = held
     :: !TAKEN(lease) && wait > 0 -> r = unsettled
     :: else -> next_token(); GAIN(t, lease, owns_lease); r = granted
     fi
  fi;
  printf("step acquire %d", t)
}
inline do_claim(t) {                    /* takes a key that is free or whose owner is not alive */
  open(); end_if_past(t);
  if
  :: T[t].is != living -> r = over
  :: T[t].is == living && claim == t -> r = kept
  :: T[t].is == living && claim == NOBODY -> r = claimed; GAIN(t, claim, owns_claim)
  :: else ->
     if :: T[claim].member != T[t].member -> end_if_past(claim) :: else fi;
     if
     :: T[claim].is == living -> r = held
     :: else -> r = moved; GAIN(t, claim, owns_claim)
     fi
  fi;
  printf("step claim %d", t)
}
inline do_give_back(t) {                /* the holder releases its lease */
  open(); end_if_past(t);
  r = over;
  if :: T[t].is == living && lease == t -> r = released; lease = NOBODY; T[t].owns_lease = 0 :: else fi;
  printf("step give_back %d", t)
}
inline do_end(t, how) {                 /* leave: `ended`, expel: `running` */
  open(); end_if_past(t);
  r = over;
  if :: T[t].is == living -> r = left; finish(t, how) :: else fi
}
inline do_release() {                   /* the janitor: each holding once, and only if its row names the ended tenure */
  open();
  EACH(i) {
    if
    :: T[i].dead && !T[i].burst && claim == i ->
       assert(T[i].owns_claim); T[i].owns_claim = 0; claims++;
#ifndef DEFECT_RELEASE_TWICE
       claim = NOBODY
#endif
    :: else fi;
    if
    :: T[i].dead && !T[i].burst && lease == i && !TAKEN(i) ->
       assert(T[i].owns_lease); T[i].owns_lease = 0; leases++; lease = NOBODY
    :: else fi
  };
  r = done;
  printf("step release %d %d", claims, leases)
}
inline do_tick() {
  open();
  doubt = doubt && wait > 0;
  r = done;
  printf("step tick")
}
inline do_end_lapsed() {
  open();
  EACH(i) { end_if_past(i) };
  r = done;
  printf("step end_lapsed")
}

/* ---- the environment ---- */

inline pass() {                         /* one unit of time */
  silence = (silence > GAP -> silence : silence + 1); since = (since < TTL -> since + 1 : since); wait = DOWN(wait, 1);
  seq = MAX(seq - NUMBERS, -1); top = MAX(top - NUMBERS, -1);
  EACH(i) {
    T[i].deadline = DOWN(T[i].deadline, 1); T[i].trust = DOWN(T[i].trust, 1); T[i].burst = 0;
    T[i].age = (T[i].call == none || T[i].age == TTL -> T[i].age : T[i].age + 1)
  }
}
inline lose(fall) {                     /* the store restarts empty, a unit later, on a clock that fell back */
  pass();
  EACH(i) { T[i].is = none; T[i].deadline = 0; T[i].span = 0; T[i].dead = 1; T[i].owns_lease = 0; T[i].owns_claim = 0;
            T[i].served = 0 };
  lease = NOBODY; claim = NOBODY; silence = 0; since = 0; seq = -1; doubt = 1;
  top = (top < 0 && fall == 0 -> -1 : top + fall * NUMBERS);
#ifndef DEFECT_NO_WAIT_AFTER_LOSS
  wait = MAX_TTL;
#else
  wait = 0;
#endif
  r = done;
  printf("step lose")
}

/* ---- a process: one call at a time; requests and answers take any time, or are lost ---- */

#define IDLE(t)   (T[t].runs && T[t].call == none)
#define UNUSED(t) (!T[t].runs && T[t].call == none && T[t].is != living && lease != t && claim != t)
#define HOLDS(t)  (T[t].works && T[t].trust > 0)

inline clear(t) { T[t].call = none; T[t].age = 0 }

inline stop(t) { T[t].runs = 0; T[t].trust = 0; T[t].works = 0; clear(t) }

inline arrive(t) {                      /* the request reaches the store */
  if
  :: T[t].call == join -> do_join(t)
  :: T[t].call == beat -> do_beat(t)
  fi;
  T[t].age = (r == over -> 0 : T[t].age);
  T[t].call = (r == over -> over : alive)
}
inline answer(t) {                      /* the answer reaches the process: its trust counts from when it sent the call */
  if
  :: T[t].call == alive ->
#ifdef DEFECT_LATE_ANSWER_RENEWS
     T[t].trust = TTL - MARGIN + DRIFT;
#else
     T[t].trust = MAX(T[t].trust, DOWN(TTL - MARGIN + DRIFT, T[t].age));
#endif
     clear(t)
  :: T[t].call == over -> stop(t)
  fi
}

/* ---- the invariants, after every step; the other ones stand where a tenure ends, a token is made, a row is removed ---- */

#define GOAL(n, state) assert(GOAL_NO != n || !(state))

inline judge() {
  EACH(i) {
    EACH(j) { assert(i == j || !HOLDS(i) || !HOLDS(j)) };       /* never two that work on the lease and trust themselves */
    assert(T[i].is != living || !T[i].dead);                    /* dead is final */
    assert(!HOLDS(i) || lease == i || T[i].is == none)          /* a holder that trusts itself has the row, unless lost */
  };
  if
  :: SHOWN(claim) ->                                            /* a claim of an ended tenure is never shown */
     assert(!T[claim].dead && (silence > GAP || T[claim].served + silence < TTL))
  :: else fi;
  /* 1: a living process without the lease, which another took over */
  GOAL(1, T[0].works && T[0].runs && T[0].is == ended && HOLDS(1));
  /* 2: refused: the process of the ended holder may run */
  GOAL(2, r == held && lease == 0 && T[0].is == running && HOLDS(0));
  /* 3: alive only because the store was silent */
  GOAL(3, T[0].is == living && T[0].deadline == 0 && since > 0 && LEFT(0) > 0 && T[0].runs);
  /* 4: a grant after a loss, beside a process that the store forgot */
  GOAL(4, T[0].runs && T[0].call == none && T[0].is == none && HOLDS(1));
  /* 5: an answer that is a whole ttl old */
  GOAL(5, T[0].call == alive && T[0].age == TTL && T[0].works);
}
inline tidy(t) {                        /* what no step reads any more; keeps the search small */
  if
  :: UNUSED(t) -> T[t].is = none; T[t].deadline = 0; T[t].span = 0; T[t].burst = 0; T[t].dead = 0; T[t].member = 0
  :: else fi
}
inline say() {                         /* a line of the trace: the step, its answer, and what reads show after it */
  printf(" -> %e | wait %d claim %d %d lease %d %d tenures", r, wait, claim, SHOWN(claim), lease, SHOWN(lease));
  EACH(i) {
    if
    :: T[i].is == living -> printf(" %d", LEFT_READ(i))
    :: else -> printf(" -")
    fi
  };
  printf("\n")
}

active proctype World() {
  byte t, i, j, claims, leases;
  mtype r = none;
  do
  :: atomic {
       alone == 0;
       select(t : 0 .. TENURES - 1);
       if
       :: UNUSED(t) -> T[t].runs = 1; T[t].call = join;
          if
          :: T[t].member = 0
          :: t > 0 -> T[t].member = 1
          fi
       :: IDLE(t) -> T[t].call = beat
       :: T[t].call == join || T[t].call == beat -> d_step { arrive(t) }
       :: T[t].call == alive || T[t].call == over -> d_step { answer(t) }
       :: T[t].call == beat || T[t].call == over || T[t].call == alive -> clear(t)       /* a request or an answer is lost */
#ifndef NO_LEASE
       :: IDLE(t) && seq < NUMBERS - 1 -> d_step { do_acquire(t) };
          if
          :: r == granted || r == kept -> T[t].works = 1
          :: r == over -> stop(t)
          :: true                                               /* the answer is lost */
          fi
       :: IDLE(t) && T[t].works -> d_step { T[t].works = 0; do_give_back(t) }
#endif
#ifndef NO_CLAIM
       :: IDLE(t) -> d_step { do_claim(t) }
#endif
       :: IDLE(t) -> d_step { stop(t); do_end(t, ended); printf("step leave %d", t) }
       :: T[t].is == living -> d_step { do_end(t, running); printf("step expel %d", t) }
       :: T[t].runs -> stop(t)                                  /* the process is killed */
       :: t == 0 -> d_step { pass(); r = done; printf("step pass") }
       :: t == 0 -> d_step { do_tick() }
       :: t == 0 -> d_step { do_end_lapsed() }
       :: t == 0 -> d_step { do_release() }
#ifdef TRACE
       :: t == 0 && lease != NOBODY && claim != NOBODY -> lose(0)
#else
       :: t == 0 -> d_step { lose(FALL) }
       :: t == 0 -> EACH(i) { stop(i) }; alone = 1              /* every process is killed, for good */
#endif
       :: else fi;
       d_step {
         judge();
         if :: r != none -> say() :: else fi;
         EACH(i) { tidy(i) };
         t = 0; i = 0; j = 0; claims = 0; leases = 0; r = none
       }
     }
  :: d_step {                           /* then everything is free in bounded time, from every state */
       alone > 0 && alone <= MAX_TTL + 1 ->
       pass(); do_tick(); do_end_lapsed(); do_release(); judge();
       alone++;
       assert(alone <= MAX_TTL + 1 || (lease == NOBODY && claim == NOBODY && wait == 0));
       t = 0; i = 0; j = 0; claims = 0; leases = 0; r = none
     }
  :: alone > MAX_TTL + 1 -> break
  od
}
