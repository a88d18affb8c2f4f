//! `tenure token`: access tokens of a daemon.

mod file;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::time::{StoreTime, parse_duration};
use tenure_server::auth::{Scope, Secret, TokenEntry, read};

use crate::cli::FormatArgs;
use crate::exit::{DONE, Usage};
use crate::output::{json as print_json, line, lines, or_dash, table};

/// Creates access tokens for a daemon and checks its token file.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tenure token new --name gw --scope beat --add tokens.toml --out gw.token\n  \
                        tenure token check tokens.toml"
)]
pub(crate) struct Token {
    #[command(subcommand)]
    what: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    New(New),
    Check(Check),
}

impl Token {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        match &self.what {
            TokenCommand::New(new) => new.run(),
            TokenCommand::Check(check) => check.run(),
        }
    }
}

/// Creates a token and prints the entry for the daemon's token file.
///
/// The token is shown once. The file (`tenure serve --tokens FILE`) has only its hash, so reading the file reveals no token.
/// The daemon reads the file every two seconds and on HUP; a token that is removed from the file is then invalid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tenure token new --name gw --scope beat --group 'gw*' --add tokens.toml --out gw.token\n  \
    tenure token new --name alice --scope read,operate --expires-in 90d\n\n\
    Scopes (none implies another):\n  \
    read     lists, states, events, status\n  \
    beat     join, beat and leave; claims, leases and sessions; being online in a roster\n  \
    write    targets, providers, engagements\n  \
    operate  expel, sweep, deactivate, remove providers, settings of rosters")]
struct New {
    /// The name of the caller in logs and refusals.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The scopes, separated by commas: read, beat, write, operate.
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// A group that it is valid for, or a prefix with `*`; may be repeated. Without groups and rosters: all.
    #[arg(long = "group", value_name = "GROUP", value_delimiter = ',')]
    groups: Vec<String>,
    /// A roster that it is valid for, or a prefix with `*`; may be repeated.
    #[arg(long = "roster", value_name = "ROSTER", value_delimiter = ',')]
    rosters: Vec<String>,
    /// The validity, like 90d or 12h; default: until it is removed from the file.
    #[arg(long, value_name = "DURATION", value_parser = days_or_duration)]
    expires_in: Option<Duration>,
    /// Append the entry to this file instead of printing it. The owner of the file does not change.
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Write the token to this new file (mode 0600) instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

/// A duration, also in days.
fn days_or_duration(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    match days {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        None => parse_duration(text).map_err(|error| error.to_string()),
    }
}

impl New {
    fn run(&self) -> anyhow::Result<u8> {
        let secret = Secret::draw()?;
        let entry = self.entry(&secret)?;
        // The secret first: an entry without its secret is useless.
        if let Some(out) = &self.out {
            file::keep(out, &secret)?;
        }
        if let Some(tokens) = &self.add
            && let Err(error) = file::add(tokens, &entry)
        {
            self.out.iter().for_each(|out| file::forget(out));
            return Err(error);
        }
        self.print(&secret, &entry)?;
        Ok(DONE)
    }

    fn entry(&self, secret: &Secret) -> anyhow::Result<TokenEntry> {
        let now = StoreTime::from_micros(SystemClock::new().wall_micros());
        let entry = TokenEntry {
            name: self.name.clone(),
            sha256: secret.sha256(),
            scopes: self.scopes.iter().copied().collect(),
            groups: self.groups.clone(),
            rosters: self.rosters.clone(),
            expires: self.expires_in.map(|time| now + time),
        };
        entry.check().map_err(|error| Usage::new(error.to_string()))?;
        Ok(entry)
    }

    fn print(&self, secret: &Secret, entry: &TokenEntry) -> anyhow::Result<()> {
        let shown = self.out.is_none().then(|| secret.text());
        if self.format.json {
            return print_json(&json!({"name": entry.name, "token": shown, "entry": entry.to_string()}));
        }
        if let Some(shown) = shown {
            line("# The token. It is shown this once; keep it where only its user reads it.")?;
            line(shown)?;
        }
        if self.add.is_none() {
            line("")?;
            line("# For the file that the daemon's --tokens names.")?;
            lines(entry.to_string().trim_end())?;
        }
        Ok(())
    }
}

/// Checks a token file as the daemon would, and lists its entries.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tenure token check tokens.toml")]
struct Check {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

impl Check {
    fn run(&self) -> anyhow::Result<u8> {
        let entries = read(&self.file)?;
        if self.format.json {
            let shown = entries.iter().map(|entry| {
                let scopes: Vec<_> = entry.scopes.iter().map(Scope::as_str).collect();
                json!({
                    "name": entry.name, "scopes": scopes, "groups": entry.groups, "rosters": entry.rosters,
                    "expires": entry.expires,
                })
            });
            print_json(&json!({ "tokens": shown.collect::<Vec<_>>() }))?;
            return Ok(DONE);
        }
        let names = |names: &[String], others: &[String]| match (names.is_empty(), others.is_empty()) {
            (true, true) => "all".to_owned(),
            (true, false) => "-".to_owned(),
            (false, _) => names.join(", "),
        };
        let rows = entries.iter().map(|entry| {
            [
                entry.name.clone(),
                entry.scopes.to_string(),
                names(&entry.groups, &entry.rosters),
                names(&entry.rosters, &entry.groups),
                or_dash(entry.expires),
            ]
        });
        table(["name", "scopes", "groups", "rosters", "expires"], rows.collect())?;
        Ok(DONE)
    }
}
