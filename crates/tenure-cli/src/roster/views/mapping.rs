//! Which column of an application means what.

use tenure_core::ledger::Status;
use tenure_postgres::{Column, Table};

use super::rules::{ACTIVE, BLOCKED, CAPACITY, CREATED_AT, EXPIRES_AT, LAST_SEEN, NAME, ONLINE, Rule, STATUS};
use super::words::{keeps, word, words_of};
use super::{EngagementColumns, ProviderColumns};
use crate::exit::Usage;
use crate::nearest::unknown;

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
