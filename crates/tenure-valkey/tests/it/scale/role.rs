//! Behind sentinels: a user who may not ask for the role of a server.

use tenure_core::error::{ErrorKind, Outcome};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::sentinel::Sentinels;

use crate::world::*;

on_both! { a_server_that_does_not_tell_its_role_is_not_believed }

async fn a_server_that_does_not_tell_its_role_is_not_believed(flavour: Flavour) {
    // They take nobody for dead on a busy machine.
    let sentinels = Sentinels::start(flavour, "sentinel down-after-milliseconds main 30000")
        .expect("these tests need their servers");
    let user = |rule: &str| {
        let rules = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", rule];
        assert_eq!(sentinels.primary().cli(&rules).unwrap().text(), "OK");
    };
    user("-role");
    let store = open(&sentinels.url().replace("://", "://app:s3cret@")).await;
    let error = try_join(&store, "a")
        .await
        .expect_err("nobody knows whether it is the primary");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Denied, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.message().contains("+role"), "{error:?}");
    user("+role");
    until_up(&store).await;
    join(&store, "a").await;
}
