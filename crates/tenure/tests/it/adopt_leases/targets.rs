//! Targets that another program adds, pauses and removes as keys of its own, while a fleet works on them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::adopt::KeyTargets;
use tenure::fleet::{Assignment, Fleet, FleetSettings, TargetSource};
use tenure::{ErrorKind, JoinOptions, Tenure};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

const SOON: Duration = Duration::from_secs(30);

/// Who works on what now.
type Worked = Arc<Mutex<BTreeSet<String>>>;

async fn work(worked: Worked, target: Assignment) {
    let name = target.target().to_string();
    worked.lock().unwrap().insert(name.clone());
    target.stopping().cancelled().await;
    worked.lock().unwrap().remove(&name);
}

fn run(server: &Server, args: &[&str]) {
    server.cli(args).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_another_program_are_the_targets_as_they_come_and_go() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        run(&server, &["HSET", "endpoint:a", "paused", "0"]);
        run(&server, &["HSET", "endpoint:b", "url", "x"]);
        run(&server, &["SET", "endpoint:no name", "x"]);
        let tenure = Tenure::connect("memory:").await.unwrap();
        let group = tenure.group("pollers").unwrap();
        let membership = group.join(JoinOptions::named("a").unwrap()).await.unwrap();
        let source = async || KeyTargets::connect(&membership, &server.url(), "endpoint:*", Some("paused")).await;
        let looked = source().await.unwrap();
        assert_eq!((looked.targets().await.unwrap().len(), looked.skipped()), (2, 1));
        let settings = FleetSettings {
            discovery: Duration::from_millis(100),
            ..FleetSettings::default()
        };
        let worked = Worked::default();
        let seen = Arc::clone(&worked);
        let fleet = Fleet::builder(&membership)
            .targets(source().await.unwrap())
            .settings(settings)
            .start(move |target| work(Arc::clone(&seen), target))
            .unwrap();
        let works_on = async |what: &str, names: &[&str]| {
            let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
            wait::until_async(what, SOON, async || *worked.lock().unwrap() == names).await;
        };
        works_on("both are worked on", &["a", "b"]).await;
        run(&server, &["HSET", "endpoint:a", "paused", "1"]);
        works_on("the paused one is not", &["b"]).await;
        run(&server, &["SET", "endpoint:c", "x"]);
        run(&server, &["HSET", "endpoint:a", "paused", "0"]);
        works_on("all three are", &["a", "b", "c"]).await;
        run(&server, &["DEL", "endpoint:b"]);
        works_on("the removed one is not", &["a", "c"]).await;

        // What cannot be read changes nothing.
        server.kill();
        wait::until_async("asking for targets fails", SOON, async || {
            fleet.status().last_error.is_some()
        })
        .await;
        let error = looked.targets().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!((worked.lock().unwrap().len(), fleet.status().targets), (2, 2));
        fleet.shut_down().await;
    }
}
