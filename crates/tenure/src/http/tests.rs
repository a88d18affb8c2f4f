//! The client without a daemon: what it makes of answers and of silence.

use super::*;

#[test]
fn a_base_url_keeps_its_path_and_shows_no_secrets() {
    for (url, base) in [
        ("http://127.0.0.1:7717", "http://127.0.0.1:7717/"),
        ("http://host/tenure", "http://host/tenure/"),
        ("http://host/tenure/", "http://host/tenure/"),
    ] {
        assert_eq!(base_url(url).unwrap().as_str(), base);
    }
    for (url, must_say) in [
        ("https://host", "https"),
        ("valkey://host", "not an http"),
        ("http://user:hunter2@host", "credentials"),
        ("http://host?x=1", "query"),
        ("::", "cannot be read"),
    ] {
        let error = base_url(url).unwrap_err().chain();
        assert!(error.contains(must_say) && !error.contains("hunter2"), "{error}");
    }
}
