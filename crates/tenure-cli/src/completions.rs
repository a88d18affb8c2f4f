//! `tenure completions`: what a shell needs to complete a command line.

use clap::Args;
use clap_complete::{Shell, generate};

use crate::cli::Cli;
use crate::exit::DONE;
use crate::output::verbatim;

/// Prints the completion script for a shell.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
    tenure completions bash > /etc/bash_completion.d/tenure\n  \
    tenure completions zsh > /usr/local/share/zsh/site-functions/_tenure\n  \
    tenure completions fish > ~/.config/fish/completions/tenure.fish")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::whole(), "tenure", &mut script);
        verbatim(String::from_utf8_lossy(&script).trim_end())?;
        Ok(DONE)
    }
}
