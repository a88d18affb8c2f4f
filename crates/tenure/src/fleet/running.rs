//! The fleet's loop on one node: look, plan, do, and never wait for one thing alone.
//!
//! It is one task that owns all that the node sees and does. Calls to the store are futures beside it ([`super::errand`]),
//! the user's tasks run on the user's runtime ([`super::work`]), and a lease comes back through a channel once nobody
//! works on it any more. So a store that hangs delays no stop, and work that hangs delays nothing else.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::clock::{Mono, jitter};
use tenure_core::event::EventId;
use tenure_core::fleet::{Plan, View, plan};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::verdict::Verdict;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::assignment::{Ended, Returned};
use super::chore::Chore;
use super::errand::{self, Done};
use super::settings::FleetSettings;
use super::sight::Sight;
use super::source::TargetSource;
use super::work::{Starter, State, Work};
use super::{FleetStatus, Left, Wish};
use crate::lease::{LeaseGuard, Leases};
use crate::loops::FLOOR;
use crate::membership::{MembershipStatus, Shared};
use crate::registry::Registry;

/// The most leases that are asked for in one errand.
const MAX_ASKED: usize = 2_000;
/// While there is doubt about what we hold, nothing more is asked for; it is looked at again after this long.
const DOUBT: Duration = Duration::from_millis(200);
/// The longest rest of a task that ends again and again.
const MAX_RESTART: Duration = Duration::from_secs(60);

/// What stays the same for as long as the fleet runs on this node.
pub(super) struct Fixed {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: FleetSettings,
    pub(super) source: Arc<dyn TargetSource>,
    pub(super) starter: Starter,
    pub(super) draining: Registry,
    pub(super) status: watch::Sender<FleetStatus>,
}

pub(super) struct Running<'a> {
    fixed: &'a Fixed,
    back: &'a mut UnboundedReceiver<Returned>,
    wish: watch::Receiver<Wish>,
    membership: watch::Receiver<MembershipStatus>,
    source_changes: Option<watch::Receiver<()>>,
    sight: Sight,
    works: BTreeMap<LeaseName, Work>,
    /// On their way back to the store.
    giving: BTreeSet<LeaseName>,
    /// Asked for, and not answered yet.
    asking: BTreeSet<LeaseName>,
    errands: FuturesUnordered<BoxFuture<'static, Done>>,
    nodes: Chore,
    targets: Chore,
    leases: Chore,
    events: Chore,
    marking: Chore,
    planning: Chore,
    /// Whether others were told that this node drains.
    marked: bool,
    /// Whether it was told that the group gives out nothing.
    is_unsettled: bool,
    /// Nothing is asked for before that: the last time it failed.
    ask_after: Mono,
    heard: Option<EventId>,
    tenure: TenureId,
    /// When the fleet was told to end.
    ending_since: Option<Mono>,
    /// Nobody can wish for anything any more.
    is_orphan: bool,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        fixed: &'a Fixed,
        back: &'a mut UnboundedReceiver<Returned>,
        wish: watch::Receiver<Wish>,
    ) -> Self {
        let shared = &fixed.shared;
        let now = shared.now();
        let is_ending = wish.borrow().ending;
        Self {
            back,
            membership: shared.watch(),
            source_changes: fixed.source.changes(),
            sight: Sight::new(shared.member().clone(), now),
            works: BTreeMap::new(),
            giving: BTreeSet::new(),
            asking: BTreeSet::new(),
            errands: FuturesUnordered::new(),
            nodes: Chore::new(),
            targets: Chore::new(),
            // Only once it is known from which event on to listen: what happens in between must not be missed.
            leases: Chore::later(),
            events: Chore::new().with_gap(FLOOR),
            marking: Chore::new(),
            planning: Chore::later().with_gap(FLOOR),
            // A fleet of this membership may have ended before.
            marked: fixed.draining.remembered() > 0,
            is_unsettled: false,
            ask_after: now,
            heard: None,
            tenure: shared.tenure(),
            ending_since: is_ending.then_some(now),
            is_orphan: false,
            wish,
            fixed,
        }
    }

    /// Runs until the fleet is told to end and has, or the membership is over.
    pub(super) async fn run(&mut self) {
        let mut is_over = false;
        loop {
            let now = self.now();
            self.turn(now);
            self.publish();
            if self.has_ended(now, is_over) {
                return;
            }
            let sleep = self.fixed.shared.context.clock.sleep(self.wait(now));
            tokio::select! {
                biased;
                () = self.fixed.shared.stopped(), if !is_over => is_over = true,
                changed = self.wish.changed(), if !self.is_orphan => self.wished(changed.is_err()),
                _ = self.membership.changed() => self.membership_changed(),
                Some(returned) = self.back.recv() => {
                    self.returned(returned);
                    // Whole crowds come back at once.
                    while let Ok(returned) = self.back.try_recv() {
                        self.returned(returned);
                    }
                }
                Some(done) = self.errands.next() => {
                    self.done(done);
                    while let Some(Some(done)) = self.errands.next().now_or_never() {
                        self.done(done);
                    }
                }
                () = changed(&mut self.source_changes) => {
                    let now = self.now();
                    self.targets.want(now);
                }
                () = sleep => {}
            }
        }
    }

    fn now(&self) -> Mono {
        self.fixed.shared.now()
    }

    fn is_draining(&self) -> bool {
        self.ending_since.is_some() || self.wish.borrow().draining
    }

    /// Whether others believe that it drains when it does not, or the other way round.
    fn is_to_be_marked(&self) -> bool {
        self.is_draining() != self.marked
    }

    fn is_held(&self) -> bool {
        self.fixed.shared.verdict() == Verdict::Held
    }

    fn wished(&mut self, handle_is_gone: bool) {
        let now = self.now();
        self.is_orphan = handle_is_gone;
        if handle_is_gone || self.wish.borrow_and_update().ending {
            self.ending_since.get_or_insert(now);
        }
        self.marking.want(now);
        self.planning.want(now);
    }

    fn membership_changed(&mut self) {
        let now = self.now();
        let tenure = self.fixed.shared.tenure();
        if tenure != self.tenure {
            self.tenure = tenure;
            // Much may have happened while we were away.
            self.nodes.want(now);
            self.leases.want(now);
        }
        self.planning.want(now);
    }

    /// Whether there is nothing left to do, or no time left to do it in.
    fn has_ended(&self, now: Mono, is_over: bool) -> bool {
        let all_is_back = self.works.is_empty() && self.giving.is_empty() && self.asking.is_empty();
        match self.ending_since {
            Some(since) => all_is_back || now.since(since) >= self.fixed.settings.shut_down_within,
            None => is_over && self.works.is_empty(),
        }
    }

    /// How long until something is due by itself.
    fn wait(&self, now: Mono) -> Duration {
        let chores = [&self.nodes, &self.targets, &self.leases, &self.events, &self.planning];
        let marking = Some(&self.marking).filter(|_| self.is_to_be_marked());
        let works = self.works.values().filter_map(|work| match &work.state {
            State::Running => None,
            State::Resting { until, .. } => Some(*until),
            State::Stopping(stopping) if stopping.is_stubborn => None,
            State::Stopping(stopping) if stopping.cut_at > now => Some(stopping.cut_at),
            State::Stopping(stopping) => Some(stopping.stubborn_at),
        });
        let end = self
            .ending_since
            .map(|since| since + self.fixed.settings.shut_down_within);
        let due = chores.into_iter().chain(marking).filter_map(Chore::due);
        let seen = self.sight.judge_at().into_iter().chain(self.sight.first_end);
        let next = due.chain(works).chain(end).chain(seen).min();
        next.map_or(self.fixed.settings.discovery, |at| at.since(now))
            .clamp(Duration::from_millis(1), self.fixed.settings.discovery)
    }

    /// Does everything that is due.
    fn turn(&mut self, now: Mono) {
        self.send_out(now);
        self.mind_works(now);
        if self.sight.judge_heirs(now) {
            self.planning.want(now);
        }
        if self.planning.begin(now) {
            let next = self.plan(now);
            // However many targets there are, the beats on this thread get their turn.
            self.planning.set_gap((self.now().since(now) * 4).max(FLOOR));
            self.planning.done(now, self.fixed.settings.discovery);
            if let Some(at) = next {
                self.planning.want_at(at.max(now + FLOOR));
            }
        }
    }

    fn send_out(&mut self, now: Mono) {
        let shared = &self.fixed.shared;
        if self.sight.first_end.is_some_and(|end| end <= now) {
            self.sight.first_end = None;
            self.nodes.want(now);
        }
        if self.nodes.begin(now) {
            self.errands.push(Box::pin(errand::nodes(Arc::clone(shared))));
        }
        if self.targets.begin(now) {
            let source = Arc::clone(&self.fixed.source);
            self.errands.push(Box::pin(errand::targets(Arc::clone(shared), source)));
        }
        if self.leases.begin(now) {
            self.errands.push(Box::pin(errand::leases(Arc::clone(shared))));
        }
        if self.events.begin(now) {
            let patience = self.fixed.settings.discovery;
            let listening = errand::events(Arc::clone(shared), self.heard, patience);
            self.errands.push(Box::pin(listening));
        }
        if self.is_to_be_marked() && self.marking.begin(now) {
            let registry = self.fixed.draining.clone();
            let marking = errand::mark(registry, shared.member().clone(), !self.marked);
            self.errands.push(Box::pin(marking));
        }
    }

    /// Drops what takes too long to stop, and starts again what has rested.
    fn mind_works(&mut self, now: Mono) {
        for (target, work) in &mut self.works {
            match &mut work.state {
                State::Running => {}
                State::Stopping(stopping) => {
                    let late = stopping.stubborn_at <= now && !stopping.is_stubborn;
                    let due = stopping.cut_at <= now;
                    if late {
                        stopping.is_stubborn = true;
                        let group = &self.fixed.shared.group;
                        tracing::warn!(%group, %target, "the work does not stop; its lease is kept until it does");
                    }
                    if due {
                        work.cut();
                    }
                }
                State::Resting { until, .. } if *until > now && !work.lost.is_cancelled() => {}
                State::Resting { .. } => work.go_on(&self.fixed.starter),
            }
        }
    }

    fn plan(&mut self, now: Mono) -> Option<Mono> {
        if !self.sight.is_complete() {
            return None;
        }
        let nodes = self.sight.nodes(now);
        let (works, giving, asking) = (&self.works, &self.giving, &self.asking);
        let is_busy = |lease: &LeaseName| works.contains_key(lease) || giving.contains(lease) || asking.contains(lease);
        let leases = self.sight.leases(is_busy, now);
        let is_ours = |work: &Work| !work.lost.is_cancelled() && !matches!(work.state, State::Stopping(_));
        let held = works.iter().filter(|(_, work)| is_ours(work));
        let held = held.map(|(lease, work)| (lease.clone(), work.since)).collect();
        let targets = self.sight.targets.as_ref()?;
        let view = View {
            now,
            me: &self.sight.me,
            draining: self.is_draining(),
            nodes: &nodes,
            stable_since: self.sight.stable_since,
            targets,
            leases: &leases,
            held: &held,
        };
        let plan = plan(&view, &self.fixed.settings.placing);
        self.carry_out(plan, now)
    }

    /// Begins what was planned; when to plan again.
    fn carry_out(&mut self, plan: Plan, now: Mono) -> Option<Mono> {
        for (lease, _) in plan.release {
            self.stop(&lease, None, now);
        }
        // In doubt nothing moves: the verdict tells when it is over. A node that is on its way out stops all the same.
        if self.is_held() || self.is_draining() {
            for (lease, to) in plan.hand_off {
                self.stop(&lease, Some(to), now);
            }
        }
        // The status of the membership, or the answer to what was asked before, will bring us here again.
        if plan.acquire.is_empty() || !self.is_held() || !self.asking.is_empty() {
            return plan.look_again;
        }
        if self.fixed.shared.leases.is_doubted() {
            self.ask_after = self.ask_after.max(now + DOUBT);
        }
        if self.ask_after > now {
            return Some(plan.look_again.map_or(self.ask_after, |at| at.min(self.ask_after)));
        }
        let asked: Vec<LeaseName> = plan.acquire.into_iter().take(MAX_ASKED).collect();
        self.asking.extend(asked.iter().cloned());
        let leases = Leases::open(&self.fixed.shared);
        self.errands.push(Box::pin(errand::acquire(leases, asked)));
        plan.look_again
    }

    /// Tells the work on a target to stop; its lease is given up once it has.
    fn stop(&mut self, lease: &LeaseName, to: Option<MemberId>, now: Mono) {
        let Some(work) = self.works.get_mut(lease) else { return };
        let rested = work.ask_to_stop(to.clone(), now, self.fixed.settings.stop_within);
        if let Some(guard) = rested {
            self.works.remove(lease);
            self.give_up(guard, to);
        }
    }

    fn give_up(&mut self, guard: LeaseGuard, to: Option<MemberId>) {
        self.giving.insert(guard.lease().clone());
        self.errands.push(Box::pin(errand::give_up(guard, to)));
    }

    /// Nobody works on this target any more.
    fn returned(&mut self, Returned { guard, ended }: Returned) {
        let now = self.now();
        let lease = guard.lease().clone();
        self.planning.want(now);
        let Some(work) = self.works.get_mut(&lease).filter(|work| work.token == guard.token()) else {
            // Of a life of this loop that has panicked: dropping the guard releases the lease.
            return;
        };
        if guard.verdict() == Verdict::Lost {
            self.works.remove(&lease);
            self.sight.free_from(&lease, now, now);
            return;
        }
        if let State::Stopping(stopping) = &mut work.state {
            let to = stopping.to.take();
            self.works.remove(&lease);
            return self.give_up(guard, to);
        }
        // A task that had gone on for a while before it ended is not one that ends again and again.
        if now.since(work.started) > MAX_RESTART {
            work.ended_in_a_row = 0;
        }
        let doubled = 2u32.saturating_pow(work.ended_in_a_row.min(16));
        work.ended_in_a_row += 1;
        let rest = self
            .fixed
            .settings
            .restart_after
            .saturating_mul(doubled)
            .min(MAX_RESTART);
        let rest = jitter(&*self.fixed.shared.context.clock, rest, 10);
        let (group, target) = (&self.fixed.shared.group, &lease);
        let how = match ended {
            Ended::Returned => "returned",
            Ended::Panicked => "panicked",
            Ended::Dropped => "was dropped",
        };
        tracing::warn!(%group, %target, rest = ?rest, "the task {how} without being told to stop; it is started again");
        work.state = State::Resting {
            guard,
            until: now + rest,
        };
        self.fixed.status.send_modify(|status| status.restarts += 1);
    }

    /// The end: whatever still works is dropped, and keeps its lease until it really has ended. Answers what that is.
    pub(super) fn abandon(self) -> Left {
        let is_ours = |work: &Work| !work.lost.is_cancelled();
        let working = self.works.iter().filter(|(_, work)| is_ours(work));
        working
            .map(|(lease, work)| (lease.clone(), work.lost.clone()))
            .collect()
    }

    fn publish(&self) {
        let stubborn = self.works.iter().filter(|(_, work)| work.is_stubborn());
        let stubborn: Vec<LeaseName> = stubborn.map(|(lease, _)| lease.clone()).collect();
        let held = self.works.values().filter(|work| !work.lost.is_cancelled()).count();
        let targets = self.sight.targets.as_ref().map_or(0, BTreeMap::len);
        self.fixed.status.send_if_modified(|status| {
            let before = status.clone();
            // Not before nothing more can be granted.
            status.draining = self.is_draining() && self.asking.is_empty();
            status.nodes = self.sight.node_count();
            status.targets = targets;
            status.held = held + self.giving.len();
            status.stubborn = stubborn;
            before != *status
        });
    }
}

/// Waits for a change of the source, if it tells of any.
async fn changed(changes: &mut Option<watch::Receiver<()>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    // Nobody will ever tell of one: it is found by asking.
    *changes = None;
    std::future::pending().await
}
