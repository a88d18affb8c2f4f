//! The store loses everything. Members get `unknown`, rejoin and claim again; none is declared dead.

use tenure_testkit::valkey::{Flavour, Server};

use crate::outage::fleet::Fleet;
use crate::outage::on_each_server;
use crate::outage::witness::{events, metric};
use crate::support::Daemon;

on_each_server!(
    a_store_that_restarts_empty_is_filled_again_by_its_members,
    a_store_that_is_flushed_is_filled_again_by_its_members,
);

fn a_store_that_restarts_empty_is_filled_again_by_its_members(flavour: Flavour) {
    loses_everything(flavour, "restarted empty", |server, fleet| {
        server.kill();
        fleet.notice_the_outage();
        server.restart_empty();
    });
}

fn a_store_that_is_flushed_is_filled_again_by_its_members(flavour: Flavour) {
    loses_everything(flavour, "flushed", |server, _| {
        server.cli(&["FLUSHALL"]).expect("the server answers");
    });
}

fn loses_everything(flavour: Flavour, outage: &str, lose: impl FnOnce(&Server, &Fleet)) {
    let Some(server) = Server::start(flavour) else { return };
    let daemon = Daemon::start(&["--store", &server.url()]);
    let fleet = Fleet::gather(&server.url(), &daemon);
    let before: Vec<_> = fleet
        .gateways
        .iter()
        .map(|gateway| gateway.membership.tenure())
        .collect();
    assert_eq!(fleet.ended(&daemon, "lapsed,evicted"), [""; 0]);

    lose(&server, &fleet);
    fleet.recover_in_a_beat(&daemon, &format!("{flavour:?} {outage}"));

    // Everyone was told `unknown` once, and joined once, under a higher term than ever before.
    assert_eq!(fleet.rejoins(), vec![1; fleet.gateways.len()]);
    for (gateway, before) in fleet.gateways.iter().zip(before) {
        assert!(
            gateway.membership.tenure().term() > before.term(),
            "{before} came back as {}",
            gateway.tenure()
        );
    }
    for wrapped in &fleet.wrapped {
        assert!(wrapped.process.is_running(), "{}", wrapped.process.log());
    }
    // Events of the new store: the cause of its wait, the joins, and no lapse.
    let causes: Vec<_> = events(&daemon, "group_unsettled")
        .iter()
        .map(|event| event["reason"].clone())
        .collect();
    assert!(causes.contains(&"data_loss".into()), "{causes:?}");
    assert_eq!(
        events(&daemon, "joined").len(),
        fleet.gateways.len() + fleet.wrapped.len() + fleet.ghosts(&daemon).len()
    );
    assert_eq!(fleet.ended(&daemon, "lapsed,evicted,superseded,expelled,left"), [""; 0]);
    assert!(metric(&daemon, "tenure_ended_total", &[]) <= fleet.ghosts(&daemon).len() as f64);
    assert_eq!(metric(&daemon, "tenure_registry_evicted_total", &[]), 0.0);
}
