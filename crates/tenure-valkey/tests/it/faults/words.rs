//! A refusal that names the server's own words, and says what to do about them.

use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_testkit::valkey::{Flavour, Server};

use crate::world::*;

on_both! {
    disabled_command_is_named,
    full_server_says_so,
    refused_login_has_the_words_of_the_server,
    missing_database_is_named,
    refused_login_shows_no_password,
}

/// The first error of a store at this URL.
async fn refusal(url: &str) -> Error {
    let store = open(url).await;
    try_join(&store, "a").await.expect_err("the server refuses")
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &[&str], not: &[&str]) {
    let said = error.chain();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Unchanged), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    for word in not.iter().chain(&["\n", "\r"]) {
        assert!(!said.contains(word), "{word:?} is in: {said}");
    }
    assert!(said.len() < 1_000, "{} bytes: {said}", said.len());
}

async fn disabled_command_is_named(flavour: Flavour) {
    let wrong = ["what its URL says", "redis.call", "redis.pcall"];
    for command in ["EVAL", "TIME"] {
        let server = server(flavour, &["--rename-command", command, ""]);
        let error = refusal(&server.url()).await;
        let words = ["unknown command", command, "rename-command"];
        says(&error, ErrorKind::Misconfigured, &words, &wrong);
    }
    let server = server(flavour, &[]);
    let rules = [
        "ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", "-eval", "-evalsha",
    ];
    assert_eq!(server.cli(&rules).unwrap().text(), "OK");
    let error = refusal(&format!("valkey://app:s3cret@{}", server.addr())).await;
    says(&error, ErrorKind::Denied, &["NOPERM", "the rule +eval"], &wrong);
}

async fn full_server_says_so(flavour: Flavour) {
    // One more connection is for the test's own commands.
    let server = server(flavour, &["--maxclients", "3"]);
    let held: Vec<_> = (0..3).map(|_| connected(&server)).collect();
    for login in ["", "app:s3cret@"] {
        let error = refusal(&format!("valkey://{login}{}", server.addr())).await;
        let words = ["max number of clients reached", "maxclients"];
        says(&error, ErrorKind::Unavailable, &words, &["TLS", "password"]);
    }
    drop(held);
    let store = open(&server.url()).await;
    until_up(&store).await;
}

/// A connection that the server has accepted.
fn connected(server: &Server) -> tenure_testkit::resp::Client {
    let mut client = server.client().expect("a connection");
    assert_eq!(client.call(&["PING"]).expect("a reply").text(), "PONG");
    client
}

async fn refused_login_has_the_words_of_the_server(flavour: Flavour) {
    let server = server(flavour, &[]);
    let set = server.cli(&["CONFIG", "SET", "requirepass", "s3cret"]);
    assert_eq!(set.expect("a reply").text(), "OK");
    let wrong = format!("valkey://:wr0ng@{}", server.addr());
    says(&refusal(&wrong).await, ErrorKind::Denied, &["WRONGPASS"], &["wr0ng"]);
    says(&refusal(&server.url()).await, ErrorKind::Denied, &["NOAUTH"], &[]);
    let right = open(&format!("valkey://:s3cret@{}", server.addr())).await;
    join(&right, "a").await;
}

async fn missing_database_is_named(flavour: Flavour) {
    let server = server(flavour, &[]);
    let error = refusal(&format!("{}/99", server.url())).await;
    says(
        &error,
        ErrorKind::Misconfigured,
        &["DB index is out of range"],
        &["TLS"],
    );
}

/// A server that does not know a command repeats its arguments.
async fn refused_login_shows_no_password(flavour: Flavour) {
    let server = server(flavour, &["--rename-command", "AUTH", ""]);
    let error = refusal(&format!("valkey://app:s3cret@{}", server.addr())).await;
    says(
        &error,
        ErrorKind::Misconfigured,
        &["unknown command", "AUTH"],
        &["s3cret"],
    );
}
