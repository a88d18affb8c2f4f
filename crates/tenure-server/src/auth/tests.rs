//! The token file, and the permissions of its tokens.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};
use tempfile::TempDir;
use tenure_core::id::{Group, RosterName};
use tenure_core::time::StoreTime;
use utoipa::openapi::security::SecurityRequirement;

use super::file::parse;
use super::grant::Grants;
use super::guard::{RequestContext, TokenFile};
use super::rule::tests::rule;
use super::secret::{Hash, is_ours};
use super::*;
use crate::jwt;

fn entry(name: &str, secret: &Secret) -> TokenEntry {
    TokenEntry {
        name: name.to_owned(),
        sha256: secret.sha256(),
        scopes: Scope::Read.into(),
        groups: Vec::new(),
        rosters: Vec::new(),
        expires: None,
    }
}

fn parsed(text: &str) -> Result<(Vec<TokenEntry>, Grants), String> {
    let (entries, grants) = parse(Path::new("FILE"), text.as_bytes()).map_err(|error| error.chain())?;
    Ok((entries, Grants::new(grants, &Grants::default())))
}

#[test]
fn secret_is_random_and_hidden_in_debug_output() {
    let (one, two) = (Secret::draw().unwrap(), Secret::draw().unwrap());
    assert!(one != two && is_ours(one.text()), "{}", one.text());
    assert!(!format!("{one:?}").contains(&one.text()[4..]));
    let near = format!("tnr_{}", "0".repeat(63));
    for other in ["", "tnr_", &near, &format!("{near}g"), &format!("{near}00"), "password"] {
        assert!(!is_ours(other), "{other}");
    }
}

#[test]
fn hashes_are_read_in_hexadecimal_and_in_nothing_else() {
    // The first vector of FIPS 180-4.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(Hash::parse(abc), Some(Hash::of("abc")));
    assert_eq!(Hash::parse(&abc.to_uppercase()), Some(Hash::of("abc")));
    let sign = abc.replacen("ba", "+a", 1);
    let wide = format!("é{}", &abc[2..]);
    for bad in ["", &abc[1..], &format!("{abc}0"), &sign, &abc.replace('b', "g"), &wide] {
        assert_eq!(Hash::parse(bad), None, "{bad}");
    }
}

#[test]
fn written_token_file_reads_back() {
    let mut entry = entry("ci:deploy-1", &Secret::draw().unwrap());
    assert_eq!(parsed(&entry.to_string()).unwrap().0, [entry.clone()]);
    entry.scopes = Scope::ALL.into_iter().collect();
    entry.groups = vec!["ingest".to_owned(), "team-*".to_owned(), "*".to_owned()];
    entry.rosters = vec!["support".to_owned()];
    entry.expires = Some("2027-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(parsed(&entry.to_string()).unwrap().0, [entry.clone()]);
    let quoted = entry
        .to_string()
        .replace("2027-01-01T00:00:00.000000Z", "\"2027-01-01T00:00:00Z\"");
    assert_ne!(quoted, entry.to_string());
    assert_eq!(parsed(&quoted).unwrap().0, [entry]);
}

#[test]
fn a_file_with_a_mistake_is_refused_whole_and_repeats_no_secret() {
    let secret = Secret::draw().unwrap();
    let good = entry("one", &secret).to_string();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from));
        good.replace(from, to)
    };
    let text = secret.text();
    for (file, must_say) in [
        (format!("[[token]\nname = \"{text}\""), "line 1"),
        (
            format!("{good}\nsecret = \"{text}\""),
            "token 1, it has an unknown field",
        ),
        (format!("{good}\n[other]\na = \"{text}\""), "an unknown key"),
        (format!("token = \"{text}\""), "not a list"),
        (format!("token = [\"{text}\"]"), "not a table"),
        (with(&secret.sha256(), text), "is the secret itself"),
        (with(&secret.sha256(), "abc"), "64 hexadecimal digits"),
        (
            with("name = \"one\"", &format!("name = \"{text}\"")),
            "name is a secret",
        ),
        (with("name = \"one\"", "name = \"a b\""), "the name is not"),
        (with("name = \"one\"\n", ""), "the name is missing"),
        (with("name = \"one\"", "name = 1"), "the name is not text"),
        (with("[\"read\"]", "[]"), "empty list"),
        (with("[\"read\"]", &format!("[\"{text}\"]")), "a scope is one of read"),
        (with("scopes = [\"read\"]\n", ""), "no scopes"),
        (format!("{good}groups = []"), "empty list"),
        (format!("{good}groups = [\"a b\"]"), "in groups, number 1"),
        (format!("{good}rosters = [\"a\", \"*b\"]"), "in rosters, number 2"),
        (format!("{good}expires = \"soon\""), "RFC 3339"),
        (format!("{good}expires = 7"), "not a time"),
        (format!("{good}{good}"), "two tokens with the name one"),
        (format!("{good}{}", with("\"one\"", "\"two\"")), "hash of two twice"),
    ] {
        let error = parsed(&file).expect_err(must_say);
        assert!(error.contains("FILE") && error.contains(must_say), "{error}");
        assert!(!error.contains(&text[4..]), "{error}");
    }
    assert_eq!(parsed("").unwrap().0, [], "no caller is admitted");
}

#[test]
fn restricted_token_covers_named_groups_and_rosters_only() {
    let grant = |groups: &[&str], rosters: &[&str]| {
        let mut entry = entry("one", &Secret::draw().unwrap());
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        (entry.groups, entry.rosters) = (owned(groups), owned(rosters));
        let (_, grants) = parsed(&entry.to_string()).unwrap();
        Arc::clone(grants.of(&Hash::parse(&entry.sha256).unwrap()).unwrap())
    };
    let group = |grant: &grant::Grant, name: &str| grant.is_for_group(&Group::new(name).unwrap());
    let roster = |grant: &grant::Grant, name: &str| grant.is_for_roster(&RosterName::new(name).unwrap());
    let everything = grant(&[], &[]);
    assert!(group(&everything, "a") && group(&everything, "roster.a") && roster(&everything, "a"));
    let some = grant(&["ingest", "team-*"], &[]);
    for (name, fits) in [
        ("ingest", true),
        ("ingest2", false),
        ("team-a", true),
        ("team-", true),
        ("team", false),
        ("Ingest", false),
    ] {
        assert_eq!(group(&some, name), fits, "{name}");
    }
    assert!(!roster(&some, "ingest") && !roster(&some, "team-a"));
    let groups = grant(&["*"], &[]);
    assert!(group(&groups, "a") && !group(&groups, "roster.a") && !roster(&groups, "a"));
    let rosters = grant(&[], &["support"]);
    assert!(roster(&rosters, "support") && group(&rosters, "roster.support"));
    assert!(!group(&rosters, "support") && !group(&rosters, "roster.other") && !roster(&rosters, "other"));
}

#[test]
fn unchanged_token_keeps_its_object_across_reloads() {
    let secrets: Vec<_> = (0..300).map(|_| Secret::draw().unwrap()).collect();
    let file = |skip: usize| -> String {
        let entries = secrets.iter().enumerate().skip(skip);
        entries
            .map(|(n, secret)| entry(&format!("t{n}"), secret).to_string())
            .collect()
    };
    let (_, before) = parsed(&file(0)).unwrap();
    for (n, secret) in secrets.iter().enumerate() {
        assert_eq!(before.of(&Hash::of(secret.text())).unwrap().name(), format!("t{n}"));
    }
    assert!(before.of(&Hash::of(Secret::draw().unwrap().text())).is_none());
    let (_, grants) = parse(Path::new("FILE"), file(1).as_bytes()).unwrap();
    let after = Grants::new(grants, &before);
    let kept = before.of(&Hash::of(secrets[7].text())).unwrap();
    assert!(after.has(kept));
    assert!(!after.has(before.of(&Hash::of(secrets[0].text())).unwrap()));
    let (_, grants) = parse(Path::new("FILE"), file(0).replace("read", "beat").as_bytes()).unwrap();
    assert!(
        !Grants::new(grants, &before).has(kept),
        "one that may do something else is another one"
    );
}

#[test]
fn a_token_ends_at_the_instant_it_names() {
    let mut entry = entry("one", &Secret::draw().unwrap());
    entry.expires = Some(StoreTime::from_micros(1_000));
    let (_, grants) = parsed(&entry.to_string()).unwrap();
    let grant = grants.of(&Hash::parse(&entry.sha256).unwrap()).unwrap();
    assert!(!grant.has_expired(|| StoreTime::from_micros(999)));
    assert!(grant.has_expired(|| StoreTime::from_micros(1_000)));
}

#[test]
fn later_of_two_reloads_wins() {
    let dir = TempDir::new().unwrap();
    let (file, pipe, new) = (
        dir.path().join("tokens"),
        dir.path().join("pipe"),
        dir.path().join("new"),
    );
    let (out, kept) = (Secret::draw().unwrap(), Secret::draw().unwrap());
    let kept = entry("kept", &kept).to_string();
    let before = format!("{kept}{}", entry("out", &out));
    fs::write(&file, "").unwrap();
    let token_file = Arc::new(TokenFile::new(file.clone()).unwrap());
    let look = || {
        let (token_file, (tell, told)) = (Arc::clone(&token_file), mpsc::channel());
        thread::spawn(move || tell.send(token_file.refresh()));
        told
    };
    // A pipe hangs until it is written to: the first reload has begun to read, and continues later.
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::rename(&pipe, &file).unwrap();
    let first = look();
    let mut writer = OpenOptions::new().write(true).open(&file).unwrap();
    fs::write(&new, &kept).unwrap();
    fs::rename(&new, &file).unwrap();
    let second = look();
    // The second would be done by now if it did not wait for the first.
    let early = second.recv_timeout(Duration::from_millis(300));
    writer.write_all(before.as_bytes()).unwrap();
    drop(writer);
    let soon = Duration::from_secs(20);
    first.recv_timeout(soon).unwrap().unwrap();
    early.or_else(|_| second.recv_timeout(soon)).unwrap().unwrap();
    assert_eq!(token_file.status(), (1, None), "a token that was taken out is back");
}

#[test]
fn open_route_verifies_no_signature() {
    let dir = TempDir::new().unwrap();
    let (file, known) = (dir.path().join("tokens"), Secret::draw().unwrap());
    fs::write(&file, entry("one", &known).to_string()).unwrap();
    let guard = Guard::new(Some(file)).unwrap();
    let key = jwt::KeySource::Secret(jwt::JwtSecret::new(&b"a secret that is long enough for HS256"[..]));
    let verifier = jwt::Verifier::new(jwt::JwtSettings::with_secret(key)).unwrap();
    let open = rule("/livez", Some(vec![SecurityRequirement::default()])).unwrap();
    let who = |token: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        let context = RequestContext {
            headers: &headers,
            uri: &Uri::from_static("/livez"),
            jwt: Some(&verifier),
            now: &|| panic!("a token is verified"),
        };
        guard.check(&open, guard.known(&headers), &context).unwrap()
    };
    assert!(matches!(who(known.text()), Caller::Known(_)));
    assert!(matches!(who("eyJhbGciOiJIUzI1NiJ9.e30.AAAA"), Caller::Stranger));
}
