/* Tenure: what a store decides about tenures, leases and claims, and why no two members hold one lease.
 *
 * A member JOINs and gets a tenure. BEATs extend it. It ends once: the member leaves, it lapses, another join of the
 * same member supersedes it, or an operator expels it. A lease has one holder, a claim is an entry "this key is mine";
 * both are held under a tenure and released exactly once after it has ended.
 *
 * Read it from the top: the state, LEFT (when a tenure ends), `open` (how every step begins), the steps of the store,
 * the process, `judge` (the invariants). Every option of the loop at the end is one atomic step. Time is counted in
 * units. Every time is stored as the units left until it, so time has no end and the search is complete. README.md says
 * how to run it. -DDEFECT=... plants a defect that the search must find. */
#ifndef DEFECT
#define DEFECT  sound
#endif
#ifndef TRACE
#define TRACE   0           /* 1: a random run prints its steps, to be replayed on a store */
#endif
#define TENURES 2           /* tenures at a time: of two members, or two of one member that started twice */
#define NOBODY  TENURES
#define TTL     3           /* how long a tenure lives without a beat; 4.8 s when a trace is replayed */
#define MAX_TTL 4           /* the longest ttl that the store allows: 6.4 s */
#define GAP     1           /* a longer silence of the store is a gap: min(2 s, 5/12 of the ttl) in whole units */
#define DRIFT   1           /* how much a process's clock loses against the store's within one ttl */
#define MARGIN  (DEFECT == no_margin -> 0 : 1)      /* how much earlier than its ttl a process stops trusting itself */
#define FALL    (TRACE -> 0 : 3)    /* how far the clock falls back when data is lost; less than MAX_TTL in all */
#ifndef NUMBERS
#define NUMBERS 2           /* tokens per unit at most, for a million of them; 0: no lease */
#endif
#ifndef KEYS
#define KEYS    1           /* 0: no claim */
#endif

mtype = { unknown, living, lapsed, left, superseded, expelled,      /* what the store knows of a tenure */
          none, alive, over,                                        /* a process waits for: nothing, or an answer */
          join, beat, acquire, claim, give_back, leave, expel, tick, end_lapsed, release,           /* steps */
          joined, renewed, granted, kept, held, unsettled, claimed, moved, released, done,          /* their answers */
          sound, no_gap, early_grant, token_reused, ghost_read, release_twice, no_wait_after_loss,  /* defects */
          late_answer_renews, no_margin, beat_revives,
          no_takeover, no_refusal, no_grace, no_forgotten_process, no_old_answer };     /* false claims, see `judge` */

typedef Tenure {
  /* In the store. */
  mtype is = unknown;
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
  /* For the invariants. */
  byte  served;             /* units in which the store served and no beat arrived */
  bit   dead;               /* the tenure has ended */
}
Tenure T[TENURES];
byte holder = NOBODY, owner = NOBODY;   /* the rows of the store: which tenure has the lease, and which the claim */
byte silence;                           /* units since the last step of the store wrote its tick */
byte since = TTL;                       /* units since the store resumed after a gap, at most TTL */
byte wait;                              /* units for which the group grants no lease */
bit  doubt;                             /* the store was empty when it began, and no old member was heard */
short seq = -1, top = -1;               /* the store's last token and the highest ever given, minus the store's clock */
bit  lease_owed, claim_owed;            /* for the invariants: it was granted, and not released since */

#define MAX(a, b)   ((a) > (b) -> (a) : (b))
#define MIN(a, b)   ((a) < (b) -> (a) : (b))
#define DOWN(a, by) ((a) > (by) -> (a) - (by) : 0)
#define EACH(t)     for (t : 0 .. TENURES - 1)
/* The end of a tenure, E = max(deadline, resumed_at + ttl), as units from now. */
#define LEFT(t)     MAX(T[t].deadline, DOWN(T[t].span, since))
/* A read writes nothing. It counts a gap that no step has met as if the store resumed now. */
#define LEFT_READ(t) (silence > GAP -> MAX(T[t].deadline, T[t].span) : LEFT(t))
#define SHOWN(row)  (row != NOBODY && T[row].is == living && (LEFT_READ(row) > 0 || DEFECT == ghost_read))

/* Its process may not know that the tenure has ended: its lease stays taken until the tenure would have lapsed. */
#define MAY_RUN(t)  ((T[t].is == superseded || T[t].is == expelled) && DEFECT != early_grant)
#define TAKEN(row)  (row != NOBODY && (T[row].is == living || MAY_RUN(row)) && LEFT(row) > 0)
#define ANY_LIVING  (T[0].is == living || T[1].is == living)
/* ---- every step of the store that changes something ---- */
inline restart() {                      /* every ttl restarts; nothing is granted until the last may have lapsed */
  since = 0;
  if :: ANY_LIVING -> wait = MAX(wait, TTL); doubt = 0 :: else fi
}
inline open(step, t) {                  /* begins every step: compares the clock with the last tick, writes the tick */
  printf("step %e %d m%d", step, t, T[t].member);
  EACH(i) { T[i].served = (silence > GAP || T[i].is != living -> 0 : MIN(T[i].served + silence, TTL)) }
  if :: silence > GAP && DEFECT != no_gap -> restart() :: else fi;
  silence = 0
}
inline finish(t, how) {                 /* ends a tenure; keeps its end if its process may run */
  T[t].is = how; T[t].burst = 1; T[t].dead = 1; T[t].served = 0;
  T[t].deadline = (MAY_RUN(t) -> LEFT(t) : 0); T[t].span = T[t].deadline
}
inline end_if_past(t) {                 /* a step ends each tenure that it meets past its end */
  if
  :: T[t].is == living && LEFT(t) == 0 ->
     assert(T[t].trust == 0);           /* its process has stopped trusting it */
     assert(T[t].served >= TTL);        /* the store served for a whole ttl without a beat of it */
     finish(t, lapsed)
  :: else fi
}

/* ---- the steps; a step under a tenure that has ended answers why ---- */
inline do_join(t) {
  open(join, t);
  EACH(i) {
    if
    :: i != t && T[i].is == living && T[i].member == T[t].member ->
       end_if_past(i);
       if :: T[i].is == living -> finish(i, superseded) :: else fi
    :: else fi
  };
  T[t].is = living; T[t].deadline = TTL; T[t].span = TTL; T[t].served = 0; T[t].burst = 0; T[t].dead = 0;
  r = joined
}
inline do_beat(t) {
  open(beat, t); end_if_past(t);
  if
  :: T[t].is == living -> r = renewed; T[t].deadline = TTL; T[t].served = 0
  :: T[t].is == lapsed && DEFECT == beat_revives -> r = renewed; T[t].is = living; T[t].deadline = TTL
  :: T[t].is == unknown && doubt && ANY_LIVING -> restart(); EACH(i) { T[i].served = 0 }; r = unknown
  :: else -> r = T[t].is; doubt = doubt && r != unknown         /* an older member is proof that data was lost */
  fi
}
inline do_acquire(t) {
  open(acquire, t); end_if_past(t);
  if
  :: T[t].is != living -> r = T[t].is
  :: T[t].is == living && holder == t -> r = kept
  :: else ->
     if :: holder != NOBODY -> end_if_past(holder) :: else fi;
     if
     :: TAKEN(holder) -> r = held
     :: !TAKEN(holder) && wait > 0 -> r = unsettled
     :: else ->
        seq = MAX(seq + (DEFECT == token_reused -> 0 : 1), 0);          /* the token: max(last + 1, clock) */
        assert(seq > top);                                              /* tokens rise for ever */
        top = seq; holder = t; lease_owed = 1; r = granted
     fi
  fi
}
inline do_claim(t) {                    /* takes a key that is free or whose owner is not alive */
  open(claim, t); end_if_past(t);
  if
  :: T[t].is != living -> r = T[t].is
  :: T[t].is == living && owner == t -> r = kept
  :: else ->
     if :: owner != NOBODY -> end_if_past(owner) :: else fi;
     if
     :: owner != NOBODY && T[owner].is == living -> r = held
     :: else -> r = (owner == NOBODY -> claimed : moved); owner = t; claim_owed = 1
     fi
  fi
}
inline do_give_back(t) {                /* the holder releases its lease */
  open(give_back, t); end_if_past(t);
  if
  :: T[t].is == living -> r = released; assert(holder == t); holder = NOBODY; lease_owed = 0
  :: else -> r = T[t].is
  fi
}
inline do_end(t, step, how) {           /* the member leaves, or an operator expels it */
  open(step, t); end_if_past(t);
  if :: T[t].is == living -> finish(t, how) :: else fi;
  r = T[t].is
}
inline do_release() {                   /* the janitor: each holding once, and only if its row names the ended tenure */
  open(release, 0);
  EACH(i) {
    if
    :: T[i].dead && !T[i].burst && owner == i ->
       assert(claim_owed); claim_owed = 0; claims++; owner = (DEFECT == release_twice -> owner : NOBODY)
    :: else fi;
    if
    :: T[i].dead && !T[i].burst && holder == i && !TAKEN(i) ->
       assert(lease_owed); lease_owed = 0; leases++; holder = NOBODY
    :: else fi
  };
  r = done
}
inline do_tick() { open(tick, 0); doubt = doubt && wait > 0; r = done }
inline do_end_lapsed() { open(end_lapsed, 0); EACH(i) { end_if_past(i) }; r = done }

/* ---- the environment ---- */
inline pass() {                         /* one unit of time */
  silence = MIN(silence + 1, GAP + 1); since = MIN(since + 1, TTL); wait = DOWN(wait, 1);
  seq = MAX(seq - NUMBERS, -1); top = MAX(top - NUMBERS, -1);
  EACH(i) {
    T[i].deadline = DOWN(T[i].deadline, 1); T[i].trust = DOWN(T[i].trust, 1); T[i].burst = 0;
    T[i].age = (T[i].call == none -> 0 : MIN(T[i].age + 1, TTL))
  };
  r = done
}
inline lose() {                         /* the store restarts empty, a unit later, on a clock that fell back */
  pass();
  EACH(i) { T[i].is = unknown; T[i].deadline = 0; T[i].span = 0; T[i].dead = 1; T[i].served = 0 };
  holder = NOBODY; owner = NOBODY; lease_owed = 0; claim_owed = 0; silence = 0; since = 0; seq = -1; doubt = 1;
  top = MIN(top + FALL * NUMBERS, MAX_TTL * NUMBERS - 1);
  wait = (DEFECT == no_wait_after_loss -> 0 : MAX_TTL)
}

/* ---- a process: one call at a time; requests and answers take any time, or are lost ---- */
#define IDLE(t)   (T[t].runs && T[t].call == none)
#define UNUSED(t) (!T[t].runs && T[t].call == none && T[t].is != living && holder != t && owner != t)
#define HOLDS(t)  (T[t].works && T[t].trust > 0)
inline clear(t) { T[t].call = none; T[t].age = 0 }
inline stop(t) { T[t].runs = 0; T[t].trust = 0; T[t].works = 0; clear(t) }
inline arrive(t) {                      /* the request reaches the store, which answers */
  if
  :: T[t].call == join -> do_join(t)
  :: T[t].call == beat -> do_beat(t)
  fi;
  T[t].call = (T[t].is == living -> alive : over);
  T[t].age = (T[t].is == living -> T[t].age : 0)
}
inline answer(t) {                      /* the answer reaches the process: trust counts from when the call was sent */
  if
  :: T[t].call == alive ->
     T[t].trust = MAX(T[t].trust, DOWN(TTL - MARGIN + DRIFT, (DEFECT == late_answer_renews -> 0 : T[t].age)));
     clear(t)
  :: T[t].call == over -> stop(t)
  fi
}

/* ---- the invariants, after every step; others stand where a tenure ends, a token is made, a row is freed ---- */
#define REACHABLE(name, state) assert(DEFECT != name || !(state))       /* the search must refute the assertion */
inline judge() {
  EACH(i) {
    assert(T[i].is != living || !T[i].dead);                    /* dead is final */
    assert(!HOLDS(i) || holder == i || T[i].is == unknown)      /* who trusts itself has the row, unless it is lost */
  };
  assert(!HOLDS(0) || !HOLDS(1));                               /* never two that work and trust themselves */
  /* A claim of an ended tenure is never shown. */
  assert(!SHOWN(owner) || !T[owner].dead && (silence > GAP || T[owner].served + silence < TTL));
  REACHABLE(no_takeover, T[0].works && T[0].runs && T[0].is == lapsed && HOLDS(1));
  REACHABLE(no_refusal, r == held && holder == 0 && MAY_RUN(0) && HOLDS(0));
  REACHABLE(no_grace, T[0].is == living && T[0].deadline == 0 && since > 0 && LEFT(0) > 0 && T[0].runs);
  REACHABLE(no_forgotten_process, T[0].runs && T[0].call == none && T[0].is == unknown && HOLDS(1));
  REACHABLE(no_old_answer, T[0].call == alive && T[0].age == TTL && T[0].works)
}
inline check() {                        /* after every step */
  if
  :: TRACE && r != none ->              /* the rest of a line of the trace: the answer, and what reads show */
     printf(" -> %e | evicted %d %d wait %d claim %d %d lease %d %d", r, claims, leases, wait,
            owner, SHOWN(owner), holder, SHOWN(holder));
     printf(" tenures %e %d %e %d\n", T[0].is, LEFT_READ(0), T[1].is, LEFT_READ(1))
  :: else fi;
  judge();
  EACH(i) {                             /* what no step reads any more; keeps the search small */
    if :: T[i].is != living && holder != i -> T[i].deadline = 0; T[i].span = 0 :: else fi;
    if :: UNUSED(i) -> T[i].is = unknown; T[i].dead = 0; T[i].member = 0 :: else fi
  };
  t = 0; i = 0; claims = 0; leases = 0; r = none
}

active proctype World() {
  byte t, i, claims, leases;
  mtype r = none;
  do
  :: atomic {                           /* a process acts, or something happens to it */
       select(t : 0 .. TENURES - 1);
       if
       :: UNUSED(t) -> T[t].runs = 1; T[t].call = join; if :: T[t].member = 0 :: t > 0 -> T[t].member = 1 fi
       :: IDLE(t) && seq < NUMBERS - 1 -> d_step { do_acquire(t) };
          if
          :: r == granted || r == kept -> T[t].works = 1
          :: T[t].is != living -> stop(t)
          :: true                                               /* the answer is lost */
          fi
       :: IDLE(t) && KEYS > 0 -> d_step { do_claim(t) }
       :: IDLE(t) -> d_step { stop(t); do_end(t, leave, left) }
       :: IDLE(t) && T[t].works -> d_step { T[t].works = 0; do_give_back(t) }
       :: T[t].call == join || T[t].call == beat -> d_step { arrive(t) }
       :: T[t].call == alive || T[t].call == over -> d_step { answer(t) }
       :: T[t].call == beat || T[t].call == over || T[t].call == alive -> clear(t)   /* the request or answer is lost */
       :: IDLE(t) -> T[t].call = beat
       :: T[t].is == living -> d_step { do_end(t, expel, expelled) }
       :: T[t].runs && !TRACE -> stop(t)                        /* the process is killed */
       :: else fi;
       d_step { check() }
     }
  :: atomic {                           /* time passes, the store is swept, or it loses its data */
       if
       :: d_step { pass(); printf("step pass") }
       :: d_step { do_tick() }
       :: d_step { do_end_lapsed() }
       :: d_step { do_release() }
       :: !TRACE || SHOWN(holder) && SHOWN(owner) -> d_step { lose(); printf("step lose") }
       fi;
       d_step { check() }
     }
  :: d_step {                           /* once every process is killed, everything is free in bounded time */
       !TRACE -> EACH(i) { stop(i) };
       for (t : 0 .. MAX_TTL) { pass(); do_tick(); do_end_lapsed(); do_release(); judge() };
       assert(holder == NOBODY && owner == NOBODY && wait == 0)
     };
     break
  od
}
