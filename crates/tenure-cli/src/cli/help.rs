//! How the help is laid out: commands in the order in which one needs them, and an example before the details.

use std::fmt::Write;

use clap::Command;

use crate::style::HELP;

/// The headings of options that many commands share.
pub(crate) const CONNECTION: &str = "Connection";
pub(crate) const OUTPUT: &str = "Output";

/// The commands in the order of use.
const SECTIONS: [(&str, &[&str]); 6] = [
    ("First steps", &["demo", "serve", "status", "doctor"]),
    ("Run a command under a tenure", &["join", "lock", "run"]),
    (
        "Look",
        &[
            "groups", "members", "claims", "leases", "targets", "sessions", "roster", "events", "why",
        ],
    ),
    (
        "Act",
        &["claim", "acquire", "release", "labels", "expel", "settle", "sweep"],
    ),
    ("Operate", &["token", "config", "restore", "adopt", "bench"]),
    ("Set up", &["completions", "man"]),
];
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n";

/// Lays out the help of the whole command line.
pub(super) fn arrange(command: Command) -> Command {
    let command = command.mut_subcommands(with_examples);
    let template = format!("{TEMPLATE}{}\nOptions:\n{{options}}{{after-help}}", sections(&command));
    command.help_template(template)
}

fn sections(command: &Command) -> String {
    let (header, literal) = (HELP.get_header(), HELP.get_literal());
    let mut text = String::new();
    for (title, names) in SECTIONS {
        // Nothing can go wrong with a text in memory.
        let _ = writeln!(text, "\n{header}{title}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    text
}

/// Puts the examples behind the first sentence of the long help. The short help ends with them.
fn with_examples(command: Command) -> Command {
    let command = command.mut_subcommands(with_examples);
    let examples = command.get_after_help().map(ToString::to_string);
    let (Some(examples), Some(about)) = (examples, command.get_about().map(ToString::to_string)) else {
        return command;
    };
    let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let rest = long.split_once("\n\n").map(|(_, rest)| rest.to_owned());
    let parts = [Some(format!("{about}.")), Some(examples), rest];
    let text: Vec<String> = parts.into_iter().flatten().collect();
    command.long_about(text.join("\n\n")).after_long_help("")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_section() {
        let command = Cli::command();
        let mut visible: Vec<_> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut listed: Vec<_> = SECTIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(visible, listed);
    }

    fn check(command: &Command, path: &str) {
        for sub in command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            let path = format!("{path} {}", sub.get_name());
            let long = sub.get_long_about().map(ToString::to_string).unwrap_or_default();
            let paragraphs: Vec<_> = long.split("\n\n").collect();
            let is_sentence = paragraphs[0].ends_with('.') && !paragraphs[0].trim_end_matches('.').contains(". ");
            assert!(is_sentence, "{path} begins with a sentence: {long}");
            let is_example = paragraphs
                .get(1)
                .is_some_and(|text| text.starts_with("Examples:\n  ") && text.contains(&path));
            assert!(is_example, "{path} goes on with an example: {long}");
            check(sub, &path);
        }
    }

    #[test]
    fn long_help_opens_with_a_sentence_and_an_example() {
        check(&arrange(Cli::command()), "tenure");
    }
}
