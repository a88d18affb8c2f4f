//! The primary dies and its replica takes over, behind an address that stays the same.

use tenure_testkit::Proxy;
use tenure_testkit::valkey::{Flavour, Server};

use crate::outage::fleet::Fleet;
use crate::outage::on_each_server;
use crate::outage::witness::{claims, events, metric};
use crate::support::Daemon;

/// How many keys a member claims that only the primary hears of.
const TAIL: usize = 20;

on_each_server!(
    failover_to_current_replica_keeps_the_registry,
    members_repair_claims_after_failover_to_lagging_replica,
);

struct World {
    primary: Server,
    replica: Server,
    proxy: Proxy,
    url: String,
    daemon: Daemon,
}

impl World {
    fn start(flavour: Flavour) -> Option<Self> {
        let (primary, replica) = (Server::start(flavour)?, Server::start(flavour)?);
        replica.replica_of(&primary);
        let proxy = Proxy::start(primary.addr());
        let url = proxy.url("valkey");
        let daemon = Daemon::start(&["--store", &url]);
        Some(Self {
            primary,
            replica,
            proxy,
            url,
            daemon,
        })
    }

    /// Waits until the replica has everything that was written up to now.
    fn catch_up(&self) {
        self.replica.catch_up_with(&self.primary);
    }

    fn fail_over(&self) {
        self.primary.kill();
        self.replica.promote();
        self.proxy.redirect_to(self.replica.addr());
    }
}

fn failover_to_current_replica_keeps_the_registry(flavour: Flavour) {
    let Some(world) = World::start(flavour) else { return };
    let fleet = Fleet::gather(&world.url, &world.daemon);
    let before = fleet.tenures();

    world.catch_up();
    world.fail_over();
    fleet.recover_in_a_beat(&world.daemon, &format!("{flavour:?} failed over"));
    assert_eq!(fleet.tenures(), before, "the tenures go on");
    assert_eq!(fleet.rejoins(), vec![0; before.len()]);
    nobody_died(&fleet, &world.daemon);
}

fn members_repair_claims_after_failover_to_lagging_replica(flavour: Flavour) {
    let Some(world) = World::start(flavour) else { return };
    let mut fleet = Fleet::gather(&world.url, &world.daemon);
    let before = fleet.tenures();

    // From here on the replica hears nothing more: not of claims, and not of members that come.
    world.catch_up();
    world.replica.promote();
    // The first gateway uses the store itself, the third a daemon.
    for gateway in [&fleet.gateways[0], &fleet.gateways[2]] {
        fleet.run(gateway.claim(TAIL));
    }
    fleet.add_gateway(&world.url, "late-direct");
    fleet.add_gateway(&world.daemon.url(), "late-http");
    world.fail_over();

    fleet.recover_in_a_beat(
        &world.daemon,
        &format!("{flavour:?} failed over to a replica that lagged"),
    );
    // Every key is owned again, those of the lost tail as well: a beat told their owners that they are gone. Those whose
    // join was lost joined again; all others went on.
    assert_eq!(fleet.tenures()[..before.len()], before);
    let mut rejoins = vec![0; before.len()];
    rejoins.extend([1, 1]);
    assert_eq!(fleet.rejoins(), rejoins);
    let causes: Vec<_> = events(&world.daemon, "group_unsettled")
        .iter()
        .map(|event| event["reason"].clone())
        .collect();
    assert!(causes.contains(&"tail_loss".into()), "{causes:?}");
    assert_eq!(claims(&world.daemon).len(), fleet.keys());
    nobody_died(&fleet, &world.daemon);
}

fn nobody_died(fleet: &Fleet, daemon: &Daemon) {
    assert_eq!(fleet.ended(daemon, "lapsed,evicted,superseded,expelled,left"), [""; 0]);
    assert!(metric(daemon, "tenure_ended_total", &[]) <= fleet.ghosts(daemon).len() as f64);
    assert_eq!(metric(daemon, "tenure_registry_evicted_total", &[]), 0.0);
}
