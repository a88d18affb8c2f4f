//! URLs of the client, without a daemon.

use super::*;

#[test]
fn base_url_keeps_its_path_and_hides_secrets() {
    for (url, base) in [
        ("http://127.0.0.1:7717", "http://127.0.0.1:7717/"),
        ("http://host/tenure", "http://host/tenure/"),
        ("http://host/tenure/", "http://host/tenure/"),
        ("https://host?tls_ca=/etc/ca.pem", "https://host/"),
        ("https://host/t?tls_cert=a&tls_key=b", "https://host/t/"),
    ] {
        assert_eq!(Base::read(url).unwrap().url.as_str(), base);
    }
    for (url, must_say) in [
        ("valkey://host", "neither http"),
        ("http://user:hunter2@host", "credentials"),
        ("http://host?x=1", "query"),
        ("https://host?tls_ca=a&password=hunter2", "query"),
        ("https://host?tls_ca=a&tls_ca=b", "twice"),
        ("https://host?tls_key=", "empty tls_key"),
        ("http://host?tls_ca=a", "for https"),
        ("http://host#x", "fragment"),
        ("::", "cannot be read"),
    ] {
        let error = Base::read(url).unwrap_err().chain();
        assert!(error.contains(must_say) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn unusable_files_are_named() {
    let base = Base::read("https://host?tls_ca=/nowhere/ca.pem").unwrap();
    let error = base.connector(HttpSettings::default()).err().unwrap().chain();
    assert!(
        error.contains("/nowhere/ca.pem") && error.contains("No such file"),
        "{error}"
    );
}
