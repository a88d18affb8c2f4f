//! A request, the answer it deserves, and the ways to be wrong that all nouns share.

use serde_json::Value;

/// A request, the answer it deserves, and a word that the sentence must contain.
pub struct Case {
    pub method: &'static str,
    pub path: String,
    pub kind: Option<&'static str>,
    pub body: Vec<u8>,
    pub status: u16,
    pub code: &'static str,
    pub must_say: &'static str,
}

pub fn case(
    method: &'static str,
    path: &str,
    body: Value,
    status: u16,
    code: &'static str,
    must_say: &'static str,
) -> Case {
    let (kind, body) = if body.is_null() {
        (None, Vec::new())
    } else {
        (Some("application/json"), body.to_string().into())
    };
    Case {
        method,
        path: path.to_owned(),
        kind,
        body,
        status,
        code,
        must_say,
    }
}

/// It can be read and breaks a rule.
pub fn refused(method: &'static str, path: &str, body: Value, must_say: &'static str) -> Case {
    case(method, path, body, 422, "invalid", must_say)
}

/// A `GET` that breaks a rule.
pub fn get(path: &str, must_say: &'static str) -> Case {
    refused("GET", path, Value::Null, must_say)
}

/// Nothing is served there.
pub fn lost(path: &str) -> Case {
    case("GET", path, Value::Null, 404, "no_such_route", "openapi.json")
}

/// Something is served there, with other methods.
pub fn wrong(method: &'static str, path: &str) -> Case {
    case(method, path, Value::Null, 405, "method_not_allowed", "Allow")
}

pub fn raw(
    method: &'static str,
    path: &str,
    kind: Option<&'static str>,
    body: &[u8],
    status: u16,
    code: &'static str,
) -> Case {
    Case {
        method,
        path: path.to_owned(),
        kind,
        body: body.into(),
        status,
        code,
        must_say: "",
    }
}

/// More bytes than are read there, `factor` times the usual limit.
pub fn too_large(method: &'static str, path: &str, factor: usize) -> Case {
    let large = vec![b' '; (factor << 20) + 1];
    raw(method, path, Some("application/json"), &large, 413, "body_too_large")
}

/// Bodies that are not JSON, or have another content type.
pub fn bodies(method: &'static str, path: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for body in [
        &b"{"[..],
        b"member=m",
        b"{\"member\":\"m\"",
        b"{} {}",
        b"\xff\xfe",
        b"nul",
    ] {
        let kind = Some("application/json");
        cases.push(raw(method, path, kind, body, 400, "malformed_json"));
    }
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonx"),
        Some(""),
    ] {
        cases.push(raw(method, path, kind, b"{}", 415, "unsupported_media_type"));
    }
    cases
}

/// Invalid names in a path, and what the error must say.
pub fn names() -> Vec<(String, &'static str)> {
    let mut names: Vec<_> = [
        ("a%20b", "' ' at position 2"),
        ("a%2Fb", "'/' at position 2"),
        ("%7Bx%7D", "'{' at position 1"),
        ("%C3%A9", "'é' at position 1"),
        ("a%00", "'\\\\0' at position 2"),
        ("a%zz", "'%' at position 2"),
        ("a%F0%9F", "not UTF-8"),
    ]
    .map(|(name, must_say)| (name.to_owned(), must_say))
    .into();
    names.push(("x".repeat(201), "201 characters"));
    names
}

/// Invalid tenure ids in a path.
pub const TENURES: [&str; 10] = [
    "m",
    "m@",
    "@5",
    "m@0",
    "m@x",
    "m@+1",
    "m@9007199254740992",
    "a@1@2",
    "a%20b@1",
    "m@01",
];
