//! The settings of the daemon, from every place and in every order, and the file that holds all tables.

use std::collections::BTreeSet;
use std::io::Write;

use super::*;

type Pairs<'a> = &'a [(&'static str, &'a str)];

fn load(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Settings, String> {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    config.write_all(file.as_bytes()).unwrap();
    let path = config.path().to_str().unwrap();
    let environment = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| (*text).to_owned())
    };
    Settings::load(&Flags::of(Some(path), flags), &environment).map_err(|error| error.to_string().replace(path, "FILE"))
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let (flag, variable, file) = (("max_ttl", "11s"), ("TENURE_MAX_TTL", "12s"), "max_ttl = \"13s\"");
    let max_ttl = |loaded: Result<Settings, String>| loaded.unwrap().max_ttl.as_secs();
    assert_eq!(max_ttl(load(&[flag], &[variable], file)), 11);
    assert_eq!(max_ttl(load(&[], &[variable], file)), 12);
    assert_eq!(
        max_ttl(load(&[], &[("TENURE_MAX_TTL", "")], file)),
        13,
        "an empty variable is not set"
    );
    assert_eq!(max_ttl(load(&[], &[], "")), 120);
}

#[test]
fn every_setting_can_be_given_in_each_of_the_three_ways() {
    let plain = load(&[], &[], "").unwrap();
    for setting in Settings::ROWS {
        let other = match setting.key {
            "listen" => "127.0.0.1:1",
            "store" => "memory:",
            "brake.share" | "otlp.sample" => "0.25",
            // A build without traces rejects it: see below.
            "otlp.endpoint" if cfg!(not(feature = "otel")) => continue,
            "otlp.endpoint" => "http://127.0.0.1:4318",
            // Not below twice the max_ttl that is the default.
            "groups.forget_after" => "7m",
            // Not below an hour.
            "roster.keep_engagements" => "7h",
            "events.bytes" => "7777777",
            "log_format" => "json",
            "data_dir" | "log" => "debug",
            _ if setting.placeholder.is_empty() && setting.default == "true" => "false",
            _ if setting.placeholder.is_empty() => "true",
            _ if setting.placeholder == "DURATION" => "7s",
            _ => "777",
        };
        let by_flag = load(&[(setting.key, other)], &[], "").unwrap();
        assert_ne!(by_flag, plain, "{}", setting.key);
        assert_eq!(
            load(&[], &[(&setting.variable(), other)], "").unwrap(),
            by_flag,
            "{}",
            setting.key
        );
        assert_eq!(
            load(&[], &[], &format!("{} = \"{other}\"", setting.key)).unwrap(),
            by_flag,
            "{}",
            setting.key
        );
    }
}

#[test]
fn file_values_need_no_quotes() {
    let loaded = load(&[], &[], "[brake]\nshare = 0.75\nfloor = 20\n[events]\nkeys = false\n").unwrap();
    assert_eq!(
        (loaded.brake_share, loaded.brake_floor, loaded.events_keys),
        (0.75, 20, false)
    );
}

#[test]
fn errors_name_the_flag_variable_or_key() {
    let table: &[(Pairs, Pairs, &str, &str)] = &[
        (
            &[("max_ttl", "10")],
            &[],
            "",
            "--max-ttl: \"10\" is not a duration; write a number with its unit, like 500ms, 10s, 5m or 1m30s",
        ),
        (
            &[],
            &[("TENURE_JANITOR_INTERVAL", "soon")],
            "",
            "TENURE_JANITOR_INTERVAL: \"soon\" is not a duration; write a number with its unit, like 500ms, 10s, 5m or 1m30s",
        ),
        (
            &[],
            &[],
            "brake.share = 1.5",
            "FILE: brake.share: \"1.5\" is not a share; write a number above 0 and up to 1, like 0.5",
        ),
        (
            &[],
            &[],
            "events.max = [1]",
            "FILE: events.max: a text, a number or a boolean is expected, and this is of the type array",
        ),
        (
            &[("listen", "here")],
            &[],
            "",
            "--listen: \"here\" is not an address to listen on; write host:port, like 127.0.0.1:7717",
        ),
        (
            &[("events.keys", "maybe")],
            &[],
            "",
            "--events-keys: \"maybe\" is neither true nor false",
        ),
        (
            &[("log_format", "xml")],
            &[],
            "",
            "--log-format: \"xml\" is not a log format; there are text and json",
        ),
        (
            &[("max_ttl", "500ms")],
            &[],
            "",
            "max_ttl is 500ms; it has to be from 1s to 24h",
        ),
        (
            &[("janitor.interval", "1ms")],
            &[],
            "",
            "janitor.interval is 1ms; it has to be from 100ms to 1h",
        ),
        (
            &[("events.max", "5")],
            &[],
            "",
            "events.max is 5; it has to be at least 100",
        ),
        (
            &[("events.bytes", "64")],
            &[],
            "",
            "events.bytes is 64; it has to be at least 1048576",
        ),
        (
            &[("sessions.grace", "999ms")],
            &[],
            "",
            "sessions.grace is 999ms; it has to be from 1s to 720h",
        ),
        (
            &[],
            &[("TENURE_SESSIONS_MAX_AGE", "0s")],
            "",
            "sessions.max_age is 0ms; it has to be from 1s to 8760h",
        ),
        (
            &[],
            &[],
            "sessions.reconcile_interval = \"31d\"",
            "sessions.reconcile_interval is 744h; it has to be from 100ms to 720h",
        ),
        (
            &[],
            &[],
            "reaper.interval = \"2h\"",
            "reaper.interval is 2h; it has to be from 100ms to 1h",
        ),
    ];
    for (flags, variables, file, message) in table {
        assert_eq!(load(flags, variables, file).unwrap_err(), *message);
    }
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    for (file, key, nearest) in [
        ("max_tll = \"1m\"", "max_tll", "max_ttl"),
        ("[janitor]\nintervall = \"1m\"", "janitor.intervall", "janitor.interval"),
        ("[jnitor]\ninterval = \"1m\"", "jnitor.interval", "janitor.interval"),
        ("[max_tll]", "max_tll", "max_ttl"),
        ("adopt = true", "adopt", "adopt.leases.wait"),
        (
            "[adopt.registry]\nhsah = \"h\"",
            "adopt.registry.hsah",
            "adopt.registry.hash",
        ),
        (
            "[adopt.registry]\npattern = \"h\"",
            "adopt.registry.pattern",
            "adopt.sessions.pattern",
        ),
        ("adopt.lease.wait = \"1m\"", "adopt.lease.wait", "adopt.leases.wait"),
        ("[[adopt.leases]]", "adopt.leases", "adopt.leases.wait"),
    ] {
        let message = load(&[], &[], file).unwrap_err();
        let wanted = format!("FILE: unknown key \"{key}\"; did you mean \"{nearest}\"?");
        assert_eq!(message, wanted, "{file}");
    }
    let message = load(&[], &[], "[max_ttl]\nx = 1").unwrap_err();
    assert!(message.starts_with("FILE: max_ttl: a text, a number"), "{message}");
    assert!(
        load(&[], &[], "max_ttl = ")
            .unwrap_err()
            .starts_with("FILE is not TOML: ")
    );
}

#[test]
fn toml_errors_have_a_position_and_no_content() {
    for (line, column) in [
        ("store = \"valkey://:s3cret@h:6379\" x", 35),
        ("store = valkey://:s3cret@h", 9),
        ("store = \"valkey://:s3cret@h", 28),
        ("store = \"valkey://:s3cret@h\\x\"", 30),
    ] {
        let message = load(&[], &[], &format!("drain = \"ü1s\"\n{line}\nmax_ttl = \"1m\"")).unwrap_err();
        let place = format!("FILE is not TOML: line 2, column {column}: ");
        assert!(message.starts_with(&place), "{message}");
        assert!(!message.contains("s3cret") && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn an_unknown_key_of_any_length_makes_a_short_message() {
    let file = format!("{} = 1", "x".repeat(1_000_000));
    assert!(load(&[], &[], &file).unwrap_err().len() < 300);
}

#[test]
fn the_daemon_passes_over_what_the_file_says_to_others() {
    let file = "max_ttl = \"13s\"\n[adopt.registry]\nsettle = \"not even a duration\"\n[adopt.leases]\n";
    assert_eq!(load(&[], &[], file).unwrap().max_ttl.as_secs(), 13);
}

#[test]
fn no_two_settings_of_a_command_share_a_name() {
    for table in [Settings::ROWS, adopt::Registry::ROWS, adopt::Leases::ROWS] {
        let flags: BTreeSet<String> = table.iter().map(Setting::flag).collect();
        let variables: BTreeSet<String> = table.iter().map(Setting::variable).collect();
        assert_eq!((flags.len(), variables.len()), (table.len(), table.len()));
    }
    let keys: BTreeSet<&str> = all().map(|setting| setting.key).collect();
    assert_eq!(keys.len(), all().count());
}

#[test]
fn an_address_that_others_reach_has_to_be_asked_for() {
    let message = load(&[("listen", "0.0.0.0:7717")], &[], "").unwrap_err();
    assert!(
        message.starts_with("listen is 0.0.0.0:7717, which other machines reach"),
        "{message}"
    );
    assert!(load(&[("listen", "0.0.0.0:7717"), ("insecure_listen", "true")], &[], "").is_ok());
    assert!(load(&[("listen", "[::1]:7717")], &[], "").is_ok());
}

#[test]
fn the_default_store_is_a_file_in_the_data_directory() {
    let loaded = load(&[("data_dir", "/var/lib/tenure")], &[], "").unwrap();
    assert_eq!(
        loaded.store_url(),
        ("sqlite:/var/lib/tenure/tenure.db".to_owned(), true)
    );
    let given = load(&[("store", "valkey://a")], &[], "").unwrap();
    assert_eq!(given.store_url(), ("valkey://a".to_owned(), false));
}

#[test]
fn a_ttl_limit_below_the_default_ttl_is_pointed_out() {
    assert!(load(&[], &[], "").unwrap().surprises().is_none());
    let told = load(&[("max_ttl", "10s")], &[], "").unwrap().surprises().unwrap();
    assert!(told.contains("30s") && told.contains("10s (max_ttl)"), "{told}");
}

/// Writes the tables of the page instead of comparing them.
const UPDATE: &str = "TENURE_UPDATE_DOCS";

#[test]
fn endpoint_of_traces_needs_a_build_with_traces() {
    let of = |endpoint: &str| load(&[("otlp.endpoint", endpoint)], &[], "");
    assert_eq!(of("").unwrap().traces().unwrap(), None);
    let loaded = of("http://127.0.0.1:4318");
    if cfg!(feature = "otel") {
        let traces = loaded.unwrap().traces().unwrap().unwrap();
        assert_eq!((&*traces.endpoint, traces.sample), ("http://127.0.0.1:4318", 1.0));
    } else {
        let error = loaded.unwrap_err();
        assert!(
            error.contains("otlp.endpoint") && error.contains("--features otel"),
            "{error}"
        );
    }
    let error = of("127.0.0.1:4318").unwrap_err();
    assert!(error.contains("otlp.endpoint"), "{error}");
}

#[test]
fn settings_page_lists_every_setting() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/settings.md");
    let mut page = std::fs::read_to_string(path).unwrap();
    let (adopt, daemon): (Vec<_>, Vec<_>) = all().partition(|setting| setting.key.starts_with("adopt."));
    for (mark, settings) in [("daemon", daemon), ("adopt", adopt)] {
        let wanted = table(&settings);
        let (before, rest) = page.split_once(&format!("<!-- {mark} -->\n")).unwrap();
        let (listed, after) = rest.split_once("<!-- end -->\n").unwrap();
        if std::env::var_os(UPDATE).is_some() {
            page = format!("{before}<!-- {mark} -->\n{wanted}<!-- end -->\n{after}");
            std::fs::write(path, &page).unwrap();
            continue;
        }
        for row in wanted.lines() {
            assert!(
                listed.contains(row),
                "settings.md lacks a row ({UPDATE}=1 writes it): {row}"
            );
        }
        assert_eq!(listed, wanted, "{UPDATE}=1 writes the table");
    }
}

/// The table of the page for these settings.
fn table(settings: &[&Setting]) -> String {
    let mut table = "| File key | Flag | Environment | Default | What |\n|---|---|---|---|---|\n".to_owned();
    for setting in settings {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        table.push_str(&format!(
            "| `{}` | `--{}` | `{}` | {default} | {} |\n",
            setting.key,
            setting.flag(),
            setting.variable(),
            setting.doc.trim()
        ));
    }
    table
}
