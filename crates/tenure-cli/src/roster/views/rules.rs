//! How the names and types of an application's columns are read.

use tenure_postgres::{Column, Table};

/// What a column of Tenure can be made of.
pub(super) struct Rule {
    /// The flag that names the column.
    pub(super) flag: &'static str,
    /// Names of columns that mean it; one that ends in `*` is a beginning.
    pub(super) names: &'static [&'static str],
    pub(super) fits: fn(&Column) -> bool,
    /// What fits, in words.
    pub(super) needs: &'static str,
    /// What is true without such a column.
    pub(super) without: &'static str,
}

pub(super) const NAME: Rule = Rule {
    flag: "--name",
    names: &["name", "display_name", "full_name", "title"],
    fits: is_text,
    needs: "a text",
    without: "providers have no name for people",
};
pub(super) const ACTIVE: Rule = Rule {
    flag: "--active",
    names: &["active", "is_active", "enabled", "is_enabled"],
    fits: is_boolean,
    needs: "a boolean",
    without: "all providers are active (a column that says the opposite: --blocked)",
};
pub(super) const BLOCKED: Rule = Rule {
    flag: "--blocked",
    names: &[
        "blocked",
        "is_blocked",
        "disabled",
        "banned",
        "suspended",
        "deactivated",
    ],
    ..ACTIVE
};
pub(super) const ONLINE: Rule = Rule {
    flag: "--online",
    names: &[
        "online",
        "is_online",
        "on_shift",
        "on_duty",
        "available",
        "is_available",
    ],
    fits: is_boolean,
    needs: "a boolean",
    without: "all providers begin offline",
};
pub(super) const CAPACITY: Rule = Rule {
    flag: "--capacity",
    names: &["capacity", "max_*", "slots", "concurrency"],
    fits: is_integer,
    needs: "an integer",
    without: "all providers have the default capacity of the roster",
};
pub(super) const LAST_SEEN: Rule = Rule {
    flag: "--last-seen",
    names: &[
        "last_seen",
        "last_seen_at",
        "last_heartbeat",
        "last_heartbeat_at",
        "heard_at",
        "last_ping_at",
    ],
    fits: is_instant,
    needs: "a timestamp",
    without: "the heartbeats of before are not copied",
};
pub(super) const STATUS: Rule = Rule {
    flag: "--status",
    names: &["status", "state"],
    fits: is_word,
    needs: "a text or an enum",
    without: "",
};
pub(super) const CREATED_AT: Rule = Rule {
    flag: "--created-at",
    names: &["created_at", "created", "inserted_at", "requested_at"],
    fits: is_instant,
    needs: "a timestamp",
    without: "engagements begin with the move",
};
pub(super) const EXPIRES_AT: Rule = Rule {
    flag: "--expires-at",
    names: &["expires_at", "expires", "deadline", "valid_until", "offer_expires_at"],
    fits: is_instant,
    needs: "a timestamp",
    without: "no offer has a deadline",
};

impl Rule {
    /// The columns that look like it.
    pub(super) fn guesses<'a>(&self, table: &'a Table) -> Vec<&'a Column> {
        let is_named = |name: &str| {
            self.names.iter().any(|known| match known.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *known,
            })
        };
        let fitting = table
            .columns
            .iter()
            .filter(|column| !column.generated && (self.fits)(column));
        fitting.filter(|column| is_named(&column.name.to_lowercase())).collect()
    }
}

fn is_text(column: &Column) -> bool {
    column.kind == "text" || column.kind.starts_with("character")
}

fn is_word(column: &Column) -> bool {
    is_text(column) || column.enumeration
}

fn is_boolean(column: &Column) -> bool {
    column.kind == "boolean"
}

fn is_integer(column: &Column) -> bool {
    matches!(column.kind.as_str(), "smallint" | "integer" | "bigint")
}

fn is_instant(column: &Column) -> bool {
    column.kind.starts_with("timestamp")
}
