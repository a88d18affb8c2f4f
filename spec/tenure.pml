/* Tenure: what a store decides about tenures, leases and claims, and why no two members hold one lease.
 *
 * A member JOINs and gets a tenure. BEATs extend it. It ends once: the member leaves, it lapses, another join of the
 * same member supersedes it, or an operator expels it. A lease has one holder, a claim is an entry "this key is mine";
 * both are held under a tenure and released exactly once after it has ended.
 *
 * The pulse is the proof that the store served: one row for all groups, beaten on the path of a beat. A hole in it
 * restarts every ttl from the end of the hole, whichever step finds it, and however late that step is.
 *
 * Read it from the top: the state, LEFT (when a tenure ends), `beat_pulse` and `look` (what is a gap, and when a group meets
 * it), `open` (how a step begins), the steps of the store, the process, `judge` (the invariants). Every option of the
 * loop at the end is one atomic step. Time is counted in units. Every time is stored as the units until it or since it,
 * so time has no end and the search is complete. README.md says how to run it. -DDEFECT=... plants a defect that the
 * search must find. */
#ifndef DEFECT
#define DEFECT  sound
#endif
#ifndef TRACE
#define TRACE   0           /* 1: a random run prints its steps, to be replayed on a store */
#endif
#ifndef GROUPS
#define GROUPS  1           /* 2: a tenure in each of two groups over one pulse, without leases and claims */
#endif
#if GROUPS == 2
#define NUMBERS 0
#define KEYS    0
#define LATE    0
#endif
#ifndef LATE
#define LATE    1           /* 0: a request is answered immediately, so that more fits into one search */
#endif
#define TENURES 2           /* tenures at a time: of two members, or two of one member that started twice */
#define NOBODY  TENURES
#define TTL     3           /* how long a tenure lives without a beat; 4.8 s when a trace is replayed */
#define MAX_TTL 4           /* the longest ttl that the store allows: 6.4 s */
#define GAP     1           /* a longer hole in the pulse is a gap: 2 s for this ttl, in whole units */
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
          join, beat, acquire, claim, give_back, leave, expel, tick, end_lapsed, release, pulse,    /* steps */
          joined, renewed, granted, kept, held, unsettled, claimed, moved, released, done,          /* their answers */
          sound, no_gap, early_grant, token_reused, ghost_read, release_twice, no_wait_after_loss,  /* defects */
          late_answer_renews, no_margin, beat_revives, dated_by_visit, janitor_proves, carried_evidence,
          pulse_elsewhere, met_by_another,
          no_takeover, no_refusal, no_grace, no_forgotten_process, no_old_answer, no_late_sweep }; /* false: see `judge` */

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
  byte  served;             /* units since a beat arrived, or since the store served again after a gap */
  bit   dead;               /* the tenure has ended */
}
Tenure T[TENURES];
byte holder = NOBODY, owner = NOBODY;   /* the rows of the store: which tenure has the lease, and which the claim */
/* The pulse, in the same data as the groups. Its number is not needed here: a new pulse begins after any resumed_at. */
byte silence;                           /* units since its last beat */
byte since = TTL;                       /* units since its last gap ended, at most TTL */
typedef Group {
  byte near;                /* units since its last step wrote its tick: only a beat that renews asks for it */
  byte resumed = TTL;       /* units since every ttl restarted, at most TTL */
  byte wait;                /* units for which the group grants no lease */
  bit  doubt;               /* the store was empty when it began, and no old member was heard */
}
Group G[GROUPS];
byte quiet;                             /* for the invariants: units since the store took beats */
byte sent;                              /* for a defect: what the pulse showed when the next step was sent */
short seq = -1, top = -1;               /* the store's last token and the highest ever given, minus the store's clock */
bit  lease_owed, claim_owed;            /* for the invariants: it was granted, and not released since */

#define MAX(a, b)   ((a) > (b) -> (a) : (b))
#define MIN(a, b)   ((a) < (b) -> (a) : (b))
#define DOWN(a, by) ((a) > (by) -> (a) - (by) : 0)
#define EACH(t)     for (t : 0 .. TENURES - 1)
#define GROUP(g)    for (g : 0 .. GROUPS - 1)
#define IN(t)       t % GROUPS          /* the group of a tenure */
/* What the pulse shows: units since the store resumed. A hole that is still open counts as if it ended now. */
#define BACK        (silence > GAP -> 0 : since)
/* The end of a tenure, E = max(deadline, resumed_at + ttl), as units from now. */
#define END(t, resumed) MAX(T[t].deadline, DOWN(T[t].span, resumed))
#define LEFT(t)     END(t, G[IN(t)].resumed)
/* A read writes nothing. It counts a gap that its group has not met, so that reads and steps agree. */
#define GRACE(t)    DOWN(T[t].span, MIN(G[IN(t)].resumed, BACK))
#define LEFT_READ(t) END(t, MIN(G[IN(t)].resumed, BACK))
#define SHOWN(row)  (row != NOBODY && T[row].is == living && (LEFT_READ(row) > 0 || DEFECT == ghost_read))

/* Its process may not know that the tenure has ended: its lease stays taken until the tenure would have lapsed. */
#define MAY_RUN(t)  ((T[t].is == superseded || T[t].is == expelled) && DEFECT != early_grant)
#define TAKEN(row)  (row != NOBODY && (T[row].is == living || MAY_RUN(row)) && LEFT(row) > 0)
/* Whether a beat looks for a gap: not if it only renews, soon after a step. A search lets none look that renews, because
 * a step can come right before it. */
#define LOOKS(t)    (TRACE && G[IN(t)].near > GAP || T[t].is == living && (TRACE -> LEFT(t) : LEFT_READ(t)) == 0)
#define LIVES(t, g) (T[t].is == living && IN(t) == g)

/* ---- the pulse, and how a step of a group begins ---- */
inline beat_pulse() {
  if :: silence > GAP -> since = 0 :: else fi;                  /* the end of a gap */
  silence = 0
}
inline pulse_step() {                   /* of a process that takes beats, on the path of a beat; never of a sweep */
  printf("step pulse");
  beat_pulse();
  EACH(i) { T[i].served = (quiet > GAP -> 0 : T[i].served) };
  quiet = 0; r = done
}
inline restart(g) {                     /* every ttl restarts; nothing is granted until the last may have lapsed */
  G[g].resumed = at;
  if :: LIVES(0, g) || LIVES(1, g) -> G[g].wait = MAX(G[g].wait, TTL - at); G[g].doubt = 0 :: else fi
}
#define FOUND   (DEFECT == carried_evidence -> sent : BACK)     /* compared with resumed_at, never with the tick */
inline look(g) {                        /* a gap that the group has not met is dated by its end, not by this step */
  if
  :: FOUND < G[g].resumed && DEFECT != no_gap ->
     at = (DEFECT == dated_by_visit -> 0 : FOUND); restart(g);
     since = (DEFECT == met_by_another -> TTL : since)
  :: else fi;
  EACH(i) { assert(!LIVES(i, g) || quiet > GAP || (LEFT(i) > 0) == (T[i].served < TTL)) }       /* however late it is */
}
inline open(step, t) {                  /* begins every step that may end a tenure or grant a lease */
  printf("step %e %d m%d", step, t, T[t].member);
  look(IN(t)); G[IN(t)].near = 0
}
inline sweep(step, g) {                 /* begins a step of the janitor, which may come late and proves nothing */
  if :: DEFECT == janitor_proves -> beat_pulse() :: else fi;
  open(step, g)
}
inline finish(t, how) {                 /* ends a tenure; keeps its end if its process may run */
  T[t].is = how; T[t].burst = 1; T[t].dead = 1; T[t].served = 0;
  T[t].deadline = (MAY_RUN(t) -> LEFT(t) : 0); T[t].span = T[t].deadline
}
inline end_if_past(t) {                 /* a step ends each tenure that it meets past its end */
  if
  :: T[t].is == living && LEFT(t) == 0 ->
     assert(T[t].trust == 0);           /* its process has stopped trusting it */
     assert(quiet <= GAP && T[t].served >= TTL);        /* the store served for a whole ttl without a beat of it */
     finish(t, lapsed)
  :: else fi
}

/* ---- the steps; a step under a tenure that has ended answers why ---- */
inline do_join(t) {
  open(join, t);
  EACH(i) {
    if
    :: i != t && LIVES(i, IN(t)) && T[i].member == T[t].member ->
       end_if_past(i);
       if :: T[i].is == living -> finish(i, superseded) :: else fi
    :: else fi
  };
  T[t].is = living; T[t].deadline = TTL; T[t].span = TTL; T[t].served = 0; T[t].burst = 0; T[t].dead = 0;
  r = joined
}
inline do_beat(t) {
  if
  :: LOOKS(t) -> open(beat, t); end_if_past(t)
  :: else -> printf("step beat %d m%d", t, T[t].member); G[IN(t)].near = 0
  fi;
  if
  :: T[t].is == living -> r = renewed; T[t].deadline = TTL; T[t].served = 0
  :: T[t].is == lapsed && DEFECT == beat_revives -> r = renewed; T[t].is = living; T[t].deadline = TTL
  :: T[t].is == unknown && G[IN(t)].doubt && (LIVES(0, IN(t)) || LIVES(1, IN(t))) ->
     at = 0; restart(IN(t)); r = unknown;
     EACH(i) { T[i].served = (IN(i) == IN(t) -> 0 : T[i].served) }
  :: else -> r = T[t].is; G[IN(t)].doubt = G[IN(t)].doubt && r != unknown       /* an older member proves a loss of data */
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
     :: !TAKEN(holder) && G[IN(t)].wait > 0 -> r = unsettled
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
inline do_release(g) {                  /* the janitor: each holding once, and only if its row names the ended tenure */
  sweep(release, g);
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
inline do_tick(g) { sweep(tick, g); G[g].doubt = G[g].doubt && G[g].wait > 0; r = done }
inline do_end_lapsed(g) { sweep(end_lapsed, g); EACH(i) { if :: IN(i) == g -> end_if_past(i) :: else fi }; r = done }

/* ---- the environment ---- */
inline pass() {                         /* one unit of time */
  silence = MIN(silence + 1, GAP + 1); quiet = MIN(quiet + 1, GAP + 1); since = MIN(since + 1, TTL);
  sent = (DEFECT == carried_evidence -> MIN(sent + 1, TTL) : 0);
  GROUP(g) {
    G[g].near = (TRACE -> MIN(G[g].near + 1, GAP + 1) : 0);
    G[g].resumed = MIN(G[g].resumed + 1, TTL); G[g].wait = DOWN(G[g].wait, 1)
  };
  seq = MAX(seq - NUMBERS, -1); top = MAX(top - NUMBERS, -1);
  EACH(i) {
    T[i].deadline = DOWN(T[i].deadline, 1); T[i].trust = DOWN(T[i].trust, 1); T[i].burst = 0;
    T[i].served = (T[i].is == living -> MIN(T[i].served + 1, TTL) : 0);
    T[i].age = (T[i].call == none -> 0 : MIN(T[i].age + 1, TTL))
  };
  r = done
}
inline lose() {                         /* the store restarts empty, a unit later, on a clock that fell back */
  pass();
  EACH(i) { T[i].is = unknown; T[i].deadline = 0; T[i].span = 0; T[i].dead = 1; T[i].served = 0 };
  holder = NOBODY; owner = NOBODY; lease_owed = 0; claim_owed = 0; seq = -1; quiet = 0;
  if :: DEFECT != pulse_elsewhere -> silence = 0; since = 0 :: else fi;         /* a new pulse, after any resumed_at */
  top = MIN(top + FALL * NUMBERS, MAX_TTL * NUMBERS - 1);
  GROUP(g) {
    G[g].near = 0; G[g].resumed = 0; G[g].doubt = 1; G[g].wait = (DEFECT == no_wait_after_loss -> 0 : MAX_TTL)
  }
}
inline lose_beats() {                   /* the tail of the data is gone, more than a gap: beats, ends of gaps, the pulse */
  EACH(i) { if :: T[i].is == living -> T[i].deadline = 0; T[i].served = 0 :: else fi };
  GROUP(g) { G[g].resumed = TTL };
  quiet = GAP + 1; silence = (DEFECT == pulse_elsewhere -> silence : GAP + 1)
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

/* ---- the invariants, after every step; others stand in `look`, where a tenure ends, a token is made, a row is freed ---- */
#define REACHABLE(name, state) assert(DEFECT != name || !(state))       /* the search must refute the assertion */
inline judge() {
  EACH(i) {
    assert(T[i].is != living || !T[i].dead);                    /* dead is final */
    assert(T[i].is != living || (LEFT_READ(i) > 0) == (quiet > GAP || T[i].served < TTL));      /* and reads know it */
    assert(!HOLDS(i) || holder == i || T[i].is == unknown)      /* who trusts itself has the row, unless it is lost */
  };
  assert(!HOLDS(0) || !HOLDS(1));                               /* never two that work and trust themselves */
  /* A claim of an ended tenure is never shown. */
  assert(!SHOWN(owner) || !T[owner].dead && (quiet > GAP || T[owner].served < TTL));
  REACHABLE(no_takeover, T[0].works && T[0].runs && T[0].is == lapsed && HOLDS(1));
  REACHABLE(no_refusal, r == held && holder == 0 && MAY_RUN(0) && HOLDS(0));
  REACHABLE(no_grace, T[0].is == living && T[0].deadline == 0 && G[0].resumed > 0 && LEFT(0) > 0 && T[0].runs);
  REACHABLE(no_forgotten_process, T[0].runs && T[0].call == none && T[0].is == unknown && HOLDS(1));
  REACHABLE(no_old_answer, T[0].call == alive && T[0].age == TTL && T[0].works);
  REACHABLE(no_late_sweep, GROUPS == 2 && T[0].is == living && LEFT_READ(0) == 0 && T[1].is == lapsed)
}
inline forget() {                       /* what no step reads any more; keeps the search small */
  EACH(i) {
    if :: UNUSED(i) -> T[i].is = unknown; T[i].dead = 0 :: else fi;
    if :: T[i].is != living && T[i].call != join -> T[i].member = 0 :: else fi;
    if :: T[i].is != living && holder != i -> T[i].deadline = 0; T[i].span = 0 :: else fi;
    if :: holder != i && owner != i -> T[i].burst = 0 :: else fi;
    if :: T[i].is != living && T[i].is != unknown && holder != i && owner != i -> T[i].is = left :: else fi;
    if :: quiet > GAP -> T[i].served = 0 :: else fi
  };
  GROUP(g) {                            /* the earlier of a deadline and a restart; both while a hole is open */
    moot = 1; met = met && BACK >= G[g].resumed;
    EACH(i) { if :: IN(i) == g && T[i].deadline < GRACE(i) -> T[i].deadline = 0; moot = 0 :: else fi };
    if :: moot && BACK >= G[g].resumed || silence > GAP && G[g].resumed > 0 -> G[g].resumed = TTL :: else fi
  };
  if :: met || silence > GAP -> since = TTL :: else fi
}
inline check() {                        /* after every step */
  if
  :: TRACE && r != none ->              /* the rest of a line of the trace: the answer, and what reads show */
     printf(" -> %e | evicted %d %d wait %d claim %d %d lease %d %d", r, claims, leases, G[0].wait,
            owner, SHOWN(owner), holder, SHOWN(holder));
     printf(" tenures %e %d %e %d\n", T[0].is, LEFT_READ(0), T[1].is, LEFT_READ(1))
  :: else fi;
  judge();
  if :: !TRACE -> forget() :: else fi;
  t = 0; i = 0; g = 0; at = 0; claims = 0; leases = 0; met = 1; moot = 0; r = none
}

active proctype World() {
  byte t, i, g, at, claims, leases;
  bit met = 1, moot;
  mtype r = none;
  do
  :: atomic {                           /* a process acts, or something happens to it */
       select(t : 0 .. TENURES - 1);
       if
       :: UNUSED(t) -> T[t].runs = 1; T[t].call = join; if :: T[t].member = 0 :: t % GROUPS < t -> T[t].member = 1 fi
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
       if :: !LATE && T[t].call != none -> d_step { arrive(t); answer(t) } :: else fi;
       d_step { check() }
     }
  :: d_step { quiet > 0 -> pulse_step(); check() }              /* a process that takes beats beats the pulse */
  :: atomic {                           /* time passes, a group is swept, or the store loses data */
       select(g : 0 .. GROUPS - 1);
       if
       :: d_step { pass(); printf("step pass") }
       :: d_step { do_tick(g) }
       :: d_step { do_end_lapsed(g) }
       :: d_step { do_release(g) }
       :: !TRACE || SHOWN(holder) && SHOWN(owner) -> d_step { lose(); printf("step lose") }
       :: !TRACE -> d_step { lose_beats() }
       :: DEFECT == carried_evidence -> sent = BACK
       fi;
       d_step { check() }
     }
  :: d_step {                           /* once every process is killed, two sweeps free everything, however late */
       !TRACE -> EACH(i) { stop(i) };
       for (t : 1 .. MAX_TTL) { pass(); pulse_step() };
       GROUP(t) { do_tick(t); do_end_lapsed(t) };
       pass(); pulse_step();
       GROUP(t) { do_release(t); assert(G[t].wait == 0) };
       assert(holder == NOBODY && owner == NOBODY)
     };
     break
  od
}
