//! Which tokens are valid, and that errors reveal nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_core::ErrorKind;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// When the tokens of these tests were issued; they expire an hour later.
const ISSUED: u64 = 1_767_225_600;
const NOW: u64 = ISSUED + 60;

/// Public keys, and tokens that were signed once by the private ones, which were thrown away.
fn golden() -> Value {
    serde_json::from_str(include_str!("tests/golden.json")).expect("JSON")
}

fn golden_token(name: &str) -> String {
    golden()["tokens"][name].as_str().expect("a token").to_owned()
}

fn at(seconds: u64) -> StoreTime {
    StoreTime::from_micros(seconds * 1_000_000)
}

fn settings() -> JwtSettings {
    JwtSettings::with_secret(KeySource::Secret(JwtSecret::new(SECRET)))
}

fn verifier(settings: JwtSettings) -> Arc<Verifier> {
    Verifier::new(settings).expect("good settings")
}

fn claims() -> Value {
    json!({"sub": "ann", "iat": ISSUED, "exp": ISSUED + 3_600})
}

/// The usual claims with others in their place; `null` takes one away.
fn with(changes: &Value) -> Value {
    let mut all = claims();
    let object = all.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(object.remove(name)),
            _ => drop(object.insert(name.clone(), value.clone())),
        }
    }
    all
}

fn sign(claims: &Value) -> String {
    // As the first verifier of the process does.
    let _ = verify::PROVIDER.install_default();
    encode(&Header::default(), claims, &EncodingKey::from_secret(SECRET.as_bytes())).expect("a token")
}

/// A file that is there for as long as the test.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("keys");
    fs::write(&path, content).expect("a file");
    (dir, path)
}

fn set(names: &[&str]) -> String {
    let golden = golden();
    let keys: Vec<&Value> = names.iter().map(|name| &golden["keys"][*name]).collect();
    json!({ "keys": keys }).to_string()
}

fn with_set(names: &[&str], algorithm: JwtAlgorithm) -> Arc<Verifier> {
    let (_dir, path) = file(&set(names));
    verifier(JwtSettings::with_jwks(path, algorithm))
}

#[test]
fn valid_token_identifies_the_provider() {
    let caller = verifier(settings())
        .verify(&sign(&claims()), at(NOW))
        .expect("a caller");
    assert_eq!(caller.provider.as_str(), "ann");
    assert_eq!(caller.issued_at, at(ISSUED - 5), "it may have been issued that early");
    assert_eq!(caller.expires_at, at(ISSUED + 3_600));
}

#[test]
fn a_token_that_may_be_older_than_the_revocation_is_void() {
    let caller = verifier(settings())
        .verify(&sign(&claims()), at(NOW))
        .expect("a caller");
    assert!(!caller.is_revoked(None));
    assert!(!caller.is_revoked(Some(at(ISSUED - 5))));
    for before in [at(ISSUED - 4), at(ISSUED), at(ISSUED + 10)] {
        assert!(caller.is_revoked(Some(before)), "{before}");
    }
    // A fraction of a second counts.
    let early = sign(&with(&json!({"iat": ISSUED as f64 + 0.25})));
    let caller = verifier(settings()).verify(&early, at(NOW)).expect("a caller");
    assert_eq!(caller.issued_at.micros(), (ISSUED - 5) * 1_000_000 + 250_000);
}

#[test]
fn each_algorithm_needs_a_key_of_its_own() {
    let cases = [
        (JwtAlgorithm::Rs256, "rsa", "RS256"),
        (JwtAlgorithm::Ps256, "rsa", "PS256"),
        (JwtAlgorithm::Es256, "p256", "ES256"),
        (JwtAlgorithm::Es384, "p384", "ES384"),
        (JwtAlgorithm::EdDsa, "ed25519", "EdDSA"),
    ];
    let all = ["rsa", "p256", "p384", "ed25519"];
    for (algorithm, key, name) in cases {
        for keys in [&[key][..], &all] {
            let verifier = with_set(keys, algorithm);
            let caller = verifier.verify(&golden_token(name), at(NOW)).expect(name);
            assert_eq!(caller.provider.as_str(), "ann");
            for (_, _, other) in cases.iter().filter(|(other, _, _)| *other != algorithm) {
                assert_eq!(
                    verifier.verify(&golden_token(other), at(NOW)),
                    Err(TokenError::Algorithm),
                    "{name} {other}"
                );
            }
            assert_eq!(verifier.verify(&sign(&claims()), at(NOW)), Err(TokenError::Algorithm));
        }
        let refused = verifier(settings()).verify(&golden_token(name), at(NOW));
        assert_eq!(refused, Err(TokenError::Algorithm), "{name}");
    }
}

#[test]
fn public_key_is_not_a_secret_and_alg_none_is_refused() {
    let rsa = with_set(&["rsa"], JwtAlgorithm::Rs256);
    for forged in ["HS256_by_pem", "HS256_by_der", "HS256_by_modulus"] {
        let forged = golden_token(forged);
        assert_eq!(rsa.verify(&forged, at(NOW)), Err(TokenError::Algorithm));
        assert_eq!(
            verifier(settings()).verify(&forged, at(NOW)),
            Err(TokenError::Signature)
        );
    }
    let token = sign(&claims());
    let mut parts = token.split('.');
    let (header, body, signature) = (
        parts.next(),
        parts.next().expect("a body"),
        parts.next().expect("a signature"),
    );
    assert!(header.is_some());
    // none, None, NONE, no alg at all, and an empty one.
    for header in [
        "eyJhbGciOiJub25lIn0",
        "eyJhbGciOiJOb25lIn0",
        "eyJhbGciOiJOT05FIn0",
        "e30",
        "eyJhbGciOiIifQ",
    ] {
        for signature in ["", signature] {
            let token = format!("{header}.{body}.{signature}");
            assert_eq!(
                verifier(settings()).verify(&token, at(NOW)),
                Err(TokenError::Malformed),
                "{token}"
            );
        }
    }
    // What must be understood, and is not.
    let header = Header {
        crit: Some(vec!["b64".to_owned()]),
        ..Header::default()
    };
    let critical = encode(&header, &claims(), &EncodingKey::from_secret(SECRET.as_bytes())).expect("a token");
    assert_eq!(
        verifier(settings()).verify(&critical, at(NOW)),
        Err(TokenError::Extension)
    );
}

#[test]
fn times_count_with_the_leeway_and_not_beyond() {
    let verifier = verifier(settings());
    let end = ISSUED + 3_600;
    let soon = json!({"nbf": ISSUED + 600});
    for (changes, now, want) in [
        (json!({}), end + 4, Ok(())),
        (json!({}), end + 5, Err(TokenError::Expired)),
        (json!({}), u64::MAX / 1_000_000, Err(TokenError::Expired)),
        (json!({}), ISSUED - 5, Ok(())),
        (json!({}), ISSUED - 6, Err(TokenError::NotYetValid)),
        (json!({}), 0, Err(TokenError::NotYetValid)),
        (soon.clone(), ISSUED + 595, Ok(())),
        (soon, ISSUED + 594, Err(TokenError::NotYetValid)),
        (json!({"exp": null}), NOW, Err(TokenError::NoExpiry)),
        (json!({"exp": "never"}), NOW, Err(TokenError::NoExpiry)),
        (json!({"exp": -1}), NOW, Err(TokenError::NoExpiry)),
        (json!({"exp": [end]}), NOW, Err(TokenError::Malformed)),
        (json!({"exp": u64::MAX}), NOW, Ok(())),
        (json!({"exp": 1e300}), NOW, Ok(())),
        (json!({"exp": NOW as f64 - 4.5}), NOW, Ok(())),
        (json!({"exp": NOW as f64 - 5.5}), NOW, Err(TokenError::Expired)),
        (json!({"iat": null}), NOW, Err(TokenError::NoIssueTime)),
        (json!({"iat": "1767225600"}), NOW, Err(TokenError::NoIssueTime)),
        (json!({"iat": u64::MAX}), NOW, Err(TokenError::NotYetValid)),
        (json!({"nbf": true}), NOW, Err(TokenError::Malformed)),
    ] {
        let got = verifier.verify(&sign(&with(&changes)), at(now)).map(drop);
        assert_eq!(got, want, "{changes} at {now}");
    }
}

#[test]
fn the_subject_is_the_name_of_a_provider() {
    let verifier = verifier(settings());
    for sub in [
        json!("ann smith"),
        json!(""),
        json!("é"),
        json!("x".repeat(201)),
        json!(7),
        json!(null),
    ] {
        let refused = verifier.verify(&sign(&with(&json!({ "sub": sub }))), at(NOW));
        assert_eq!(refused, Err(TokenError::Subject), "{sub}");
    }
    let longest = "x".repeat(200);
    let caller = verifier
        .verify(&sign(&with(&json!({ "sub": longest }))), at(NOW))
        .expect("a name");
    assert_eq!(caller.provider.as_str(), longest);
}

#[test]
fn issuer_audience_and_claims_must_match() {
    let mut settings = settings();
    let ask = |settings: &JwtSettings, changes: &Value| {
        verifier(settings.clone())
            .verify(&sign(&with(changes)), at(NOW))
            .map(drop)
    };
    // Without a configured audience every audience is a foreign one.
    assert_eq!(ask(&settings, &json!({"aud": "roster"})), Err(TokenError::Audience));
    settings.issuer = Some("https://id".to_owned());
    settings.audience = Some("roster".to_owned());
    settings.required = [
        "role=provider",
        "/realm/roles=on-call",
        "scope=heartbeat",
        "level=3",
        "https://x/ok=true",
    ]
    .map(|text| text.parse().expect(text))
    .into();
    let good = json!({
        "iss": "https://id", "aud": ["chat", "roster"], "role": ["provider", "admin"],
        "realm": {"roles": ["on-call"]}, "scope": "read heartbeat", "level": 3, "https://x/ok": true,
    });
    assert_eq!(ask(&settings, &good), Ok(()));
    let claim = |name: &str| Err(TokenError::Claim(name.into()));
    for (name, value, want) in [
        ("iss", json!("https://id.evil"), Err(TokenError::Issuer)),
        ("iss", Value::Null, Err(TokenError::Issuer)),
        ("aud", json!("chat"), Err(TokenError::Audience)),
        ("aud", Value::Null, Err(TokenError::Audience)),
        ("aud", json!("roster"), Ok(())),
        ("role", json!("provider"), Ok(())),
        ("role", json!("provider2"), claim("role")),
        ("role", Value::Null, claim("role")),
        ("role", json!({"provider": true}), claim("role")),
        ("realm", json!({"roles": "on-call"}), Ok(())),
        ("realm", json!("on-call"), claim("/realm/roles")),
        ("scope", json!("read heartbeats"), claim("scope")),
        ("scope", json!(["heartbeat"]), Ok(())),
        ("level", json!("3"), Ok(())),
        ("level", json!(30), claim("level")),
        ("https://x/ok", json!(false), claim("https://x/ok")),
    ] {
        let mut changed = good.clone();
        changed[name] = value.clone();
        assert_eq!(ask(&settings, &changed), want, "{name} {value}");
    }
}

#[test]
fn key_is_chosen_by_kid_or_all_are_tried() {
    let one = with_set(&["rsa"], JwtAlgorithm::Rs256);
    assert_eq!(
        one.verify(&golden_token("RS256_2"), at(NOW)),
        Err(TokenError::UnknownKey)
    );
    let other = with_set(&["rsa_2"], JwtAlgorithm::Rs256);
    assert_eq!(
        other.verify(&golden_token("RS256_no_kid"), at(NOW)),
        Err(TokenError::Signature)
    );
    let both = with_set(&["rsa_2", "rsa"], JwtAlgorithm::Rs256);
    assert_eq!(both.status().keys, 2);
    for name in ["RS256", "RS256_2", "RS256_no_kid"] {
        both.verify(&golden_token(name), at(NOW)).expect(name);
    }
    // The other key is for RS256 alone, by its own word.
    assert_eq!(with_set(&["rsa", "rsa_2"], JwtAlgorithm::Ps256).status().keys, 1);
}

/// Tokens that differ from one by a character changed, lost, or doubled, from a place on.
fn tampered(token: &str, from: usize) -> Vec<String> {
    const OTHERS: &str = "A_.= é";
    let mut all = Vec::new();
    for (n, old) in token.char_indices().skip(from) {
        let (before, after) = (&token[..n], &token[n + 1..]);
        // The neighbours in the alphabet differ in the lowest bits, which the end of a part may not use.
        let near = [-2, -1, 1, 2].map(|by| char::from((old as u8).wrapping_add_signed(by) & 0x7f));
        for new in OTHERS.chars().chain(near).filter(|new| *new != old) {
            all.push(format!("{before}{new}{after}"));
        }
        all.push(format!("{before}{after}"));
        all.push(format!("{before}{old}{old}{after}"));
    }
    all
}

#[test]
fn a_token_with_any_character_changed_is_refused() {
    let (shared, elliptic) = (sign(&claims()), golden_token("ES256"));
    let its_signature = elliptic.rfind('.').expect("a signature") + 1;
    for (verifier, token, from) in [
        (verifier(settings()), shared, 0),
        // Slow to verify: one case is enough.
        (with_set(&["p256"], JwtAlgorithm::Es256), elliptic, its_signature),
    ] {
        verifier.verify(&token, at(NOW)).expect("as it is");
        for tampered in tampered(&token, from).iter().filter(|tampered| **tampered != token) {
            verifier.verify(tampered, at(NOW)).expect_err(tampered);
        }
        // Parts too many or too few.
        for changed in [
            format!("{token}."),
            format!(".{token}"),
            format!("{token}.{token}"),
            format!("{token}AAAA"),
        ] {
            verifier.verify(&changed, at(NOW)).expect_err(&changed);
        }
    }
    let long = format!("{}{}", sign(&claims()), "A".repeat(MAX_TOKEN));
    assert_eq!(verifier(settings()).verify(&long, at(NOW)), Err(TokenError::TooLong));
    let foreign = encode(&Header::default(), &claims(), &EncodingKey::from_secret(b"another")).expect("a token");
    assert_eq!(
        verifier(settings()).verify(&foreign, at(NOW)),
        Err(TokenError::Signature)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_refused_and_never_panics(token in ".{0,200}", now in any::<u64>()) {
        prop_assert!(verifier(settings()).verify(&token, StoreTime::from_micros(now)).is_err());
    }

    #[test]
    fn garbage_in_the_shape_of_a_token_is_refused(
        parts in prop::collection::vec("[A-Za-z0-9_-]{0,60}", 3), now in any::<u64>(),
    ) {
        let own_header = sign(&claims()).split('.').next().map(str::to_owned).unwrap_or_default();
        for header in [&parts[0], &own_header] {
            let token = format!("{header}.{}.{}", parts[1], parts[2]);
            prop_assert!(verifier(settings()).verify(&token, StoreTime::from_micros(now)).is_err());
        }
    }

    #[test]
    fn claims_of_any_shape_never_panic(
        sub in ".{0,210}", exp in any::<f64>(), iat in any::<i64>(), nbf in any::<u64>(), now in any::<u64>(),
    ) {
        let token = sign(&json!({"sub": sub, "exp": exp, "iat": iat, "nbf": nbf}));
        if let Ok(caller) = verifier(settings()).verify(&token, StoreTime::from_micros(now)) {
            prop_assert_eq!(caller.provider.as_str(), sub);
            prop_assert!(caller.expires_at + Duration::from_secs(5) > StoreTime::from_micros(now));
        }
    }
}

#[test]
fn invalid_settings_are_refused_with_a_remedy() {
    let (_dir, short) = file("too short\n");
    let (_dir2, text) = file("this is a-secret-and-no-key-set-at-all");
    let (_dir3, weak) = file(&set(&["rsa_1024", "p256"]));
    let mut off_curve = golden()["keys"]["p256"].clone();
    off_curve["y"] = off_curve["x"].clone();
    let (_dir4, off_curve) = file(&json!({"keys": [off_curve, {"kty": "future"}, 7]}).to_string());
    let (_dir5, many) = file(&json!({"keys": vec![golden()["keys"]["rsa"].clone(); 65]}).to_string());
    let (_dir6, none) = file("{\"keys\": []}");
    let jwks = JwtSettings::with_jwks;
    let secret = |path: &PathBuf| JwtSettings::with_secret(KeySource::SecretFile(path.clone()));
    let other = |change: &dyn Fn(&mut JwtSettings)| {
        let mut settings = settings();
        change(&mut settings);
        settings
    };
    for (settings, must_say) in [
        (jwks("/none".into(), JwtAlgorithm::Hs256), "HS256 takes a secret"),
        (
            other(&|s| s.algorithm = JwtAlgorithm::Rs256),
            "RS256 does not fit a secret",
        ),
        (other(&|s| s.leeway = Duration::from_secs(61)), "jwt.leeway 61s"),
        (other(&|s| s.refresh = Duration::ZERO), "jwt.refresh 0ms"),
        (other(&|s| s.issuer = Some(String::new())), "jwt.issuer"),
        (other(&|s| s.audience = Some(String::new())), "jwt.audience"),
        (
            other(&|s| s.keys = KeySource::Secret(JwtSecret::new("short"))),
            "TENURE_JWT_SECRET has 5 bytes",
        ),
        (secret(&short), "has 9 bytes; at least 32"),
        (secret(&"/none/such".into()), "/none/such cannot be read"),
        (jwks(text, JwtAlgorithm::Es256), "line 1"),
        (jwks(weak, JwtAlgorithm::Rs256), "key 1 is too weak"),
        (
            jwks(off_curve, JwtAlgorithm::Es256),
            "not a point of its curve; key 2 is of another type",
        ),
        (jwks(many, JwtAlgorithm::Rs256), "more than 64 keys"),
        (jwks(none, JwtAlgorithm::EdDsa), "no key for EdDSA: it is empty"),
    ] {
        let error = Verifier::new(settings).expect_err(must_say);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.chain().contains(must_say), "{} ≠ {must_say}", error.chain());
        assert!(!error.chain().contains("a-secret"), "{}", error.chain());
    }
    assert!("RS1".parse::<JwtAlgorithm>().unwrap_err().to_string().contains("ES256"));
    for algorithm in JwtAlgorithm::ALL {
        assert_eq!(algorithm.as_str().parse::<JwtAlgorithm>().expect("a name"), algorithm);
    }
    for bad in ["role", "=provider"] {
        let said = bad.parse::<RequiredClaim>().unwrap_err().to_string();
        assert!(said.contains("name=value"), "{said}");
    }
}

#[tokio::test]
async fn key_file_reloads_and_invalid_file_is_ignored() {
    let (_dir, path) = file(&format!("{SECRET}\r\n"));
    let verifier = verifier(JwtSettings::with_secret(KeySource::SecretFile(path.clone())));
    let old = sign(&claims());
    let new_secret = SECRET.to_uppercase();
    let new = encode(
        &Header::default(),
        &claims(),
        &EncodingKey::from_secret(new_secret.as_bytes()),
    )
    .expect("a token");
    assert!(verifier.verify(&old, at(NOW)).is_ok());
    assert!(!verifier.refresh().await.expect("the same"), "nothing is new");

    for broken in ["", "short"] {
        fs::write(&path, broken).expect("a file");
        let turn = KeyWatch(Arc::clone(&verifier)).turn().await.expect("a turn");
        assert_eq!(turn.skipped, 1);
        let trouble = verifier.status().trouble.expect("trouble");
        assert!(trouble.contains("at least 32"), "{trouble}");
        assert!(verifier.verify(&old, at(NOW)).is_ok(), "as before");
    }
    fs::remove_file(&path).expect("a file");
    verifier.refresh().await.expect_err("it is gone");
    assert!(verifier.status().trouble.expect("trouble").contains("cannot be read"));
    fs::write(&path, SECRET.to_owned() + "\r\n").expect("a file");
    assert!(!verifier.refresh().await.expect("the old one is back"));
    assert_eq!(verifier.status(), KeyStatus { keys: 1, trouble: None });

    fs::write(&path, &new_secret).expect("a file");
    assert_eq!(KeyWatch(Arc::clone(&verifier)).turn().await.expect("a turn").skipped, 0);
    assert_eq!(verifier.verify(&old, at(NOW)), Err(TokenError::Signature));
    assert!(verifier.verify(&new, at(NOW)).is_ok());

    // A set turns as well; a secret from the environment never does.
    let (_dir, path) = file(&set(&["rsa"]));
    let sets = Verifier::new(JwtSettings::with_jwks(&path, JwtAlgorithm::Rs256)).expect("good settings");
    fs::write(&path, set(&["rsa", "rsa_2"])).expect("a file");
    assert!(sets.refresh().await.expect("a new one"));
    assert!(sets.verify(&golden_token("RS256_2"), at(NOW)).is_ok());
    let fixed = Verifier::new(settings()).expect("good settings");
    assert!(!fixed.refresh().await.expect("nothing"));
}

#[test]
fn neither_secrets_nor_tokens_show_anywhere() {
    let (_dir, path) = file(SECRET);
    let token = sign(&with(&json!({"sub": "hidden subject"})));
    let mut shown = String::new();
    for settings in [settings(), JwtSettings::with_secret(KeySource::SecretFile(path))] {
        let verifier = verifier(settings.clone());
        let refused = verifier.verify(&token, at(NOW)).expect_err("no name");
        shown += &format!(
            "{settings:?} {verifier:?} {:?} {refused:?} {refused} {}",
            verifier.status(),
            refused.challenge()
        );
    }
    for hidden in [SECRET, "hidden subject", &format!("{:?}", SECRET.as_bytes())] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn bearer_token_is_one_header() {
    let headers = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().expect("a header"));
        }
        headers
    };
    let token = sign(&claims());
    for scheme in ["Bearer ", "bearer ", "BEARER  "] {
        let headers = headers(&[&format!("{scheme}{token}")]);
        assert!(verifier(settings()).caller(&headers, at(NOW)).is_ok());
    }
    assert_eq!(bearer(&headers(&[])), Err(TokenError::Missing));
    assert_eq!(bearer(&headers(&["Basic eDp5"])), Err(TokenError::Missing));
    assert_eq!(bearer(&headers(&["Bearer"])), Err(TokenError::Missing));
    assert_eq!(bearer(&headers(&["Bearer a", "Bearer b"])), Err(TokenError::Malformed));
    assert_eq!(
        verifier(settings()).caller(&headers(&["Bearer  "]), at(NOW)),
        Err(TokenError::Malformed)
    );
    let error = TokenError::Expired;
    assert_eq!((error.code(), TokenError::STATUS), ("token_expired", 401));
    assert_eq!(
        error.challenge(),
        "Bearer error=\"invalid_token\", error_description=\"token_expired\""
    );
    assert_eq!(TokenError::Missing.challenge(), "Bearer");
}
