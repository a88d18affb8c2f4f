//! Parsing, display and rejection of store URLs.

use super::*;

#[test]
fn url_is_shown_without_secrets() {
    for (url, place) in [
        ("valkey://db.example", "valkey://db.example:6379"),
        ("redis://127.0.0.1:7000/3", "redis://127.0.0.1:7000/3"),
        ("valkey://user:p%40ss@db:1", "valkey://db:1"),
        ("redis://:secret@[::1]:2", "redis://[::1]:2"),
        (
            "redis-sentinel://u:secret@a,b:7/main/2",
            "redis-sentinel://a:26379,b:7/main/2",
        ),
        (
            "valkey-sentinel://a/m?sentinel_password=secret",
            "valkey-sentinel://a:26379/m",
        ),
        ("valkey-cluster://u:secret@a,[::1]:7", "valkey-cluster://a:6379,[::1]:7"),
        ("redis-cluster://a?wait=2", "redis-cluster://a:6379"),
    ] {
        let address = Address::parse(url).unwrap();
        assert_eq!(address.place(), place);
        assert_eq!(format!("{address:?}"), format!("Address({place})"));
    }
    let address = Address::parse("valkey://user:p%40ss@db:1").unwrap();
    assert_eq!(
        (address.handshake().username(), address.handshake().password()),
        (Some("user"), Some("p@ss"))
    );
}

#[test]
fn sentinels_have_their_own_credentials() {
    let url = "redis-sentinel://app:one@a,b:7/main?sentinel_user=watch&sentinel_password=t%26wo";
    let address = Address::parse(url).unwrap();
    let Servers::Sentinels(sentinels) = address.servers() else {
        panic!("no sentinels")
    };
    let at: Vec<String> = sentinels.at.iter().map(Endpoint::to_string).collect();
    assert_eq!(
        (sentinels.name.as_str(), at.join(" ")),
        ("main", "a:26379 b:7".to_owned())
    );
    assert_eq!(
        (sentinels.handshake.username(), sentinels.handshake.password()),
        (Some("watch"), Some("t&wo"))
    );
    assert_eq!(
        (address.handshake().username(), address.handshake().password()),
        (Some("app"), Some("one"))
    );
}

#[test]
fn node_address_inherits_cluster_settings() {
    let cluster = Address::parse("redis-cluster://app:one@a,b:7?wait=1&wait_timeout=50ms").unwrap();
    let node = Endpoint {
        host: "c".to_owned(),
        port: 9,
    };
    let node = cluster.of_node(&node);
    assert_eq!(node.place(), "redis-cluster://c:9");
    assert_eq!(node.handshake().password(), Some("one"));
    let within = std::time::Duration::from_millis(50);
    assert_eq!(node.wait(), Some(Wait { replicas: 1, within }));
}

#[test]
fn invalid_urls_are_refused_without_the_password() {
    for url in [
        "http://u:secret@h",
        "secret",
        "valkey://",
        "valkey://u:secret@h:port",
        "valkey://u:secret@h/x",
        "valkey://u:secret@h?timeout=1",
        "valkey://u:secret@h#frag",
        "valkey://u:secret@0.0.0.0",
        "valkey://u:secret@h,i",
        "valkey://u:secret@h?tls_ca=/secret",
        "valkey://u:secret@h?tls=on",
        "valkeys://u:secret@h?tls=off",
        "valkeys://u:secret@h#insecure",
        "valkeys://u:secret@h?tls_ca=",
        "valkeys://u:secret@h?tls_cert=/nowhere/cert",
        "valkey://u:secret@h?sentinel_password=secret",
        "redis-sentinel://u:secret@h",
        "redis-sentinel://u:secret@h/",
        "redis-sentinel://u:secret@h/name/x",
        "redis-cluster://u:secret@h/1",
        "redis-cluster://u:secret@h?tls=off",
        "redis-cluster://u:secret@h,",
        "valkey://h?wait=0",
        "valkey://h?wait=many",
        "valkey://h?wait_timeout=1s",
        "valkey://h?wait=1&wait=2",
        "valkey://h?wait=1&wait_timeout=1h",
    ] {
        let error = Address::parse(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
        assert!(!error.chain().contains("secret"), "{error:?}");
    }
}

#[test]
fn missing_tls_file_is_named() {
    let error = Address::parse("rediss://h?tls_ca=/nowhere/ca.pem").expect_err("no such file");
    assert!(error.chain().contains("/nowhere/ca.pem"), "{error:?}");
}
