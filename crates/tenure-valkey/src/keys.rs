//! The names of our keys. Those of one group share its tag, so that a cluster keeps them together.

use tenure_core::id::{Group, RegistryName};

use crate::connection::Need;

/// The list of groups, so that a sweeper finds them: a set, written before a join by a command of its own. See `list.rs`.
pub(crate) const GROUPS: &str = "tenure:groups";
/// The marker that tells a really new group from a wiped store: a hash with `born`, `longest` (the longest `max_ttl` of a process
/// that made a group) and `settled`, when an operator has said that nothing was held.
pub(crate) const STORE: &str = "tenure:store";

/// What a changing script takes as `KEYS`, in the order of `lib.lua`.
const SUFFIXES: [&str; 11] = [
    "meta",
    "",
    "members",
    "labels",
    "due",
    "ended",
    "forget",
    "releasing",
    "releasing:lapsed",
    "lapses",
    "events",
];

fn of(group: &Group, suffix: &str) -> String {
    format!("{{tenure:{group}}}:{suffix}")
}

/// The group's meta, by which a reading script finds the rest.
pub(crate) fn meta(group: &Group) -> String {
    of(group, "meta")
}

/// The metas of all groups, as `SCAN` matches names.
pub(crate) const ALL_META: &str = "{tenure:*}:meta";

/// The group whose meta a key is.
pub(crate) fn group_of_meta(key: &str) -> Option<Group> {
    let name = key.strip_prefix("{tenure:")?.strip_suffix("}:meta")?;
    Group::new(name).ok()
}

/// Where the marker of a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// One for all groups: a new group of an old store has nothing to wait for.
    Shared,
    /// One beside each group, where a node of a cluster can lose its slots alone: a new group always waits.
    Beside,
}

impl Marker {
    pub(crate) fn of(cluster: bool) -> Self {
        if cluster { Self::Beside } else { Self::Shared }
    }
}

/// The `KEYS` of a changing script.
pub(crate) fn changing(group: &Group, marker: Marker) -> Vec<String> {
    let name = |suffix: &&str| match (suffix.is_empty(), marker) {
        (false, _) => of(group, suffix),
        (true, Marker::Shared) => STORE.to_owned(),
        (true, Marker::Beside) => of(group, "store"),
    };
    SUFFIXES.iter().map(name).collect()
}

/// The claims of a registry.
pub(crate) fn claims(group: &Group, registry: &RegistryName) -> String {
    format!("{}:{registry}", of(group, "claims"))
}

/// What our user has to be allowed to do.
pub(crate) fn needs(marker: Marker) -> Vec<Need> {
    const META: &str = "{tenure:probe}:meta";
    let on = |key: &'static str| move |command: &&'static str| Need { command, key };
    let in_group = [
        "HGET",
        "HGETALL",
        "HMGET",
        "HVALS",
        "HSET",
        "HDEL",
        "HLEN",
        "HSCAN",
        "ZADD",
        "ZREM",
        "ZCARD",
        "ZCOUNT",
        "ZSCORE",
        "ZRANGE",
        "ZRANGEBYSCORE",
        "ZSCAN",
        "SADD",
        "SREM",
        "SCARD",
        "SISMEMBER",
        "SMEMBERS",
        "SRANDMEMBER",
        "SSCAN",
        "XADD",
        "XLEN",
        "XRANGE",
        "XREVRANGE",
        "UNLINK",
        "PEXPIRE",
    ];
    let mut needs: Vec<Need> = in_group.iter().map(on(META)).collect();
    match marker {
        Marker::Shared => needs.extend(["HMGET", "HSET", "HSETNX", "HLEN"].iter().map(on(STORE))),
        Marker::Beside => needs.push(on(META)(&"HSETNX")),
    }
    needs.extend(["SADD", "SREM", "SSCAN"].iter().map(on(GROUPS)));
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_group_share_its_tag() {
        let group = Group::new("a:b").unwrap();
        for key in changing(&group, Marker::Shared) {
            assert!(key.starts_with("{tenure:a:b}:") || key == STORE, "{key}");
        }
        for key in changing(&group, Marker::Beside) {
            assert!(key.starts_with("{tenure:a:b}:"), "{key}");
        }
        assert_eq!(
            claims(&group, &RegistryName::new("devices").unwrap()),
            "{tenure:a:b}:claims:devices"
        );
    }
}
