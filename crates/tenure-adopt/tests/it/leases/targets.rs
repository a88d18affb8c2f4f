//! Targets that another program adds, pauses and deletes by its own keys, and targets that are sessions, in a running
//! fleet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::fleet::{Assignment, Fleet, FleetSettings, LiveSessions, TargetSource};
use tenure::{ErrorKind, JoinOptions, Membership, Tenure};
use tenure_adopt::KeyTargets;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

const SOON: Duration = Duration::from_secs(30);
/// The poll interval without change events.
const OFTEN: Duration = Duration::from_millis(100);
/// Longer than any test: changes are noticed by events.
const NEVER: Duration = Duration::from_secs(3600);

/// The targets with a running task.
type Worked = Arc<Mutex<BTreeSet<String>>>;

async fn work(worked: Worked, target: Assignment) {
    let name = target.target().to_string();
    worked.lock().unwrap().insert(name.clone());
    target.stopping().cancelled().await;
    worked.lock().unwrap().remove(&name);
}

async fn works_on(worked: &Worked, what: &str, names: &[&str]) {
    let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    wait::until_async(what, SOON, async || *worked.lock().unwrap() == names).await;
}

/// A fleet that records its running tasks.
fn fleet(membership: &Membership, source: impl TargetSource, discovery: Duration) -> (Fleet, Worked) {
    let settings = FleetSettings {
        discovery,
        ..FleetSettings::default()
    };
    let worked = Worked::default();
    let seen = Arc::clone(&worked);
    let fleet = Fleet::builder(membership).targets(source).settings(settings);
    let fleet = fleet.start(move |target| work(Arc::clone(&seen), target)).unwrap();
    (fleet, worked)
}

fn run(server: &Server, args: &[&str]) {
    server.cli(args).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_follows_the_keys_of_another_program() {
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
        let (fleet, worked) = fleet(&membership, source().await.unwrap(), OFTEN);
        works_on(&worked, "both are worked on", &["a", "b"]).await;
        run(&server, &["HSET", "endpoint:a", "paused", "1"]);
        works_on(&worked, "the paused one is not", &["b"]).await;
        run(&server, &["SET", "endpoint:c", "{}"]);
        run(&server, &["HSET", "endpoint:a", "paused", "0"]);
        works_on(&worked, "all three are", &["a", "b", "c"]).await;
        run(&server, &["DEL", "endpoint:b"]);
        works_on(&worked, "the removed one is not", &["a", "c"]).await;

        // An unreadable key changes nothing.
        server.kill();
        wait::until_async("reading the targets fails", SOON, async || {
            fleet.status().last_error.is_some()
        })
        .await;
        let error = looked.targets().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!((worked.lock().unwrap().len(), fleet.status().targets), (2, 2));
        fleet.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_sessions_of_another_program_are_targets() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let (live, away) = (r#"{"user":"a","gone":0}"#, r#"{"user":"a","gone":1767225600}"#);
        run(&server, &["SET", "session:json", live]);
        run(&server, &["HSET", "session:hash", "gone", "0"]);
        run(&server, &["SET", "session:away", away]);
        run(&server, &["SET", "session:torn", r#"{"user":"a","gone":"#]);
        let tenure = Tenure::connect("memory:").await.unwrap();
        let group = tenure.group("pollers").unwrap();
        let membership = group.join(JoinOptions::named("a").unwrap()).await.unwrap();
        let source = KeyTargets::connect(&membership, &server.url(), "session:*", Some("paused")).await;
        let (fleet, worked) = fleet(&membership, source.unwrap().disconnected_field("gone"), OFTEN);
        works_on(&worked, "the live ones are worked on", &["hash", "json"]).await;
        run(&server, &["SET", "session:json", away]);
        run(&server, &["HSET", "session:hash", "gone", "1767225600"]);
        run(&server, &["SET", "session:away", live]);
        works_on(&worked, "only the resumed one is", &["away"]).await;
        run(
            &server,
            &["SET", "session:away", r#"{"user":"a","gone":0,"paused":true}"#],
        );
        works_on(&worked, "the paused one is not", &[]).await;
        fleet.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_sessions_of_a_store_are_targets() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        // Two processes: each learns of the other's changes only from the store.
        let (front, node) = (Tenure::connect(&server.url()).await, Tenure::connect("memory:").await);
        let (front, node) = (front.unwrap(), node.unwrap());
        let join = async |tenure: &Tenure, group: &str, name: &str| {
            let group = tenure.group(group).unwrap();
            group.join(JoinOptions::named(name).unwrap()).await.unwrap()
        };
        let serving = join(&front, "chat", "front").await;
        let attach = async |session: &str| {
            let attached = serving.sessions().attach(session, "socket").await;
            attached.unwrap().attached().unwrap()
        };
        let (one, _two) = (attach("one").await, attach("two").await);
        let watched = Tenure::connect(&server.url()).await.unwrap();
        let source = LiveSessions::of(&watched.group("chat").unwrap());
        let membership = join(&node, "pollers", "a").await;
        let (fleet, worked) = fleet(&membership, source, NEVER);
        works_on(&worked, "both are worked on", &["one", "two"]).await;
        one.detach().await.unwrap();
        works_on(&worked, "the disconnected one is not", &["two"]).await;
        let _one = attach("one").await;
        works_on(&worked, "the resumed one is", &["one", "two"]).await;
        serving.leave().await.unwrap();
        works_on(&worked, "a front-end that left has no live session", &[]).await;
        fleet.shut_down().await;
    }
}
