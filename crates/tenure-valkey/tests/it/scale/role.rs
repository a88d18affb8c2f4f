//! Behind sentinels: a user without permission for ROLE.

use tenure_core::error::{ErrorKind, Outcome};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::sentinel::Sentinels;

use crate::world::*;

on_both! { server_with_unknown_role_is_not_used }

async fn server_with_unknown_role_is_not_used(flavour: Flavour) {
    // A high down-after, so that a busy machine is not declared dead.
    let sentinels = Sentinels::start(flavour, "sentinel down-after-milliseconds main 30000")
        .expect("these tests need their servers");
    let user = |rule: &str| {
        let rules = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", rule];
        assert_eq!(sentinels.primary().cli(&rules).unwrap().text(), "OK");
    };
    user("-role");
    let store = open(&sentinels.url().replace("://", "://app:s3cret@")).await;
    let error = try_join(&store, "a").await.expect_err("its role is unknown");
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
