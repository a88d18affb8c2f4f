//! Which column of an application means what.

use tenure_core::ledger::Status;
use tenure_postgres::{Column, Table};

use super::{EngagementColumns, ProviderColumns};
use crate::exit::Usage;
use crate::nearest::unknown;

/// What a column of Tenure can be made of.
struct Rule {
    /// The flag that names the column.
    flag: &'static str,
    /// Names of columns that mean it; one that ends in `*` is a beginning.
    names: &'static [&'static str],
    fits: fn(&Column) -> bool,
    /// What fits, in words.
    needs: &'static str,
    /// What is true without such a column.
    without: &'static str,
}

const NAME: Rule = Rule {
    flag: "--name",
    names: &["name", "display_name", "full_name", "title"],
    fits: is_text,
    needs: "a text",
    without: "providers have no name for people",
};
const ACTIVE: Rule = Rule {
    flag: "--active",
    names: &["active", "is_active", "enabled", "is_enabled"],
    fits: is_boolean,
    needs: "a boolean",
    without: "all providers are active (a column that says the opposite: --blocked)",
};
const BLOCKED: Rule = Rule {
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
const ONLINE: Rule = Rule {
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
const CAPACITY: Rule = Rule {
    flag: "--capacity",
    names: &["capacity", "max_*", "slots", "concurrency"],
    fits: is_integer,
    needs: "an integer",
    without: "all providers have the default capacity of the roster",
};
const LAST_SEEN: Rule = Rule {
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
const STATUS: Rule = Rule {
    flag: "--status",
    names: &["status", "state"],
    fits: is_word,
    needs: "a text or an enum",
    without: "",
};
const CREATED_AT: Rule = Rule {
    flag: "--created-at",
    names: &["created_at", "created", "inserted_at", "requested_at"],
    fits: is_instant,
    needs: "a timestamp",
    without: "engagements begin with the move",
};
const EXPIRES_AT: Rule = Rule {
    flag: "--expires-at",
    names: &["expires_at", "expires", "deadline", "valid_until", "offer_expires_at"],
    fits: is_instant,
    needs: "a timestamp",
    without: "no offer has a deadline",
};

/// Words of applications for each status.
const WORDS: [(Status, &[&str]); 5] = [
    (
        Status::Pending,
        &[
            "pending",
            "offered",
            "new",
            "requested",
            "open",
            "created",
            "queued",
            "waiting",
            "assigned",
        ],
    ),
    (
        Status::Active,
        &[
            "active",
            "accepted",
            "in_progress",
            "started",
            "running",
            "ongoing",
            "confirmed",
            "picked_up",
        ],
    ),
    (
        Status::Ended,
        &[
            "ended",
            "done",
            "finished",
            "completed",
            "complete",
            "closed",
            "delivered",
            "resolved",
        ],
    ),
    (
        Status::Expired,
        &["expired", "timed_out", "timeout", "lapsed", "missed"],
    ),
    (
        Status::Cancelled,
        &["cancelled", "canceled", "rejected", "declined", "aborted", "refused"],
    ),
];

/// The table of providers.
pub(super) struct Providers<'a> {
    pub(super) table: &'a Table,
    pub(super) id: &'a Column,
    pub(super) name: Option<&'a Column>,
    pub(super) active: Option<&'a Column>,
    pub(super) blocked: Option<&'a Column>,
    pub(super) online: Option<&'a Column>,
    pub(super) capacity: Option<&'a Column>,
    pub(super) last_seen: Option<&'a Column>,
    /// What could not be mapped, the flags that name it, and what is true without it.
    pub(super) gaps: Vec<String>,
}

impl<'a> Providers<'a> {
    pub(super) fn of(table: &'a Table, flags: &ProviderColumns) -> Result<Self, Usage> {
        let mut gaps = Vec::new();
        let mut choose = |rule: &Rule, given: &Option<String>| choose(table, rule, given.as_deref(), &mut gaps);
        // A flag for one of the two decides about both.
        let (active, blocked) = match (&flags.active, &flags.blocked) {
            (None, given @ Some(_)) => (None, choose(&BLOCKED, given)?),
            (None, None) if ACTIVE.guesses(table).is_empty() && !BLOCKED.guesses(table).is_empty() => {
                (None, choose(&BLOCKED, &None)?)
            }
            (given, _) => (choose(&ACTIVE, given)?, None),
        };
        Ok(Self {
            id: id_of(table, flags.id.as_deref(), "--id")?,
            name: choose(&NAME, &flags.name)?,
            online: choose(&ONLINE, &flags.online)?,
            capacity: choose(&CAPACITY, &flags.capacity)?,
            last_seen: choose(&LAST_SEEN, &flags.last_seen)?,
            active,
            blocked,
            table,
            gaps,
        })
    }

    /// Tenure's columns and those they are made of.
    pub(super) fn pairs(&self) -> Vec<(&'static str, &'a Column)> {
        let pairs = [
            ("provider", Some(self.id)),
            ("display_name", self.name),
            ("active", self.active),
            ("not active", self.blocked),
            ("online", self.online),
            ("capacity", self.capacity),
            ("heartbeat", self.last_seen),
        ];
        pairs
            .into_iter()
            .filter_map(|(part, column)| Some((part, column?)))
            .collect()
    }

    /// What a column means; empty if it means nothing to Tenure.
    pub(super) fn part(&self, column: &Column) -> &'static str {
        part(&self.pairs(), column)
    }
}

/// The table of engagements.
pub(super) struct Engagements<'a> {
    pub(super) table: &'a Table,
    pub(super) id: &'a Column,
    pub(super) provider: &'a Column,
    pub(super) status: &'a Column,
    /// Each word of the application, the first one of a status being shown for it.
    pub(super) words: Vec<(String, Status)>,
    pub(super) created_at: Option<&'a Column>,
    pub(super) expires_at: Option<&'a Column>,
    pub(super) gaps: Vec<String>,
}

impl<'a> Engagements<'a> {
    pub(super) fn of(table: &'a Table, providers: &Providers<'_>, flags: &EngagementColumns) -> Result<Self, Usage> {
        let mut gaps = Vec::new();
        let mut choose = |rule: &Rule, given: &Option<String>| choose(table, rule, given.as_deref(), &mut gaps);
        let (created_at, expires_at) = (
            choose(&CREATED_AT, &flags.created_at)?,
            choose(&EXPIRES_AT, &flags.expires_at)?,
        );
        let Some(status) = choose(&STATUS, &flags.status)? else {
            return Err(undecided(
                table,
                &STATUS.guesses(table),
                "the status",
                "--status",
                STATUS.needs,
            ));
        };
        let words = words_of(table, status, &flags.words)?;
        Ok(Self {
            id: id_of(table, flags.engagement_id.as_deref(), "--engagement-id")?,
            provider: provider_of(table, providers, flags.provider.as_deref())?,
            status,
            words,
            created_at,
            expires_at,
            table,
            gaps,
        })
    }

    /// Whether two words mean the same status, so that the application's own word is kept beside it.
    pub(super) fn keeps_words(&self) -> bool {
        keeps(&self.words)
    }

    /// The word that the application sees for a status.
    pub(super) fn word(&self, status: Status) -> Option<&str> {
        word(&self.words, status)
    }

    /// Tenure's columns and those they are made of.
    pub(super) fn pairs(&self) -> Vec<(&'static str, &'a Column)> {
        let pairs = [
            ("engagement", Some(self.id)),
            ("provider", Some(self.provider)),
            ("status", Some(self.status)),
            ("created_at", self.created_at),
            ("expires_at", self.expires_at),
        ];
        pairs
            .into_iter()
            .filter_map(|(part, column)| Some((part, column?)))
            .collect()
    }

    /// What a column means; empty if it means nothing to Tenure.
    pub(super) fn part(&self, column: &Column) -> &'static str {
        part(&self.pairs(), column)
    }
}

fn part(pairs: &[(&'static str, &Column)], column: &Column) -> &'static str {
    let found = pairs.iter().find(|(_, mapped)| mapped.name == column.name);
    found.map_or("", |(part, _)| part)
}

fn keeps(words: &[(String, Status)]) -> bool {
    let count = |status| words.iter().filter(|(_, of)| *of == status).count();
    Status::ALL.into_iter().any(|status| count(status) > 1)
}

fn word(words: &[(String, Status)], status: Status) -> Option<&str> {
    words
        .iter()
        .find(|(_, of)| *of == status)
        .map(|(word, _)| word.as_str())
}

impl Rule {
    fn guesses<'a>(&self, table: &'a Table) -> Vec<&'a Column> {
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

/// The column that a flag names, or the only one that looks like it.
fn choose<'a>(
    table: &'a Table,
    rule: &Rule,
    given: Option<&str>,
    gaps: &mut Vec<String>,
) -> Result<Option<&'a Column>, Usage> {
    let Some(given) = given else {
        let guesses = rule.guesses(table);
        if let [one] = guesses[..] {
            return Ok(Some(one));
        }
        if !rule.without.is_empty() {
            let why = match &guesses[..] {
                [] => format!("no column of {} looks like it", table.name),
                many => format!("{} could be it", names(many)),
            };
            gaps.push(format!("{} COLUMN is not set and {why}: {}", rule.flag, rule.without));
        }
        return Ok(None);
    };
    if given.is_empty() {
        return Ok(None);
    }
    let column = named(table, given, rule.flag)?;
    if column.generated || !(rule.fits)(column) {
        let what = if column.generated {
            "computed by Postgres"
        } else {
            column.kind.as_str()
        };
        let message = format!(
            "{} {given}: {}.{given} is {what}, and this must be {} of its own; name another column, or leave it out with \
             {} ''",
            rule.flag, table.name, rule.needs, rule.flag
        );
        return Err(Usage::new(message));
    }
    Ok(Some(column))
}

fn named<'a>(table: &'a Table, given: &str, flag: &str) -> Result<&'a Column, Usage> {
    let found = table.columns.iter().find(|column| column.name == given);
    found.ok_or_else(|| {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        Usage::new(format!(
            "{flag}: {} has {}",
            table.name,
            unknown("column", given, &names, flag, "")
        ))
    })
}

fn names(columns: &[&Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.join(" and ")
}

/// A column that must be there, and could not be found.
fn undecided(table: &Table, guesses: &[&Column], what: &str, flag: &str, needs: &str) -> Usage {
    let why = match guesses {
        [] => format!("no column of {} looks like {what}", table.name),
        many => format!("{} of {} could be {what}", names(many), table.name),
    };
    let all: Vec<&Column> = table.columns.iter().collect();
    Usage::new(format!(
        "{why}; name {needs} with {flag} COLUMN. Its columns are {}",
        names(&all)
    ))
}

fn id_of<'a>(table: &'a Table, given: Option<&str>, flag: &str) -> Result<&'a Column, Usage> {
    let keys: Vec<&Column> = table.columns.iter().filter(|column| column.primary).collect();
    let column = match (given.filter(|given| !given.is_empty()), &keys[..]) {
        (Some(given), _) => named(table, given, flag)?,
        (None, [one]) => one,
        (None, _) => {
            let message = format!(
                "{} has no primary key of one column; name a column that is unique and NOT NULL with {flag} COLUMN",
                table.name
            );
            return Err(Usage::new(message));
        }
    };
    if !column.required {
        let message = format!(
            "{flag} {}: {}.{} may be NULL, and each row needs a name; make it NOT NULL or name another column",
            column.name, table.name, column.name
        );
        return Err(Usage::new(message));
    }
    Ok(column)
}

/// The column with the provider: the one whose foreign key points at its table.
fn provider_of<'a>(table: &'a Table, providers: &Providers<'_>, given: Option<&str>) -> Result<&'a Column, Usage> {
    let keys: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| column.references.as_ref() == Some(&providers.table.name))
        .collect();
    let column = match (given.filter(|given| !given.is_empty()), &keys[..]) {
        (Some(given), _) => named(table, given, "--provider")?,
        (None, [one]) => one,
        (None, many) => {
            return Err(undecided(
                table,
                many,
                "the provider",
                "--provider",
                "the one with its id",
            ));
        }
    };
    if column.kind != providers.id.kind {
        let (name, id) = (&column.name, providers.id);
        let message = format!(
            "--provider {name}: {}.{name} is {} and {}.{} is {}; both must have one type",
            table.name, column.kind, providers.table.name, id.name, id.kind
        );
        return Err(Usage::new(message));
    }
    Ok(column)
}

/// What each word of a status means: as the flag says, else as it is usual.
fn words_of(table: &Table, column: &Column, given: &[String]) -> Result<Vec<(String, Status)>, Usage> {
    let mut words: Vec<(String, Status)> = Vec::new();
    for pair in given {
        let parts = pair.split_once('=').filter(|(word, _)| !word.is_empty());
        let Some((word, status)) = parts else {
            let message = format!("--words {pair}: write WORD=STATUS, as in accepted=active");
            return Err(Usage::new(message));
        };
        let Some(status) = Status::parse(status) else {
            let all = Status::ALL.map(Status::as_str).join(", ");
            return Err(Usage::new(format!(
                "--words {pair}: there is no status \"{status}\"; there are {all}"
            )));
        };
        if !column.values.is_empty() && !column.values.iter().any(|value| value == word) {
            let values: Vec<&str> = column.values.iter().map(String::as_str).collect();
            let message = unknown("word", word, &values, "--words", "");
            return Err(Usage::new(format!(
                "--words {pair}: {}.{} has {message}",
                table.name, column.name
            )));
        }
        words.push((word.to_owned(), status));
    }
    let usual = |value: &str| {
        let value = value.to_lowercase();
        WORDS
            .iter()
            .find(|(_, words)| words.contains(&value.as_str()))
            .map(|(status, _)| *status)
    };
    let place = format!("{}.{}", table.name, column.name);
    if column.values.is_empty() && words.is_empty() {
        let message = format!(
            "{place} is a text whose values no CHECK lists; say what all of them mean with --words, as in \
             offered=pending,accepted=active,done=ended"
        );
        return Err(Usage::new(message));
    }
    let mut strange = Vec::new();
    for value in &column.values {
        if words.iter().any(|(word, _)| word == value) {
            continue;
        }
        match usual(value) {
            Some(status) => words.push((value.clone(), status)),
            None => strange.push(value.as_str()),
        }
    }
    if let [first, ..] = strange[..] {
        let message = format!(
            "{place} can be {}, and what that means is unknown; say it with --words {first}=STATUS, which is pending, active, \
             ended, expired or cancelled",
            strange.join(", ")
        );
        return Err(Usage::new(message));
    }
    let is_closed = column.enumeration || (keeps(&words) && !column.values.is_empty());
    let missing = Status::ALL.into_iter().find(|status| word(&words, *status).is_none());
    if let Some(status) = missing.filter(|_| is_closed).map(Status::as_str) {
        let message = format!(
            "{place} has no word for {status}, which Tenure may write; first allow one more ({}), or give one of its words this \
             meaning with --words WORD={status}",
            if column.enumeration {
                "ALTER TYPE … ADD VALUE"
            } else {
                "a wider CHECK"
            }
        );
        return Err(Usage::new(message));
    }
    Ok(words)
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
