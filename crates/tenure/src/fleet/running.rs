//! The fleet loop of one node: observe, plan, act.
//!
//! One task owns the node's view and its work. Store calls are futures beside it ([`super::calls`]), user tasks run on
//! the user's runtime ([`super::work`]), and a lease comes back through a channel when its task has ended. A hung store
//! therefore delays no stop, and hung work delays nothing else.

mod results;

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

use super::assignment::{Ended, ReturnedLease};
use super::calls::{self, CallResult};
use super::schedule::Schedule;
use super::settings::FleetSettings;
use super::source::TargetSource;
use super::view::FleetView;
use super::work::{Starter, Work, WorkState};
use super::{Control, FleetStatus, RemainingWork};
use crate::lease::{LeaseGuard, Leases};
use crate::loops::FLOOR;
use crate::membership::{MembershipStatus, Shared};
use crate::registry::Registry;

/// The most leases in one acquire.
const MAX_ASKED: usize = 2_000;
/// No lease is acquired while our leases are uncertain; this long until the next check.
const DOUBT: Duration = Duration::from_millis(200);
/// Longest pause before restarting a task that keeps ending.
const MAX_RESTART: Duration = Duration::from_secs(60);

/// The parts of the fleet that do not change while it runs.
pub(super) struct FleetContext {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: FleetSettings,
    pub(super) source: Arc<dyn TargetSource>,
    pub(super) starter: Starter,
    pub(super) draining: Registry,
    pub(super) status: watch::Sender<FleetStatus>,
}

pub(super) struct Running<'a> {
    fixed: &'a FleetContext,
    back: &'a mut UnboundedReceiver<ReturnedLease>,
    control: watch::Receiver<Control>,
    membership: watch::Receiver<MembershipStatus>,
    source_changes: Option<watch::Receiver<()>>,
    view: FleetView,
    works: BTreeMap<LeaseName, Work>,
    /// Leases being released.
    giving: BTreeSet<LeaseName>,
    /// Leases being acquired.
    asking: BTreeSet<LeaseName>,
    calls: FuturesUnordered<BoxFuture<'static, CallResult>>,
    nodes: Schedule,
    targets: Schedule,
    leases: Schedule,
    events: Schedule,
    marking: Schedule,
    planning: Schedule,
    /// Whether this node is marked as draining.
    marked: bool,
    /// Whether it was logged that the group is unsettled.
    is_unsettled: bool,
    /// When the group's grace was last known to be over.
    settled_at: Option<Mono>,
    /// When leases were last asked for.
    asked_at: Mono,
    /// Earliest time of the next acquire after a failed one.
    ask_after: Mono,
    heard: Option<EventId>,
    tenure: TenureId,
    /// Since when the fleet is shutting down.
    ending_since: Option<Mono>,
    /// The handle was dropped.
    is_detached: bool,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        fixed: &'a FleetContext,
        back: &'a mut UnboundedReceiver<ReturnedLease>,
        control: watch::Receiver<Control>,
    ) -> Self {
        let shared = &fixed.shared;
        let now = shared.now();
        let is_ending = control.borrow().ending;
        Self {
            back,
            membership: shared.watch(),
            source_changes: fixed.source.changes(),
            view: FleetView::new(shared.member().clone(), now),
            works: BTreeMap::new(),
            giving: BTreeSet::new(),
            asking: BTreeSet::new(),
            calls: FuturesUnordered::new(),
            nodes: Schedule::new(),
            targets: Schedule::new(),
            // Leases are listed once the event id to start from is known, so that no change in between is missed.
            leases: Schedule::later(),
            events: Schedule::new().with_gap(FLOOR),
            marking: Schedule::new(),
            planning: Schedule::later().with_gap(FLOOR),
            // An earlier fleet of this membership may have left its mark.
            marked: fixed.draining.remembered() > 0,
            is_unsettled: false,
            settled_at: None,
            asked_at: now,
            ask_after: now,
            heard: None,
            tenure: shared.tenure(),
            ending_since: is_ending.then_some(now),
            is_detached: false,
            control,
            fixed,
        }
    }

    /// Runs until the fleet was told to end and has ended, or the membership is over.
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
                changed = self.control.changed(), if !self.is_detached => self.control_changed(changed.is_err()),
                _ = self.membership.changed() => self.membership_changed(),
                Some(returned) = self.back.recv() => {
                    self.returned(returned);
                    // Many leases may come back together.
                    while let Ok(returned) = self.back.try_recv() {
                        self.returned(returned);
                    }
                }
                Some(done) = self.calls.next() => {
                    self.handle_result(done);
                    while let Some(Some(done)) = self.calls.next().now_or_never() {
                        self.handle_result(done);
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
        self.ending_since.is_some() || self.control.borrow().draining
    }

    /// Whether the draining mark differs from the state of this node.
    fn mark_is_outdated(&self) -> bool {
        self.is_draining() != self.marked
    }

    fn is_held(&self) -> bool {
        self.fixed.shared.verdict() == Verdict::Held
    }

    fn control_changed(&mut self, handle_is_gone: bool) {
        let now = self.now();
        self.is_detached = handle_is_gone;
        if handle_is_gone || self.control.borrow_and_update().ending {
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
            // The view may be outdated after a pause.
            self.nodes.want(now);
            self.leases.want(now);
        }
        self.planning.want(now);
    }

    /// Whether all work has ended, or the time for it is over.
    fn has_ended(&self, now: Mono, is_over: bool) -> bool {
        let all_is_back = self.works.is_empty() && self.giving.is_empty() && self.asking.is_empty();
        match self.ending_since {
            Some(since) => all_is_back || now.since(since) >= self.fixed.settings.shut_down_within,
            None => is_over && self.works.is_empty(),
        }
    }

    /// The time until something is due.
    fn wait(&self, now: Mono) -> Duration {
        let chores = [&self.nodes, &self.targets, &self.leases, &self.events, &self.planning];
        let marking = Some(&self.marking).filter(|_| self.mark_is_outdated());
        let works = self.works.values().filter_map(|work| match &work.state {
            WorkState::Running => None,
            WorkState::Resting { until, .. } => Some(*until),
            WorkState::Stopping(stopping) if stopping.is_stubborn => None,
            WorkState::Stopping(stopping) if stopping.cut_at > now => Some(stopping.cut_at),
            WorkState::Stopping(stopping) => Some(stopping.stubborn_at),
        });
        let end = self
            .ending_since
            .map(|since| since + self.fixed.settings.shut_down_within);
        let due = chores.into_iter().chain(marking).filter_map(Schedule::due);
        let seen = self.view.next_handoff_check().into_iter().chain(self.view.first_end);
        let next = due.chain(works).chain(end).chain(seen).min();
        next.map_or(self.fixed.settings.discovery, |at| at.since(now))
            .clamp(Duration::from_millis(1), self.fixed.settings.discovery)
    }

    /// Does everything that is due.
    fn turn(&mut self, now: Mono) {
        self.start_calls(now);
        self.check_tasks(now);
        if self.view.check_handoffs(now) {
            self.planning.want(now);
        }
        if self.planning.begin(now) {
            let next = self.plan(now);
            // Limits the share of time for planning, so that many targets do not delay the beats on this thread.
            self.planning.set_gap((self.now().since(now) * 4).max(FLOOR));
            self.planning.done(now, self.fixed.settings.discovery);
            if let Some(at) = next {
                self.planning.want_at(at.max(now + FLOOR));
            }
        }
    }

    fn start_calls(&mut self, now: Mono) {
        let shared = &self.fixed.shared;
        if self.view.first_end.is_some_and(|end| end <= now) {
            self.view.first_end = None;
            self.nodes.want(now);
        }
        if self.nodes.begin(now) {
            self.calls.push(Box::pin(calls::nodes(Arc::clone(shared))));
        }
        if self.targets.begin(now) {
            let source = Arc::clone(&self.fixed.source);
            self.calls.push(Box::pin(calls::targets(Arc::clone(shared), source)));
        }
        if self.leases.begin(now) {
            self.calls.push(Box::pin(calls::leases(Arc::clone(shared))));
        }
        if self.events.begin(now) {
            let patience = self.fixed.settings.discovery;
            let listening = calls::events(Arc::clone(shared), self.heard, patience);
            self.calls.push(Box::pin(listening));
        }
        if self.mark_is_outdated() && self.marking.begin(now) {
            let registry = self.fixed.draining.clone();
            let marking = calls::mark(registry, shared.member().clone(), !self.marked);
            self.calls.push(Box::pin(marking));
        }
    }

    /// Drops tasks that take too long to stop, and restarts tasks after their pause.
    fn check_tasks(&mut self, now: Mono) {
        for (target, work) in &mut self.works {
            match &mut work.state {
                WorkState::Running => {}
                WorkState::Stopping(stopping) => {
                    let late = stopping.stubborn_at <= now && !stopping.is_stubborn;
                    let due = stopping.cut_at <= now;
                    if late {
                        stopping.is_stubborn = true;
                        let group = &self.fixed.shared.group;
                        tracing::warn!(%group, %target, "the task does not stop; its lease is kept until it ends");
                    }
                    if due {
                        work.cut();
                    }
                }
                WorkState::Resting { until, .. } if *until > now && !work.lost.is_cancelled() => {}
                WorkState::Resting { .. } => work.go_on(&self.fixed.starter),
            }
        }
    }

    fn plan(&mut self, now: Mono) -> Option<Mono> {
        if !self.view.is_complete() {
            return None;
        }
        let nodes = self.view.nodes(now);
        let (works, giving, asking) = (&self.works, &self.giving, &self.asking);
        let is_busy = |lease: &LeaseName| works.contains_key(lease) || giving.contains(lease) || asking.contains(lease);
        let leases = self.view.leases(is_busy, now);
        let is_ours = |work: &Work| !work.lost.is_cancelled() && !matches!(work.state, WorkState::Stopping(_));
        let held = works.iter().filter(|(_, work)| is_ours(work));
        let held = held.map(|(lease, work)| (lease.clone(), work.since)).collect();
        let targets = self.view.targets.as_ref()?;
        let view = View {
            now,
            me: &self.view.me,
            draining: self.is_draining(),
            nodes: &nodes,
            stable_since: self.view.stable_since,
            targets,
            leases: &leases,
            held: &held,
        };
        let plan = plan(&view, &self.fixed.settings.placing);
        self.execute(plan, now)
    }

    /// Starts the planned calls. Returns when to plan again.
    fn execute(&mut self, plan: Plan, now: Mono) -> Option<Mono> {
        for (lease, _) in plan.release {
            self.stop(&lease, None, now);
        }
        // Nothing moves while the verdict is uncertain; its change wakes the loop. A draining node stops work anyway.
        if self.is_held() || self.is_draining() {
            for (lease, to) in plan.hand_off {
                self.stop(&lease, Some(to), now);
            }
        }
        // The membership status or the answer to the pending acquire wakes the loop.
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
        self.asked_at = now;
        let leases = Leases::open(&self.fixed.shared);
        self.calls.push(Box::pin(calls::acquire(leases, asked)));
        plan.look_again
    }

    /// Tells the task on a target to stop. Its lease is released when the task has ended.
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
        self.calls.push(Box::pin(calls::give_up(guard, to)));
    }

    /// Handles the lease of a task that has ended.
    fn returned(&mut self, ReturnedLease { guard, ended }: ReturnedLease) {
        let now = self.now();
        let lease = guard.lease().clone();
        self.planning.want(now);
        let Some(work) = self.works.get_mut(&lease).filter(|work| work.token == guard.token()) else {
            // From a loop that panicked: dropping the guard releases the lease.
            return;
        };
        if guard.verdict() == Verdict::Lost {
            self.works.remove(&lease);
            self.view.free_from(&lease, now, now);
            return;
        }
        if let WorkState::Stopping(stopping) = &mut work.state {
            let to = stopping.to.take();
            self.works.remove(&lease);
            return self.give_up(guard, to);
        }
        // A task that ran for a while before it ended does not count as ending repeatedly.
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
        tracing::warn!(%group, %target, rest = ?rest, "the task {how} unexpectedly and will be restarted");
        work.state = WorkState::Resting {
            guard,
            until: now + rest,
        };
        self.fixed.status.send_modify(|status| status.restarts += 1);
    }

    /// Drops all tasks. A task that is still running keeps its lease until it ends; those are returned.
    pub(super) fn abandon(self) -> RemainingWork {
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
        let targets = self.view.targets.as_ref().map_or(0, BTreeMap::len);
        self.fixed.status.send_if_modified(|status| {
            let before = status.clone();
            // Only when no further lease can be granted.
            status.draining = self.is_draining() && self.asking.is_empty();
            status.nodes = self.view.node_count();
            status.targets = targets;
            status.held = held + self.giving.len();
            status.stubborn = stubborn;
            before != *status
        });
    }
}

/// Waits for a change notification of the source, if it sends any.
async fn changed(changes: &mut Option<watch::Receiver<()>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    // The sender is gone; changes are found by polling.
    *changes = None;
    std::future::pending().await
}
