//! What the packages carry beside the program: manual pages, completions, settings and documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::stage::{PLAIN, PROGRAM, Stage};
use crate::run::{must, root};

/// The documents of the project that every package carries.
const DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) binary: PathBuf,
    /// Manual pages by name.
    pub(crate) manuals: Vec<(String, Vec<u8>)>,
    pub(crate) completions: Vec<(Shell, Vec<u8>)>,
    /// A configuration file with every setting as a comment.
    pub(crate) settings: Vec<u8>,
}

/// A shell that can complete the arguments of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The folder that a package is unpacked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    Usr,
    Local,
}

impl Shell {
    pub(crate) const ALL: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

    fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }

    /// Where its script belongs, below `/usr` for a package of the distribution and below `/usr/local` otherwise.
    fn path(self, prefix: Prefix) -> &'static str {
        match (self, prefix) {
            (Shell::Bash, _) => "share/bash-completion/completions/tenure",
            (Shell::Zsh, Prefix::Usr) => "share/zsh/vendor-completions/_tenure",
            (Shell::Zsh, Prefix::Local) => "share/zsh/site-functions/_tenure",
            (Shell::Fish, _) => "share/fish/vendor_completions.d/tenure.fish",
        }
    }
}

impl Contents {
    /// What the program writes about itself. `scratch` is a folder for it.
    pub(crate) fn of(binary: &Path, scratch: &Path) -> Result<Contents> {
        let pages = scratch.join("man");
        // Help shows the values of variables; the packages must not contain those of this machine.
        let tenure = || {
            let mut command = Command::new(binary);
            command.env_clear();
            command
        };
        must(tenure().arg("man").arg(&pages).stdout(Stdio::null()))?;
        let mut completions = Vec::new();
        for shell in Shell::ALL {
            completions.push((shell, printed(tenure().args(["completions", shell.name()]))?));
        }
        Ok(Contents {
            binary: binary.to_owned(),
            manuals: read_folder(&pages)?,
            completions,
            settings: printed(tenure().args(["config", "example"]))?,
        })
    }

    /// Program, manual pages and completions. `folder` of the stage becomes the prefix.
    pub(crate) fn lay_out(&self, stage: &Stage, folder: &str, prefix: Prefix) -> Result<()> {
        stage.copy(&self.binary, &format!("{folder}bin/tenure"), PROGRAM)?;
        self.lay_out_manuals(stage, folder)?;
        for (shell, script) in &self.completions {
            stage.write(&format!("{folder}{}", shell.path(prefix)), PLAIN, script)?;
        }
        Ok(())
    }

    pub(crate) fn lay_out_manuals(&self, stage: &Stage, folder: &str) -> Result<()> {
        for (name, page) in &self.manuals {
            stage.write(&format!("{folder}share/man/man1/{name}"), PLAIN, page)?;
        }
        Ok(())
    }
}

/// Copies the documents of the project into a folder of a package.
pub(crate) fn documents(stage: &Stage, folder: &str) -> Result<()> {
    for name in DOCUMENTS {
        stage.copy(&root().join(name), &format!("{folder}{name}"), PLAIN)?;
    }
    Ok(())
}

/// The text of a file of the project.
pub(crate) fn text(path: &str) -> Result<String> {
    let file = root().join(path);
    fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
}

fn printed(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} failed: {}: {error}",
        output.status
    );
    Ok(output.stdout)
}

/// The files of a folder, sorted by name.
fn read_folder(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}
