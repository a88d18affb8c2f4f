//! `tenure config`: what the settings are, who said so, and what follows from them.

mod example;
mod times;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::time::parse_duration;
use tenure_core::timing::{DEFAULT_TTL, Timing};

use crate::cli::FormatArgs;
use crate::exit::{DONE, Usage};
use crate::output::{json, line, lines, table};
use crate::settings::{Environment, Explained, Flags, Settings, adopt};
use times::Bound;

/// Explains the settings, or prints a configuration file with all of them.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  tenure config example > tenure.toml\n  tenure config explain --config tenure.toml"
)]
pub(crate) struct Config {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum ConfigCommand {
    Explain(Box<Explain>),
    Example(Example),
}

impl Config {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        match self.what {
            ConfigCommand::Explain(explain) => explain.run(),
            ConfigCommand::Example(example) => example.run(),
        }
    }
}

/// Prints a configuration file with every setting, its meaning and its default.
///
/// Every line is a comment, so the unchanged file changes nothing. The daemon and `tenure adopt` read it with --config or
/// TENURE_CONFIG. Unknown keys are rejected.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  tenure config example > tenure.toml\n  tenure serve --config tenure.toml")]
struct Example {}

impl Example {
    #[expect(clippy::unused_self, reason = "as every command")]
    fn run(self) -> anyhow::Result<u8> {
        lines(example::file().trim_end())?;
        Ok(DONE)
    }
}

/// Shows every setting of the daemon, its source, and the resulting worst-case times.
///
/// It reads flags, environment and file as `tenure serve` does, and rejects what `tenure serve` would reject, with exit code
/// 2. It starts nothing and connects to nothing. Passwords are not shown.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  tenure config explain --config tenure.toml --ttl 10s\n  \
                        TENURE_MAX_TTL=1m tenure config explain --json")]
struct Explain {
    /// The ttl of the members for which times are shown; default: 30s, or max_ttl if that is shorter.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// The time between two heartbeats of those members; default: a third of the ttl.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Also show the settings of `tenure adopt`.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    format: FormatArgs,
}

/// The settings, the times that follow from them, and warnings.
#[derive(Debug, Serialize)]
struct Explanation {
    settings: Vec<Explained>,
    times: Vec<Bound>,
    notes: Vec<String>,
}

impl Explain {
    fn run(self) -> anyhow::Result<u8> {
        let told = self.tell(&|name| std::env::var(name).ok())?;
        if self.format.json {
            json(&told)?;
        } else {
            show(told)?;
        }
        Ok(DONE)
    }

    fn tell(&self, environment: Environment<'_>) -> Result<Explanation, Usage> {
        let settings = Settings::load(&self.flags, environment)?;
        settings.jwt(environment)?;
        let timing = self.timing(settings.max_ttl)?;
        let mut rows = self.flags.explain(environment)?;
        if self.all {
            let flags = &self.flags;
            rows.extend(flags.file_for::<adopt::Registry>().explain(environment)?);
            rows.extend(flags.file_for::<adopt::Leases>().explain(environment)?);
            rows.extend(flags.file_for::<adopt::Sessions>().explain(environment)?);
        }
        Ok(Explanation {
            settings: rows,
            times: times::of(&settings, &timing),
            notes: settings.surprises().into_iter().collect(),
        })
    }

    /// The timing of a member, or why there can be none like it.
    fn timing(&self, max_ttl: Duration) -> Result<Timing, Usage> {
        let default = Timing::for_ttl(self.ttl.unwrap_or(DEFAULT_TTL.min(max_ttl)));
        let timing = Timing {
            interval: self.interval.unwrap_or(default.interval),
            ..default
        };
        let checked = timing.check(max_ttl);
        checked.map_err(|error| Usage::new(format!("--ttl, --interval: {error}")))
    }
}

fn show(told: Explanation) -> anyhow::Result<()> {
    let rows = told.settings.into_iter().map(|one| {
        let value = if one.value.is_empty() {
            "-".to_owned()
        } else {
            one.value
        };
        let source = match one.source {
            "file" => format!("file {}", one.given_as),
            "default" => one.source.to_owned(),
            _ => one.given_as,
        };
        [one.key.to_owned(), value, source]
    });
    table(["setting", "value", "given by"], rows.collect())?;
    line("")?;
    let rows = told.times.into_iter().map(|bound| [bound.what, bound.shown, bound.how]);
    table(["what", "at most", "which is"], rows.collect())?;
    for note in told.notes {
        line("")?;
        line(format_args!("note: {note}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ttl: Option<u64>, interval: Option<u64>, variables: &[(&str, &str)]) -> Result<Explanation, String> {
        let environment = |name: &str| {
            let mut known = variables.iter().filter(|(known, _)| *known == name);
            known.next().map(|(_, text)| (*text).to_owned())
        };
        let explain = Explain {
            ttl: ttl.map(Duration::from_secs),
            interval: interval.map(Duration::from_secs),
            all: true,
            flags: Flags::default(),
            format: FormatArgs { json: false },
        };
        explain.tell(&environment).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_explained() {
        let told = told(None, None, &[]).unwrap();
        let keys: Vec<_> = told.settings.iter().map(|one| one.key).collect();
        let all: Vec<_> = crate::settings::all().map(|setting| setting.key).collect();
        assert_eq!(keys, all);
        assert!(told.notes.is_empty());
    }

    #[test]
    fn impossible_timings_are_refused_with_the_numbers() {
        for (ttl, interval, variables, must_say) in [
            (Some(10), Some(5), &[][..], "2 x 5s"),
            (Some(300), None, &[], "5m is outside 1s to 2m (max_ttl)"),
            (
                None,
                None,
                &[("TENURE_MAX_TTL", "500ms")],
                "max_ttl is 500ms; it has to be from 1s to 24h",
            ),
            (
                None,
                None,
                &[("TENURE_JWT_ISSUER", "me")],
                "jwt.issuer is given without keys",
            ),
        ] {
            let error = told(ttl, interval, variables).unwrap_err();
            assert!(error.contains(must_say), "{error}");
        }
    }

    #[test]
    fn short_max_ttl_limits_the_shown_member_ttl() {
        let told = told(None, None, &[("TENURE_MAX_TTL", "10s")]).unwrap();
        assert_eq!(told.times[0].at_most_ms, Some(10_000));
        assert_eq!(told.notes.len(), 1);
    }
}
