//! Servers that refuse: no step is half done.

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::session::{Attach, Detach, SessionStore};
use tenure_core::store::Call;
use tenure_core::sweep::{ReconcileRequest, ReleaseRequest, SweepSteps};
use tenure_testkit::valkey::Flavour;
use tenure_valkey::ValkeyStore;

use crate::sessions::set_up::*;
use crate::world::*;

on_both! {
    full_memory_refuses_every_step,
    replica_refuses_every_step,
    revoked_permission_refuses_the_whole_step,
    foreign_key_type_refuses_the_whole_attach,
}

/// Every step that changes sessions, once; returns the errors.
async fn every_step(store: &ValkeyStore, tenure: &tenure_core::TenureId) -> Vec<tenure_core::Error> {
    let (group, call) = (group(), Call::default());
    let attach = |of: &str| Attach {
        data: Sessions::data_of("changed"),
        ..Attach::new(session(of), connection("new"))
    };
    let detach = [Detach {
        session: session("chat"),
        connection: connection("c"),
        epoch: None,
    }];
    let request = ReleaseRequest {
        pass: "p".to_owned(),
        limit: 10,
        force: true,
    };
    let reconcile = ReconcileRequest { after: None, limit: 10 };
    let data = Sessions::data_of("patched");
    let results = [
        store
            .attach(&group, tenure, &[attach("fresh"), attach("chat"), attach("away")], call)
            .await
            .map(drop),
        store.detach(&group, tenure, &detach, call).await.map(drop),
        store
            .patch_session(&group, &session("chat"), Some(tenure), &data, call)
            .await
            .map(drop),
        store.delete_session(&group, &session("away"), call).await.map(drop),
        store.release(&group, &request, call).await.map(drop),
        store.reap(&group, &request, call).await.map(drop),
        store.reconcile(&group, &reconcile, call).await.map(drop),
    ];
    results.into_iter().filter_map(Result::err).collect()
}

async fn two_sessions(world: &Sessions) -> tenure_core::TenureId {
    let front = join(&world.store, "front").await;
    world.attach(&front, "chat", "c", Some("ann")).await;
    world.attach(&front, "away", "c", None).await;
    world.detach(&front, "away", "c").await;
    world.pass(std::time::Duration::from_secs(1)).await;
    front
}

async fn full_memory_refuses_every_step(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = two_sessions(&world).await;
    let before = dump(&world.server);
    world.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let errors = every_step(&world.store, &front).await;
    assert_eq!(errors.len(), 7);
    for error in errors {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
        assert!(error.chain().contains("OOM"), "{error:?}");
    }
    assert_eq!(dump(&world.server), before, "a refused step left something behind");
    assert!(world.seen("chat").await.is_some(), "reads continue");
    world.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(every_step(&world.store, &front).await.is_empty());
    assert!(world.reconcile(10).await.is_empty());
}

async fn replica_refuses_every_step(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = two_sessions(&world).await;
    let replica = server(flavour, &[]);
    replica.replica_of(&world.server);
    // Otherwise no step would run: the store does not connect to a replica.
    let user = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", "-role"];
    assert_eq!(replica.cli(&user).unwrap().text(), "OK");
    let url = format!("valkey://app:s3cret@{}", replica.addr());
    let store = open_at(&url).await;
    let before = dump(&replica);
    for error in every_step(&store, &front).await {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
    }
    assert_eq!(dump(&replica), before);
}

async fn revoked_permission_refuses_the_whole_step(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = two_sessions(&world).await;
    let user = |rules: &[&str]| {
        let all = ["ACL", "SETUSER", "app", "reset", "on", ">s3cret", "~*", "+@all"];
        world.run(&[&all, rules].concat());
    };
    for denied in ["-hdel", "-zadd", "-zrem", "-sadd", "-srem", "-unlink", "-xadd"] {
        user(&[]);
        let url = format!("valkey://app:s3cret@{}", world.server.addr());
        let store = open_at(&url).await;
        until_up(&store).await;
        let before = dump(&world.server);
        user(&[denied]);
        let attach = [
            Attach::new(session("fresh"), connection("c")),
            Attach::new(session("away"), connection("c")),
        ];
        let attached = store.attach(&group(), &front, &attach, Call::default()).await;
        match attached {
            // The step did not need this permission; its effect is undone.
            Ok(_) => {
                for name in ["fresh", "away"] {
                    world.detach(&front, name, "c").await;
                }
                let fresh = session("fresh");
                world
                    .store
                    .delete_session(&group(), &fresh, Call::default())
                    .await
                    .unwrap();
            }
            Err(error) => {
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (ErrorKind::Denied, Outcome::Unchanged),
                    "{denied}"
                );
                assert_eq!(dump(&world.server), before, "{denied} left something behind");
            }
        }
    }
}

async fn foreign_key_type_refuses_the_whole_attach(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = two_sessions(&world).await;
    for suffix in ["sess:fresh", "conns:fresh", "conns:chat"] {
        let name = key_of(suffix);
        world.run(&["DEL", &name]);
        world.run(&["SET", &name, "foreign"]);
        let before = dump(&world.server);
        let attach = ["chat", "fresh"].map(|of| Attach::new(session(of), connection("new")));
        let refused = world
            .store
            .attach(&group(), &front, &attach, Call::default())
            .await
            .expect_err("a foreign type");
        assert_eq!(
            (refused.kind(), refused.outcome()),
            (ErrorKind::Internal, Outcome::Unchanged),
            "{suffix}: {refused:?}"
        );
        assert_eq!(dump(&world.server), before, "{suffix}");
        world.run(&["DEL", &name]);
    }
}
