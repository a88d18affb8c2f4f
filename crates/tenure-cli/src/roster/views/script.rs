//! The SQL of the move: templates with the application's names in them.

use std::fmt::Write as _;

use tenure_core::escape::escaped;
use tenure_core::id::RosterName;
use tenure_core::ledger::Status;
use tenure_postgres::{Column, Table};

use super::mapping::{Engagements, Providers};
use super::sql::{Places, beside, cast, fill, flag, ident, instant, literal, said, shown_instant};

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
        let all: Vec<&Column> = table.columns.iter().collect();
        let (kept, moved): (Vec<&Column>, Vec<&Column>) = table
            .columns
            .iter()
            .filter(|column| column.name != id.name)
            .partition(|column| is_kept(column));
        let required: Vec<&Column> = moved.iter().copied().filter(|column| column.required).collect();
        let mut places = vec![
            ("roster", self.roster.to_string()),
            ("table", table.name.clone()),
            ("table_text", said(&table.bare)),
            ("write", beside(table, "write_", "")),
            ("trigger", ident(&format!("write_{}", table.bare))),
            ("id", id.quoted.clone()),
            ("id_text", said(&id.name)),
            ("columns", parts.join(|part| part.column.to_owned())),
            ("copied", parts.join(|part| part.copied.clone())),
            ("written", parts.join(|part| part.written.clone())),
            ("set", parts.set()),
            (
                "dropped",
                joined(&moved, ",\n    ", |column| format!("DROP COLUMN {}", column.quoted)),
            ),
            (
                "shown",
                joined(&all, ",\n       ", |column| {
                    format!("{} AS {}", shown(column), column.quoted)
                }),
            ),
            (
                "required",
                joined(&required, " OR ", |column| format!("NEW.{} IS NULL", column.quoted)),
            ),
            ("required_text", joined(&required, ", ", |column| said(&column.name))),
        ];
        places.extend(defaults(&all));
        places.extend(of_details(table, id, alias, kept));
        places
    }
}

/// Values of columns that a statement leaves out.
fn defaults(columns: &[&Column]) -> Places {
    let values = columns.iter().filter_map(|column| {
        let (name, value) = (&column.quoted, column.default.as_ref()?);
        Some(format!("NEW.{name} := coalesce(NEW.{name}, {value});"))
    });
    let values: Vec<String> = values.collect();
    let none = if values.is_empty() { "yes" } else { "" };
    vec![
        ("defaults", values.join("\n        ")),
        ("no_defaults", none.to_owned()),
    ]
}

/// The old table, which keeps these columns.
fn of_details(table: &Table, id: &Column, alias: &str, mut kept: Vec<&Column>) -> Places {
    kept.retain(|column| !column.generated);
    let with_id: Vec<&Column> = std::iter::once(id).chain(kept.iter().copied()).collect();
    let overriding = if id.numbered { "OVERRIDING SYSTEM VALUE " } else { "" };
    vec![
        ("details", beside(table, "", "_details")),
        ("details_bare", ident(&format!("{}_details", table.bare))),
        ("overriding", overriding.to_owned()),
        (
            "details_columns",
            joined(&with_id, ", ", |column| column.quoted.clone()),
        ),
        (
            "details_written",
            joined(&with_id, ", ", |column| format!("NEW.{}", column.quoted)),
        ),
        (
            "details_set",
            joined(&kept, ", ", |column| format!("{0} = NEW.{0}", column.quoted)),
        ),
        (
            "details_now",
            joined(&kept, ", ", |column| format!("{alias}.{}::text", column.quoted)),
        ),
        (
            "details_new",
            joined(&kept, ", ", |column| format!("NEW.{}::text", column.quoted)),
        ),
    ]
}

fn joined(columns: &[&Column], separator: &str, each: impl Fn(&Column) -> String) -> String {
    let each: Vec<String> = columns.iter().map(|column| each(column)).collect();
    each.join(separator)
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
