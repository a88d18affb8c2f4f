//! The daemon itself is killed, and started again on its file after everyone's deadline has passed.

use std::time::Instant;

use tenure_testkit::{Mode, Proxy, wait};

use crate::outage::fleet::{Fleet, GROUP, TTL};
use crate::outage::witness::{claims, events, members, metric};
use crate::support::{Daemon, SOON, address_in};

#[test]
fn restart_after_sigkill_loses_nothing_and_ends_no_member() {
    let mut daemon = Daemon::start(&[]);
    // Its address stays the same for its members, whatever port it gets the next time.
    let proxy = Proxy::start(daemon.addr);
    let url = proxy.url("http");
    let mut fleet = Fleet::behind(&url, 3);
    fleet.wrap(&url, "wrapped");
    fleet.recover(&daemon, "the fleet is complete", SOON);
    let world = |daemon: &Daemon| (members(daemon), claims(daemon));
    let (before, events_before) = (world(&daemon), events(&daemon, ""));

    daemon.process.kill();
    // Its port is free for others now.
    proxy.set(Mode::Refuse);
    let since = Instant::now();
    fleet.notice_the_outage();
    fleet.pause_by_themselves();
    wait::until("every deadline has passed", TTL * 2, || since.elapsed() > TTL * 3 / 2);
    daemon.process.restart().expect("the binary can be started");
    daemon.addr = address_in(&daemon.process, 1);
    // It knows everything that was acknowledged, and everyone has a full ttl to speak.
    assert_eq!(world(&daemon), before);
    proxy.redirect_to(daemon.addr);

    fleet.recover_in_a_beat(&daemon, &format!("daemon killed, back after {:?}", since.elapsed()));
    assert_eq!(world(&daemon), before, "members, tenures and claims go on");
    assert_eq!(fleet.rejoins(), [0, 0, 0]);
    let after = events(&daemon, "");
    assert_eq!(after[..events_before.len()], events_before, "the events are kept");
    assert_eq!(fleet.ended(&daemon, "lapsed,evicted,superseded,expelled,left"), [""; 0]);
    assert_eq!(metric(&daemon, "tenure_ended_total", &[]), 0.0);

    // Terms go on rising.
    let highest = fleet
        .gateways
        .iter()
        .map(|gateway| gateway.membership.tenure().term())
        .max();
    let newcomer = daemon.join(GROUP, "newcomer", 60_000);
    let term: u64 = newcomer
        .rsplit('@')
        .next()
        .and_then(|term| term.parse().ok())
        .expect("a term");
    assert!(Some(term) > highest.map(|term| term.get()), "{newcomer}");
}
