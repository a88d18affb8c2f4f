//! A table of settings as command-line flags.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::Table;

/// The settings that were given as flags, as texts by key, and where the file is.
#[derive(Debug, Clone)]
pub(crate) struct FlagsOf<T> {
    pub(super) given: BTreeMap<&'static str, String>,
    pub(super) config: Option<String>,
    table: PhantomData<T>,
}

impl<T> Default for FlagsOf<T> {
    fn default() -> Self {
        Self {
            given: BTreeMap::new(),
            config: None,
            table: PhantomData,
        }
    }
}

impl<T> FlagsOf<T> {
    /// Whether this one was given as a flag.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }
}

impl<T: Table> Args for FlagsOf<T> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("A TOML file with settings, under the names in brackets [env: TENURE_CONFIG]");
        T::ROWS.iter().fold(command.arg(config), |command, setting| {
            let mut help = setting.doc.trim().to_owned();
            if !setting.default.is_empty() {
                help.push_str(&format!(" [default: {}]", setting.default));
            }
            help.push_str(&format!(" [env: {}]", setting.variable()));
            if setting.key != setting.flag() {
                help.push_str(&format!(" [file: {}]", setting.key));
            }
            let arg = Arg::new(setting.key).long(setting.flag()).help(help);
            let arg = match setting.section() {
                Some(section) => arg.help_heading(heading(section)),
                None => arg,
            };
            command.arg(match setting.bare {
                _ if setting.is_switch() => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_name("BOOL"),
                Some(bare) => arg
                    .num_args(0..=1)
                    .default_missing_value(bare)
                    .value_name(setting.placeholder),
                None => arg.value_name(setting.placeholder),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Table> FromArgMatches for FlagsOf<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one::<String>("config").cloned();
        for setting in T::ROWS {
            if let Some(text) = matches.get_one::<String>(setting.key) {
                self.given.insert(setting.key, text.clone());
            }
        }
        Ok(())
    }
}

/// `janitor` as the heading of its options.
fn heading(section: &str) -> String {
    match section {
        "jwt" | "otlp" | "tls" => section.to_uppercase(),
        _ => section[..1].to_uppercase() + &section[1..],
    }
}

#[cfg(test)]
impl<T> FlagsOf<T> {
    /// Flags as if given on the command line.
    pub(super) fn of(config: Option<&str>, given: &[(&'static str, &str)]) -> Self {
        let given = given.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        Self {
            given,
            config: config.map(str::to_owned),
            table: PhantomData,
        }
    }
}
