//! `tenure man`: the manual pages.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::cli::Cli;
use crate::exit::DONE;
use crate::output::line;

/// Prints the manual page, or writes the pages of all commands to a directory.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  tenure man | man -l -\n  tenure man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The directory for tenure.1, tenure-serve.1 and so on; created if it is missing.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let command = Cli::whole();
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            io::stdout().lock().write_all(&page)?;
            return Ok(DONE);
        };
        std::fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        clap_mangen::generate_to(command, &directory)
            .with_context(|| format!("the pages cannot be written into {}", directory.display()))?;
        line(format_args!("wrote the manual pages into {}", directory.display()))?;
        Ok(DONE)
    }
}
