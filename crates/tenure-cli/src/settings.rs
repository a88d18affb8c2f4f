//! Settings: tables that make the flags, the environment variables, the keys of the configuration file, their help and
//! their defaults. There is a table for the daemon and one for each command that can run as one ([`adopt`]).
//!
//! A setting with the key `janitor.interval` is the flag `--janitor-interval`, the variable
//! `TENURE_JANITOR_INTERVAL` and `interval` under `[janitor]` in the file. The keys of `tenure adopt registry` begin with
//! `adopt.registry.`, which its flags leave out, and its variables do not. A flag beats the environment, the environment
//! beats the file, the file beats the default. An empty variable counts as not set.
//!
//! One file may hold all tables: each command reads its own keys, and refuses those that are in no table.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::exit::{Usage, say};

/// A setting without its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Its key in the file, dotted.
    pub(crate) key: &'static str,
    /// The placeholder of its value in the help; empty for a switch.
    pub(crate) placeholder: &'static str,
    /// Its default as one would write it; empty when there is none.
    pub(crate) default: &'static str,
    /// The value when its flag is given without one; `None` when it needs one.
    pub(crate) bare: Option<&'static str>,
    /// The name of its environment variable, where that is one of all commands and does not follow from the key.
    pub(crate) shared: Option<&'static str>,
    /// Its description.
    pub(crate) doc: &'static str,
}

/// The key prefixes of the commands.
const COMMANDS: [&str; 3] = ["adopt.registry.", "adopt.leases.", "adopt.sessions."];

impl Setting {
    /// The key as its own command calls it.
    fn name(&self) -> &'static str {
        let mut names = COMMANDS.iter().filter_map(|command| self.key.strip_prefix(command));
        names.next().unwrap_or(self.key)
    }

    /// The table of the file that it stands in, as its own command calls it; `None` at the top.
    fn section(&self) -> Option<&'static str> {
        self.name().split_once('.').map(|(section, _)| section)
    }

    /// The name of its flag, without the dashes.
    pub(crate) fn flag(&self) -> String {
        self.name().replace(['.', '_'], "-")
    }

    /// The name of its environment variable.
    pub(crate) fn variable(&self) -> String {
        self.shared.map_or_else(
            || format!("TENURE_{}", self.key.replace('.', "_").to_uppercase()),
            str::to_owned,
        )
    }

    /// The variable that it had before all variables followed from their keys. It is still read.
    fn old_variable(&self) -> Option<String> {
        let was_short = ["adopt.registry.", "adopt.leases."]
            .iter()
            .any(|command| self.key.starts_with(command));
        let name = self.name().replace('.', "_").to_uppercase();
        (was_short && self.shared.is_none() && !name.starts_with("BRAKE_")).then(|| format!("TENURE_ADOPT_{name}"))
    }

    fn is_switch(&self) -> bool {
        self.placeholder.is_empty()
    }

    /// The three ways to give it, for a message that asks for it.
    fn ways(&self) -> String {
        format!(
            "--{} {}, {} or {} in the configuration file",
            self.flag(),
            self.placeholder,
            self.variable(),
            self.key
        )
    }
}

/// A table of settings: its rows, and a type with a field for each.
pub(crate) trait Table: Sized {
    /// The rows.
    const ROWS: &'static [Setting];

    /// Takes each value from the first place that gives it.
    fn read(sources: &Sources<'_>) -> Result<Self, Usage>;
}

/// Looks a variable up.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The source of a value, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Flag,
    /// By the variable of this name.
    Environment(String),
    File(String),
    Default,
}

macro_rules! settings {
    (
        $(#[doc = $about:literal])+ $table:ident
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:literal, $key:literal, $placeholder:literal, $read:expr
            $(, bare $bare:literal)? $(, shared $shared:literal)?;)*
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $table {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)*
        }

        impl crate::settings::Table for $table {
            const ROWS: &'static [crate::settings::Setting] = &[
                $(crate::settings::Setting {
                    key: $key,
                    placeholder: $placeholder,
                    default: $default,
                    bare: crate::settings::first(&[$($bare)?]),
                    shared: crate::settings::first(&[$($shared)?]),
                    doc: concat!($($doc),+),
                },)*
            ];

            fn read(sources: &crate::settings::Sources<'_>) -> Result<Self, crate::exit::Usage> {
                let mut rows = Self::ROWS.iter();
                $(
                    let setting = rows.next().expect("the fields and the rows come from one list");
                    let $field = sources.value_of(setting, $read)?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

const fn first(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [first, ..] => Some(*first),
        [] => None,
    }
}

pub(crate) mod adopt;
mod daemon;
mod explained;
mod file;
mod flags;
mod guard;
mod jwt;
mod registrations;
mod value;

pub(crate) use daemon::{Settings, beside};
pub(crate) use explained::Explained;
pub(crate) use flags::FlagsOf;
pub(crate) use registrations::Registrations;

/// The flags of the daemon.
pub(crate) type Flags = FlagsOf<Settings>;

/// The settings of every table: what one file may hold.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    let tables = [
        Settings::ROWS,
        adopt::Registry::ROWS,
        adopt::Leases::ROWS,
        adopt::Sessions::ROWS,
    ];
    tables.into_iter().flatten()
}

/// The sources of values.
pub(crate) struct Sources<'a> {
    flags: &'a BTreeMap<&'static str, String>,
    environment: Environment<'a>,
    file_name: String,
    file: BTreeMap<String, String>,
}

impl Sources<'_> {
    fn text_of(&self, setting: &Setting) -> (String, Source) {
        if let Some(text) = self.flags.get(setting.key) {
            return (text.clone(), Source::Flag);
        }
        for name in std::iter::once(setting.variable()).chain(setting.old_variable()) {
            if let Some(text) = (self.environment)(&name).filter(|text| !text.is_empty()) {
                return (text, Source::Environment(name));
            }
        }
        match self.file.get(setting.key) {
            Some(text) => (text.clone(), Source::File(self.file_name.clone())),
            None => (setting.default.to_owned(), Source::Default),
        }
    }

    /// The value of a setting, read from its text.
    fn value_of<T>(&self, setting: &Setting, read: fn(&str) -> Result<T, String>) -> Result<T, Usage> {
        let (text, given) = self.text_of(setting);
        if let Source::Environment(name) = &given
            && *name != setting.variable()
        {
            say(format_args!("{name} is an old name: use {}", setting.variable()));
        }
        read(&text).map_err(|problem| match given {
            Source::Flag => Usage::new(format!("--{}: {problem}", setting.flag())),
            Source::Environment(name) => Usage::new(format!("{name}: {problem}")),
            Source::File(name) => Usage::new(format!("{name}: {}: {problem}", setting.key)),
            Source::Default => Usage::new(format!("the default of {}: {problem}", setting.key)),
        })
    }
}

impl<T: Table> FlagsOf<T> {
    /// Puts the values together from flags, environment and file.
    ///
    /// # Errors
    /// `Usage`, naming the flag, variable or key, its value and what would be right.
    fn values(&self, environment: Environment<'_>) -> Result<T, Usage> {
        T::read(&self.sources(environment)?)
    }

    /// The sources of values.
    fn sources<'a>(&'a self, environment: Environment<'a>) -> Result<Sources<'a>, Usage> {
        let given = self
            .config
            .clone()
            .or_else(|| environment("TENURE_CONFIG").filter(|path| !path.is_empty()));
        let file = given.as_deref().map_or_else(|| Ok(BTreeMap::new()), file::read)?;
        Ok(Sources {
            flags: &self.given,
            environment,
            file_name: given.unwrap_or_default(),
            file,
        })
    }
}

/// No store is configured with a longer ttl.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests;
