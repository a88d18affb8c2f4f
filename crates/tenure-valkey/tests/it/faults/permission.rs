//! Users with missing permissions, and secrets that must not be shown.

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::store::{Backend, Health, Severity, Store};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::world::*;

on_both! {
    missing_permission_is_reported_before_any_write,
    least_user_suffices_and_doctor_names_its_limits,
    wrong_password_is_denied_and_not_shown,
}

/// All permissions that Tenure needs.
pub(super) const LEAST: &[&str] = &[
    "~{tenure:*",
    "~tenure:*",
    "-@all",
    "+@hash",
    "+@set",
    "+@sortedset",
    "+@stream",
    "+unlink",
    "+pexpire",
    "+eval",
    "+evalsha",
    "+time",
];

pub(super) fn user(server: &Server, rules: &[&str]) -> String {
    let args: Vec<&str> = ["ACL", "SETUSER", "app", "reset", "on", ">s3cret"]
        .iter()
        .chain(rules)
        .copied()
        .collect();
    assert_eq!(server.cli(&args).unwrap().text(), "OK");
    format!("valkey://app:s3cret@{}", server.addr())
}

async fn missing_permission_is_reported_before_any_write(flavour: Flavour) {
    let server = server(flavour, &[]);
    let rules: Vec<&str> = LEAST.iter().copied().chain(["-zadd"]).collect();
    let store = open(&user(&server, &rules)).await;
    let error = try_join(&store, "a").await.expect_err("ZADD is denied");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Denied, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.chain().contains("ZADD on {tenure:"), "{error:?}");
    assert!(error.chain().contains("the rules +zadd"), "{error:?}");
    let found = store.examine().await;
    let of_rights = found.iter().find(|finding| finding.check == "permissions");
    assert_eq!(
        of_rights.map(|finding| finding.severity),
        Some(Severity::Error),
        "{found:?}"
    );
    assert_eq!(dump(&server), "");
    user(&server, LEAST);
    until_up(&store).await;
    join(&store, "a").await;
    // Revoked while connected: the server says so, and the store goes down with that reason.
    user(&server, &rules);
    let before = dump(&server);
    let denied = wait_for_denied(&store).await;
    assert!(!denied.contains("s3cret"), "{denied}");
    assert!(denied.contains("+zadd"), "{denied}");
    assert_eq!(dump(&server), before, "a denied step left something behind");
}

async fn wait_for_denied(store: &tenure_valkey::ValkeyStore) -> String {
    let said = std::sync::Mutex::new(String::new());
    wait::until_async("the store denies", PATIENCE, || async {
        match try_join(store, "b").await {
            Err(error) if error.kind() == ErrorKind::Denied => {
                *said.lock().unwrap() = error.chain();
                true
            }
            _ => false,
        }
    })
    .await;
    said.into_inner().unwrap()
}

async fn least_user_suffices_and_doctor_names_its_limits(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&user(&server, LEAST)).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.unwrap();
    assert_eq!(store.groups().await.unwrap(), [group()]);
    let findings = store.examine().await;
    let of = |check: &str| {
        findings
            .iter()
            .find(|finding| finding.check == check)
            .unwrap_or_else(|| panic!("no {check}: {findings:?}"))
    };
    assert_eq!(of("permissions").severity, Severity::Ok);
    assert_eq!(of("clock").severity, Severity::Ok);
    for unseen in ["version", "role", "search", "eviction"] {
        assert_eq!(of(unseen).severity, Severity::Warning, "{:?}", of(unseen));
    }
    assert_eq!(store.find_groups().await.unwrap_err().kind(), ErrorKind::Denied);
    let all = open(&server.url()).await.examine().await;
    assert!(all.iter().all(|finding| finding.severity != Severity::Error), "{all:?}");
    assert!(
        all.iter()
            .any(|finding| finding.check == "eviction" && finding.severity == Severity::Ok),
        "{all:?}"
    );
    server
        .cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .unwrap();
    let all = open(&server.url()).await.examine().await;
    assert!(
        all.iter()
            .any(|finding| finding.check == "eviction" && finding.severity == Severity::Error),
        "{all:?}"
    );
}

async fn wrong_password_is_denied_and_not_shown(flavour: Flavour) {
    let server = server(flavour, &[]);
    user(&server, LEAST);
    let store = open(&format!("valkey://app:wr0ng@{}", server.addr())).await;
    let error = try_join(&store, "a").await.expect_err("a wrong password");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Denied, Outcome::Unchanged),
        "{error:?}"
    );
    let Health::Down { reason } = store.health() else {
        panic!("up with a wrong password")
    };
    let findings = store.examine().await;
    for said in [
        error.chain(),
        format!("{error:?}"),
        reason,
        store.place(),
        format!("{store:?}"),
        format!("{findings:?}"),
    ] {
        assert!(!said.contains("wr0ng"), "{said}");
    }
}
