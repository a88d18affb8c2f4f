//! The settings of `tenure adopt`, from every place and in every order.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;

use super::*;
use crate::settings::Setting;

type Pairs<'a> = &'a [(&'static str, &'a str)];
type Given<'a> = &'a [(&'a str, &'a str)];

/// The required settings, and more; later values override.
fn file(more: Given) -> String {
    let needed = [
        ("adopt.registry.hash", "h"),
        ("adopt.registry.heartbeat", "hb:{id}"),
        ("adopt.registry.store", "valkey://a"),
        ("adopt.leases.pattern", "l:*"),
        ("adopt.leases.store", "valkey://a"),
        ("adopt.leases.targets", "t:*"),
        ("adopt.sessions.pattern", "s:*"),
        ("adopt.sessions.disconnected_field", "since"),
        ("adopt.sessions.store", "valkey://a"),
    ];
    let lines: BTreeMap<_, _> = needed.iter().chain(more).copied().collect();
    lines.iter().map(|(key, text)| format!("{key} = {text:?}\n")).collect()
}

fn with<T>(
    flags: Pairs,
    variables: Given,
    file: &str,
    load: impl Fn(&FlagsOf<T>, Environment) -> Result<T, Usage>,
) -> Result<T, String> {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    config.write_all(file.as_bytes()).unwrap();
    let path = config.path().to_str().unwrap();
    let environment = |name: &str| {
        let given = variables.iter().find(|(known, _)| *known == name);
        given.map(|(_, text)| (*text).to_owned())
    };
    load(&FlagsOf::of(Some(path), flags), &environment).map_err(|error| error.to_string().replace(path, "FILE"))
}

fn registry(flags: Pairs, variables: Given, more: Given) -> Result<Registry, String> {
    with(flags, variables, &file(more), |flags, environment| {
        Registry::load(flags, false, environment)
    })
}

fn leases(flags: Pairs, variables: Given, more: Given) -> Result<Leases, String> {
    with(flags, variables, &file(more), Leases::load)
}

fn sessions(flags: Pairs, variables: Given, more: Given) -> Result<Sessions, String> {
    with(flags, variables, &file(more), |flags, environment| {
        Sessions::load(flags, false, environment)
    })
}

fn each_way<T: Table + PartialEq + Debug>(
    interval: &'static str,
    load: impl Fn(Pairs, Given, Given) -> Result<T, String>,
) {
    // Metrics are for a daemon.
    let (flag, in_file): (Pairs, Given) = (&[(interval, "9s")], &[(interval, "9s")]);
    let plain = load(flag, &[], &[]).unwrap();
    for setting in T::ROWS {
        let (key, variable) = (setting.key, setting.variable());
        let other = match setting.placeholder {
            "DURATION" => "7s",
            "ADDRESS" => "127.0.0.1:1",
            "SHARE" => "0.25",
            "OWNERS" | "KEYS" | "SESSIONS" => "777",
            "UNIT" => "ms",
            "WHEN" => "both",
            _ => "other",
        };
        let by_flag = load(&[flag, &[(key, other)]].concat(), &[], &[]).unwrap();
        assert_ne!(by_flag, plain, "{key}");
        // The variable beats the file, which needs a value for what has no default.
        let by_variable = load(&[], &[(&variable, other)], in_file).unwrap();
        let by_file = load(&[], &[], &[in_file, &[(key, other)]].concat()).unwrap();
        assert_eq!((&by_variable, &by_file), (&by_flag, &by_flag), "{key}");
    }
}

#[test]
fn every_setting_can_be_given_in_each_of_the_three_ways() {
    each_way(INTERVAL, registry);
    each_way(INTERVAL, leases);
    each_way(SESSIONS_INTERVAL, sessions);
}

#[test]
fn flags_and_variables_follow_from_the_keys() {
    let names = |rows: &[Setting]| -> Vec<(String, String)> {
        rows.iter()
            .map(|setting| (setting.flag(), setting.variable()))
            .collect()
    };
    let as_text = |(flag, variable): (&str, &str)| (flag.to_owned(), format!("TENURE_{variable}"));
    let wanted = [
        ("hash", "ADOPT_REGISTRY_HASH"),
        ("heartbeat", "ADOPT_REGISTRY_HEARTBEAT"),
        ("store", "STORE"),
        ("settle", "ADOPT_REGISTRY_SETTLE"),
        ("owner-pointer", "ADOPT_REGISTRY_OWNER_POINTER"),
        ("interval", "ADOPT_REGISTRY_INTERVAL"),
        ("metrics-listen", "ADOPT_REGISTRY_METRICS_LISTEN"),
        ("brake-share", "ADOPT_REGISTRY_BRAKE_SHARE"),
        ("brake-floor", "ADOPT_REGISTRY_BRAKE_FLOOR"),
        ("brake-hold", "ADOPT_REGISTRY_BRAKE_HOLD"),
    ];
    assert_eq!(names(Registry::ROWS), wanted.map(as_text));
    let wanted = [
        ("pattern", "ADOPT_LEASES_PATTERN"),
        ("store", "STORE"),
        ("tenure-store", "ADOPT_LEASES_TENURE_STORE"),
        ("group", "GROUP"),
        ("targets", "ADOPT_LEASES_TARGETS"),
        ("paused-field", "ADOPT_LEASES_PAUSED_FIELD"),
        ("until", "ADOPT_LEASES_UNTIL"),
        ("wait", "ADOPT_LEASES_WAIT"),
    ];
    assert_eq!(names(Leases::ROWS), wanted.map(as_text));
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let (flag, variable, key) = (
        ("adopt.registry.settle", "11s"),
        ("TENURE_ADOPT_REGISTRY_SETTLE", "12s"),
        ("adopt.registry.settle", "13s"),
    );
    let settle = |loaded: Result<Registry, String>| loaded.unwrap().settle.as_secs();
    assert_eq!(settle(registry(&[flag], &[variable], &[key])), 11);
    assert_eq!(settle(registry(&[], &[variable], &[key])), 12);
    assert_eq!(
        settle(registry(&[], &[("TENURE_ADOPT_REGISTRY_SETTLE", "")], &[key])),
        13
    );
    assert_eq!(settle(registry(&[], &[], &[])), 30);
}

#[test]
fn old_variables_are_read_after_new_ones() {
    let (old, new) = (("TENURE_ADOPT_SETTLE", "12s"), ("TENURE_ADOPT_REGISTRY_SETTLE", "13s"));
    let settle = |variables| registry(&[], variables, &[]).unwrap().settle.as_secs();
    assert_eq!((settle(&[old]), settle(&[old, new])), (12, 13));
    let wrong = registry(&[], &[("TENURE_ADOPT_SETTLE", "soon")], &[]).unwrap_err();
    assert!(
        wrong.starts_with("TENURE_ADOPT_SETTLE: \"soon\" is not a duration"),
        "{wrong}"
    );
    let old: Vec<_> = Leases::ROWS.iter().filter_map(Setting::old_variable).collect();
    assert!(old.contains(&"TENURE_ADOPT_PATTERN".to_owned()), "{old:?}");
    assert!(Sessions::ROWS.iter().all(|setting| setting.old_variable().is_none()));
}

#[test]
fn adopt_ignores_store_and_brake_of_the_daemon() {
    let of_the_daemon: Given = &[("store", "sqlite:x"), ("brake.floor", "3"), ("max_ttl", "1m")];
    let loaded = registry(&[], &[], of_the_daemon).unwrap();
    assert_eq!((loaded.store.as_str(), loaded.brake_floor), ("valkey://a", 10));
}

#[test]
fn missing_or_wrong_settings_are_named_by_all_names() {
    let without = |needed: &str| {
        let kept = file(&[]);
        let kept = kept.lines().filter(|line| !line.starts_with(needed));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        with(&[], &[], &kept, |flags, environment| {
            Registry::load(flags, false, environment)
        })
    };
    assert_eq!(
        without("adopt.registry.hash").unwrap_err(),
        "--hash is missing (The hash of key -> owner's id): give it as --hash KEY, TENURE_ADOPT_REGISTRY_HASH or adopt.registry.hash in the configuration file"
    );
    assert!(without("adopt.registry.store").unwrap_err().contains("TENURE_STORE"));
    let all = without("adopt.registry.").unwrap_err();
    let flags = ["--hash KEY", "--heartbeat TEMPLATE", "--store URL"];
    assert!(flags.iter().all(|flag| all.contains(flag)), "{all}");
    assert_eq!(all.matches("is missing (").count(), 3, "{all}");
    let table: &[(Pairs, Given, Given, &str)] = &[
        (
            &[],
            &[],
            &[("adopt.registry.settle", "25h")],
            "adopt.registry.settle is 25h, which is above 24h",
        ),
        (
            &[("adopt.registry.brake.hold", "2h")],
            &[],
            &[],
            "adopt.registry.brake.hold is 2h, which is above 1h",
        ),
        (
            &[],
            &[("TENURE_ADOPT_REGISTRY_INTERVAL", "10ms")],
            &[],
            "adopt.registry.interval is 10ms, which is below 1s",
        ),
        (
            &[],
            &[],
            &[("adopt.registry.brake.share", "2")],
            "FILE: adopt.registry.brake.share: \"2\" is not a share; write a number above 0 and up to 1, like 0.5",
        ),
        (
            &[("adopt.registry.brake.floor", "ten")],
            &[],
            &[],
            "--brake-floor: \"ten\" is not a whole number",
        ),
    ];
    for (flags, variables, more, message) in table {
        assert_eq!(registry(flags, variables, more).unwrap_err(), *message);
    }
    let group = leases(&[], &[], &[("adopt.leases.group", "a b")]).unwrap_err();
    assert!(
        group.starts_with("FILE: adopt.leases.group: the group \"a b\" has ' '"),
        "{group}"
    );
}

#[test]
fn a_single_run_is_one_whatever_the_file_of_the_daemon_says() {
    let of_the_daemon = file(&[(INTERVAL, "60s"), (METRICS_LISTEN, "127.0.0.1:9717")]);
    let load = |once| {
        with(&[], &[], &of_the_daemon, |flags, environment| {
            Registry::load(flags, once, environment)
        })
        .unwrap()
    };
    assert!(load(false).interval.is_some() && load(false).metrics_listen.is_some());
    assert_eq!((load(true).interval, load(true).metrics_listen), (None, None));
    let asked = registry(&[(METRICS_LISTEN, "127.0.0.1:0")], &[], &[]).unwrap_err();
    assert!(asked.contains("--interval"), "{asked}");
}

#[test]
fn adopt_commands_share_only_the_store_variable() {
    let variables = |rows: &[Setting]| -> Vec<String> { rows.iter().map(Setting::variable).collect() };
    let others = [variables(Registry::ROWS), variables(Leases::ROWS)].concat();
    let ours = variables(Sessions::ROWS);
    let shared: Vec<_> = ours.iter().filter(|variable| others.contains(variable)).collect();
    assert_eq!(shared, ["TENURE_STORE"]);
    for (prefix, variables, of_all_commands) in [
        ("TENURE_ADOPT_REGISTRY_", variables(Registry::ROWS), 1),
        ("TENURE_ADOPT_LEASES_", variables(Leases::ROWS), 2),
        ("TENURE_ADOPT_SESSIONS_", ours.clone(), 1),
    ] {
        let systematic = variables.iter().filter(|variable| variable.starts_with(prefix));
        assert_eq!(systematic.count(), variables.len() - of_all_commands, "{variables:?}");
    }
}

#[test]
fn impossible_session_settings_are_refused() {
    for (key, text, message) in [
        (
            "adopt.sessions.max_age",
            "900ms",
            "adopt.sessions.max_age is 900ms, which is below 1s",
        ),
        ("adopt.sessions.rate", "0", "adopt.sessions.rate is 0; write at least 1"),
        (
            "adopt.sessions.limit",
            "0",
            "adopt.sessions.limit is 0; write at least 1",
        ),
        (
            "adopt.sessions.interval",
            "10ms",
            "adopt.sessions.interval is 10ms, which is below 1s",
        ),
        (
            "adopt.sessions.unit",
            "min",
            "--unit: \"min\" is not a time unit; write s or ms",
        ),
    ] {
        assert_eq!(sessions(&[(key, text)], &[], &[]).unwrap_err(), message);
    }
    let alone = sessions(&[(SESSIONS_INDEX_EVERY, "5m")], &[], &[]).unwrap_err();
    assert!(alone.contains("--interval"), "{alone}");
    let waiting = sessions(&[], &[], &[(SESSIONS_INDEX_EVERY, "5m")]).unwrap();
    assert_eq!(waiting.index_every, None);
}
