//! The SQL of the move: templates with the application's names in them.

use std::fmt::Write as _;

use tenure_core::escape::escaped;
use tenure_core::id::RosterName;
use tenure_core::ledger::Status;
use tenure_postgres::{Column, Table};

use super::mapping::{Engagements, Providers};

const RIGHTS: &str = include_str!("rights.sql");
const PROVIDERS: &str = include_str!("providers.sql");
const ENGAGEMENTS: &str = include_str!("engagements.sql");
const GRANTS: &str = include_str!("grants.sql");

pub(super) struct Script<'a> {
    pub(super) roster: &'a RosterName,
    pub(super) app_role: &'a str,
    pub(super) providers: &'a Providers<'a>,
    pub(super) engagements: Option<&'a Engagements<'a>>,
}

/// Values for the places of a template.
type Places = Vec<(&'static str, String)>;

impl Script<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = self.head();
        text.push_str(&fill(RIGHTS, &self.shared()));
        text.push_str(&fill(PROVIDERS, &self.of_providers()));
        if let Some(work) = self.engagements {
            text.push_str(&fill(ENGAGEMENTS, &self.of_engagements(work)));
        }
        text.push_str(&fill(GRANTS, &self.shared()));
        text.trim_end().to_owned()
    }

    fn tables(&self) -> Vec<&Table> {
        let work = self.engagements.map(|work| work.table);
        std::iter::once(self.providers.table).chain(work).collect()
    }

    /// What was mapped and what was not, in comments.
    fn head(&self) -> String {
        let mut head = format!(
            "-- Puts views of Tenure's ledger in place of tables of an application, for the roster {}. Nothing was changed yet.\n\
             -- Read docs/guides/roster-views.md, and try it on a copy. To run it, as a superuser or the owner of both schemas:\n\
             --   psql -v ON_ERROR_STOP=1 -f FILE\n",
            self.roster
        );
        let mapped = [
            Some((self.providers.table, self.providers.pairs(), &self.providers.gaps)),
            self.engagements.map(|work| (work.table, work.pairs(), &work.gaps)),
        ];
        for (table, pairs, gaps) in mapped.into_iter().flatten() {
            // Writing to a string never fails.
            let _ = writeln!(head, "--\n-- {}", escaped(&table.name));
            for column in &table.columns {
                let part = pairs.iter().find(|(_, mapped)| mapped.name == column.name);
                let part = part.map_or("(stays in a table of yours)", |(part, _)| part);
                let _ = writeln!(head, "--   {:<24} {part}", escaped(&column.name));
            }
            for gap in gaps {
                let _ = writeln!(head, "--   {}", escaped(gap));
            }
        }
        if let Some(work) = self.engagements {
            for (word, status) in &work.words {
                let _ = writeln!(head, "--   {:<24} {}", format!("'{}'", escaped(word)), status.as_str());
            }
        }
        head
    }

    fn shared(&self) -> Places {
        let tables = self.tables();
        let join = |each: &dyn Fn(&Table) -> String| {
            let each: Vec<String> = tables.iter().map(|table| each(table)).collect();
            each.join(", ")
        };
        let mut schemas: Vec<&str> = tables.iter().map(|table| table.schema.as_str()).collect();
        schemas.dedup();
        let columns = tables.iter().flat_map(|table| &table.columns);
        let sequences: Vec<&str> = columns.filter_map(|column| column.sequence.as_deref()).collect();
        let bridge = ident(&format!("{}_bridge", self.roster));
        let owners: Vec<String> = tables
            .iter()
            .flat_map(|table| {
                [
                    format!("ALTER VIEW {} OWNER TO {bridge};", table.name),
                    format!("ALTER FUNCTION {}() OWNER TO {bridge};", beside(table, "write_", "")),
                ]
            })
            .collect();
        vec![
            ("schemas", schemas.join(", ")),
            ("tables", join(&|table| table.name.clone())),
            ("details", join(&|table| beside(table, "", "_details"))),
            ("functions", join(&|table| format!("{}()", beside(table, "write_", "")))),
            ("sequences", sequences.join(", ")),
            ("owners", owners.join("\n")),
            ("app", ident(self.app_role)),
            ("roster", self.roster.to_string()),
            ("bridge", bridge),
        ]
    }

    fn of_providers(&self) -> Places {
        let providers = self.providers;
        let mut parts = Parts::default();
        let active = match (providers.active, providers.blocked) {
            (Some(column), _) => {
                parts.add("active", flag(column, "d", ""), flag(column, "NEW", ""));
                Some(flag(column, "d", ""))
            }
            (None, Some(column)) => {
                parts.add("active", flag(column, "d", "NOT "), flag(column, "NEW", "NOT "));
                Some(flag(column, "d", "NOT "))
            }
            (None, None) => None,
        };
        if let Some(column) = providers.name {
            let text = |of: &str| cast(&format!("{of}.{}", column.quoted), &column.kind, "text");
            parts.add("display_name", text("d"), text("NEW"));
        }
        if let Some(column) = providers.online {
            let may = active.map(|active| format!(" AND {active}")).unwrap_or_default();
            parts.add("online", flag(column, "d", "") + &may, flag(column, "NEW", ""));
        }
        if let Some(column) = providers.capacity {
            let number = |of: &str| cast(&format!("{of}.{}", column.quoted), &column.kind, "integer");
            parts.add("capacity", number("d"), number("NEW"));
        }
        let shown = |column: &Column| match providers.part(column) {
            "display_name" => cast("p.display_name", "text", &column.kind),
            "active" => "p.active".to_owned(),
            "not active" => "NOT p.active".to_owned(),
            "online" => "p.online".to_owned(),
            // Without a number of its own it has the default of the roster.
            "capacity" if !column.required => cast(
                "CASE WHEN NOT p.uses_default THEN p.capacity END",
                "integer",
                &column.kind,
            ),
            "capacity" => cast("p.capacity", "integer", &column.kind),
            "heartbeat" => shown_instant(
                "(SELECT h.heard_at FROM tenure.heartbeats h WHERE h.roster = p.roster AND h.provider = p.provider)",
                &column.kind,
            ),
            _ => format!("d.{}", column.quoted),
        };
        let is_kept = |column: &Column| providers.part(column).is_empty();
        let mut places = self.of_table(providers.table, providers.id, "d", &parts, &is_kept, &shown);
        places.push((
            "details_index",
            ident(&format!("{}_details_provider", providers.table.bare)),
        ));
        let heard = providers.last_seen;
        places.push(("heard", heard.map(|column| column.quoted.clone()).unwrap_or_default()));
        places.push(("heard_text", heard.map(|column| said(&column.name)).unwrap_or_default()));
        places.push((
            "heard_copied",
            heard.map(|column| instant(column, "d")).unwrap_or_default(),
        ));
        places
    }

    fn of_engagements(&self, work: &Engagements<'_>) -> Places {
        let status_of = beside(work.table, "", "_status");
        let status = &work.status.quoted;
        let mut parts = Parts::default();
        if let Some(column) = work.created_at {
            parts.add("created_at", instant(column, "r"), instant(column, "NEW"));
        }
        let mut expiry_set = String::new();
        if let Some(column) = work.expires_at {
            let offer = |of: &str| {
                let time = instant(column, of);
                format!("CASE WHEN {status_of}({of}.{status}::text) = 'pending' THEN {time} END")
            };
            parts.add("expires_at", offer("r"), offer("NEW"));
            expiry_set = format!(", expires_at = {}", instant(column, "NEW"));
        }
        let provider_id = &self.providers.id.quoted;
        let provider_details = beside(self.providers.table, "", "_details");
        let shown = |column: &Column| match work.part(column) {
            "provider" => {
                format!("(SELECT d.{provider_id} FROM {provider_details} d WHERE d.{provider_id}::text = e.provider)")
            }
            "status" => shown_status(work, &status_of),
            "created_at" => shown_instant("e.created_at", &column.kind),
            "expires_at" => shown_instant("e.expires_at", &column.kind),
            _ => format!("r.{}", column.quoted),
        };
        let is_kept = |column: &Column| {
            let part = work.part(column);
            part.is_empty() || (part == "status" && work.keeps_words())
        };
        let kept: Vec<&Column> = std::iter::once(work.id).chain(work.created_at).collect();
        let changed: Vec<String> = kept
            .iter()
            .map(|column| format!("NEW.{0} IS DISTINCT FROM OLD.{0}", column.quoted))
            .collect();
        let kept: Vec<String> = kept.iter().map(|column| said(&column.name)).collect();
        let mut places = self.of_table(work.table, work.id, "r", &parts, &is_kept, &shown);
        places.extend([
            (
                "details_index",
                ident(&format!("{}_details_engagement", work.table.bare)),
            ),
            ("provider_index", ident(&format!("{}_of_provider", work.table.bare))),
            ("provider", work.provider.quoted.clone()),
            ("status", status.clone()),
            ("words_to_tenure", words_to_tenure(work)),
            ("status_of", status_of),
            ("expiry_set", expiry_set),
            ("keeps_changed", changed.join(" OR ")),
            ("keeps_text", kept.join(" and its ")),
        ]);
        places
    }

    /// What both templates need. `is_kept`: whether the application's table keeps the column. `shown`: a column of the view.
    fn of_table(
        &self,
        table: &Table,
        id: &Column,
        alias: &str,
        parts: &Parts,
        is_kept: &dyn Fn(&Column) -> bool,
        shown: &dyn Fn(&Column) -> String,
    ) -> Places {
        let columns = &table.columns;
        let each = |separator: &str, each: &mut dyn Iterator<Item = String>| each.collect::<Vec<_>>().join(separator);
        let dropped = columns
            .iter()
            .filter(|column| column.name != id.name && !is_kept(column));
        let kept: Vec<&Column> = columns
            .iter()
            .filter(|column| !column.generated && column.name != id.name && is_kept(column))
            .collect();
        let has_defaults = columns.iter().any(|column| column.default.is_some());
        let with_default = columns
            .iter()
            .filter_map(|column| Some((&column.quoted, column.default.as_ref()?)));
        let required: Vec<&Column> = columns
            .iter()
            .filter(|column| column.required && column.name != id.name && !is_kept(column))
            .collect();
        let required_text: Vec<String> = required.iter().map(|column| said(&column.name)).collect();
        vec![
            ("roster", self.roster.to_string()),
            ("table", table.name.clone()),
            ("table_text", said(&table.bare)),
            ("details", beside(table, "", "_details")),
            ("details_bare", ident(&format!("{}_details", table.bare))),
            ("write", beside(table, "write_", "")),
            ("trigger", ident(&format!("write_{}", table.bare))),
            ("id", id.quoted.clone()),
            ("id_text", said(&id.name)),
            (
                "overriding",
                if id.numbered {
                    "OVERRIDING SYSTEM VALUE ".to_owned()
                } else {
                    String::new()
                },
            ),
            ("columns", parts.join(|part| part.column.to_owned())),
            ("copied", parts.join(|part| part.copied.clone())),
            ("written", parts.join(|part| part.written.clone())),
            ("set", parts.set()),
            (
                "dropped",
                each(
                    ",\n    ",
                    &mut dropped.map(|column| format!("DROP COLUMN {}", column.quoted)),
                ),
            ),
            (
                "shown",
                each(
                    ",\n       ",
                    &mut columns
                        .iter()
                        .map(|column| format!("{} AS {}", shown(column), column.quoted)),
                ),
            ),
            (
                "defaults",
                each(
                    "\n        ",
                    &mut with_default.map(|(name, value)| format!("NEW.{name} := coalesce(NEW.{name}, {value});")),
                ),
            ),
            (
                "no_defaults",
                if has_defaults { String::new() } else { "yes".to_owned() },
            ),
            (
                "required",
                each(
                    " OR ",
                    &mut required.iter().map(|column| format!("NEW.{} IS NULL", column.quoted)),
                ),
            ),
            ("required_text", required_text.join(", ")),
            (
                "details_columns",
                each(
                    ", ",
                    &mut std::iter::once(&id).chain(&kept).map(|column| column.quoted.clone()),
                ),
            ),
            (
                "details_written",
                each(
                    ", ",
                    &mut std::iter::once(&id)
                        .chain(&kept)
                        .map(|column| format!("NEW.{}", column.quoted)),
                ),
            ),
            (
                "details_set",
                each(
                    ", ",
                    &mut kept.iter().map(|column| format!("{0} = NEW.{0}", column.quoted)),
                ),
            ),
            (
                "details_now",
                each(
                    ", ",
                    &mut kept.iter().map(|column| format!("{alias}.{}::text", column.quoted)),
                ),
            ),
            (
                "details_new",
                each(
                    ", ",
                    &mut kept.iter().map(|column| format!("NEW.{}::text", column.quoted)),
                ),
            ),
        ]
    }
}

/// Columns of Tenure, and the expressions that fill them.
#[derive(Default)]
struct Parts(Vec<Part>);

struct Part {
    column: &'static str,
    /// From the old table.
    copied: String,
    /// From the row that a statement writes to the view.
    written: String,
}

impl Parts {
    fn add(&mut self, column: &'static str, copied: String, written: String) {
        self.0.push(Part {
            column,
            copied,
            written,
        });
    }

    /// With a comma before each, to follow other columns.
    fn join(&self, each: impl Fn(&Part) -> String) -> String {
        self.0.iter().map(|part| format!(", {}", each(part))).collect()
    }

    fn set(&self) -> String {
        let set: Vec<String> = self
            .0
            .iter()
            .map(|part| format!("{} = {}", part.column, part.written))
            .collect();
        set.join(", ")
    }
}

/// The status in the words of the application.
fn shown_status(work: &Engagements<'_>, status_of: &str) -> String {
    let words: String = Status::ALL
        .into_iter()
        .filter_map(|status| Some((status.as_str(), work.word(status)?)))
        .filter(|(status, word)| status != word)
        .fold(String::new(), |mut words, (status, word)| {
            let _ = write!(words, " WHEN '{status}' THEN {}", literal(word));
            words
        });
    let plain = if words.is_empty() {
        "e.status".to_owned()
    } else {
        format!("CASE e.status{words} ELSE e.status END")
    };
    let shown = cast(&plain, "text", &work.status.kind);
    if work.keeps_words() {
        let own = format!("r.{}", work.status.quoted);
        return format!("CASE WHEN {status_of}({own}::text) = e.status THEN {own} ELSE {shown} END");
    }
    shown
}

/// Tenure's status of each word; its own word for what the application has none for.
fn words_to_tenure(work: &Engagements<'_>) -> String {
    let missing = Status::ALL
        .into_iter()
        .filter(|status| work.word(*status).is_none())
        .map(|status| (status.as_str(), status));
    let words = work.words.iter().map(|(word, status)| (word.as_str(), *status));
    let pairs = words
        .chain(missing)
        .map(|(word, status)| format!("WHEN {} THEN '{}'", literal(word), status.as_str()));
    pairs.collect::<Vec<_>>().join("\n        ")
}

/// A truth value that is never NULL.
fn flag(column: &Column, of: &str, not: &str) -> String {
    match column.required {
        true => format!("{not}{of}.{}", column.quoted),
        false => format!("{not}coalesce({of}.{}, false)", column.quoted),
    }
}

/// A time as Tenure keeps it. What has no time zone counts as UTC.
fn instant(column: &Column, of: &str) -> String {
    shown_instant(&format!("{of}.{}", column.quoted), &column.kind)
}

/// The conversion between both kinds of times is the same in each direction.
fn shown_instant(value: &str, kind: &str) -> String {
    if kind.ends_with("without time zone") {
        format!("{value} AT TIME ZONE 'UTC'")
    } else {
        value.to_owned()
    }
}

fn cast(value: &str, from: &str, to: &str) -> String {
    match (from == to, value.contains(' ')) {
        (true, _) => value.to_owned(),
        (false, true) => format!("({value})::{to}"),
        (false, false) => format!("{value}::{to}"),
    }
}

/// A name made of that of a table, in its schema.
fn beside(table: &Table, before: &str, after: &str) -> String {
    format!("{}.{}", table.schema, ident(&format!("{before}{}{after}", table.bare)))
}

/// A name in a statement.
fn ident(name: &str) -> String {
    let is_plain = |(at, c): (usize, char)| c.is_ascii_lowercase() || c == '_' || (at > 0 && c.is_ascii_digit());
    match name.chars().enumerate().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Part of a message of `RAISE`.
fn said(text: &str) -> String {
    text.replace('\'', "''").replace('%', "%%")
}

/// Fills the places of a template. A line that begins with `{?PLACE}` is left out if that place is empty.
fn fill(template: &str, places: &Places) -> String {
    // The quote around a body must not be in it.
    let mut tag = String::from("$write$");
    while places.iter().any(|(_, value)| value.contains(tag.as_str())) {
        tag.insert(1, 'x');
    }
    let mut text = String::new();
    for line in template.lines() {
        let mut line = line;
        if let Some((place, rest)) = line.strip_prefix("{?").and_then(|rest| rest.split_once('}')) {
            if places.iter().any(|(name, value)| *name == place && value.is_empty()) {
                continue;
            }
            line = rest;
        }
        fill_line(
            &mut text,
            &line.replace("$write$", &tag).replace("$words$", &tag),
            places,
        );
        text.push('\n');
    }
    text
}

/// Values are never looked at for places of their own.
fn fill_line(text: &mut String, line: &str, places: &Places) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let value = places
            .iter()
            .find(|(place, _)| *place == name)
            .map(|(_, value)| value.as_str());
        debug_assert!(value.is_some(), "the template has a place {name:?} without a value");
        text.push_str(before);
        text.push_str(value.unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
}
