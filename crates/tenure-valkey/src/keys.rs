//! Key names. The keys of one group share a hash tag, so a cluster keeps them on one node.

use tenure_core::id::{Group, RegistryName};

use crate::connection::{Mark, Need, Needs};

/// The list of groups for sweepers: a set. A group is added by a separate command before its first join. See `list.rs`.
pub(crate) const GROUPS: &str = "tenure:groups";
/// The marker that distinguishes a new group from a wiped store: a hash with `born`, `longest` (the longest `max_ttl`
/// of a process that created a group), `settled`, set when an operator has confirmed that nothing was held, `id`, which
/// identifies the data for a ledger of rosters, and `format`. A cluster has only the last two in it.
pub(crate) const STORE: &str = "tenure:store";

/// The format of the keys and of what is in them. A program refuses a store of another format. It changes whenever an
/// older program would misread what a newer one writes, or disturb it.
pub(crate) const FORMAT: Mark = Mark {
    key: STORE,
    field: "format",
    value: "2",
};

/// The pulse of a server: a hash with `row` (the packed pulse), on a cluster `node`, and the groups with failed beats. Cut
/// with the groups when a tail is lost, so it shows the loss.
pub(crate) const PULSE: &str = "tenure:pulse";
/// The index of groups by the time at which something is due in them, on one server: a sorted set.
pub(crate) const DUE_GROUPS: &str = "tenure:due";

/// One of these two keys on a primary of a cluster, by a hash tag whose slot the primary has.
pub(crate) fn on_node(key: &str, tag: Option<&str>) -> String {
    tag.map_or_else(|| key.to_owned(), |tag| format!("{key}:{{{tag}}}"))
}

/// The `KEYS` of a changing script, in the order of `lib.lua`.
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

/// A group's meta key, from which a reading script derives the others.
pub(crate) fn meta(group: &Group) -> String {
    of(group, "meta")
}

/// A `SCAN` pattern for the meta keys of all groups.
pub(crate) const ALL_META: &str = "{tenure:*}:meta";

/// The group of a meta key.
pub(crate) fn group_of_meta(key: &str) -> Option<Group> {
    let name = key.strip_prefix("{tenure:")?.strip_suffix("}:meta")?;
    Group::new(name).ok()
}

/// The location of a store's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// One for all groups: a new group of an existing store need not wait.
    Shared,
    /// One per group, where a cluster node can lose its slots alone: a new group always waits.
    Beside,
}

impl Marker {
    pub(crate) fn of(cluster: bool) -> Self {
        if cluster { Self::Beside } else { Self::Shared }
    }
}

/// The `KEYS` of a changing script.
pub(crate) fn write_keys(group: &Group, marker: Marker) -> Vec<String> {
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

/// What the store's connections must find.
pub(crate) fn needs(marker: Marker) -> Needs {
    Needs {
        commands: commands(marker),
        mark: Some(FORMAT),
    }
}

/// The permissions that the store's user needs.
fn commands(marker: Marker) -> Vec<Need> {
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
        Marker::Shared => {
            needs.extend(["HGET", "HMGET", "HSET", "HSETNX", "HLEN"].iter().map(on(STORE)));
            needs.extend(["HGETALL", "HGET", "HMGET", "HSET", "HDEL"].iter().map(on(PULSE)));
            needs.extend(["ZADD", "ZREM", "ZSCORE", "ZRANGEBYSCORE"].iter().map(on(DUE_GROUPS)));
        }
        Marker::Beside => {
            needs.extend(
                ["HGETALL", "HGET", "HMGET", "HSET", "HDEL"]
                    .iter()
                    .map(on("tenure:pulse:{0}")),
            );
            needs.extend(
                ["ZADD", "ZREM", "ZSCORE", "ZRANGEBYSCORE"]
                    .iter()
                    .map(on("tenure:due:{0}")),
            );
            needs.push(on(META)(&"HSETNX"));
            needs.extend(["HGET", "HMGET", "HSETNX"].iter().map(on(STORE)));
        }
    }
    needs.extend(["SADD", "SREM", "SSCAN"].iter().map(on(GROUPS)));
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_keys_share_one_hash_tag() {
        let group = Group::new("a:b").unwrap();
        for key in write_keys(&group, Marker::Shared) {
            assert!(key.starts_with("{tenure:a:b}:") || key == STORE, "{key}");
        }
        for key in write_keys(&group, Marker::Beside) {
            assert!(key.starts_with("{tenure:a:b}:"), "{key}");
        }
        assert_eq!(
            claims(&group, &RegistryName::new("devices").unwrap()),
            "{tenure:a:b}:claims:devices"
        );
    }
}
