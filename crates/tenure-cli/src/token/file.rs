//! The two files of `tenure token new`: the daemon's, which gets an entry, and the new one with the secret.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use anyhow::{Context, bail};
use tenure_server::auth::{Secret, TokenEntry, read};

use crate::exit::{Usage, say};

/// Adds an entry to a file, unless that has one of this name; makes the file when there is none. It stays its owner's.
///
/// # Errors
/// `Usage` for a name that is taken and a file that cannot be understood, and those of the system. Nothing has changed then.
pub(super) fn add(file: &Path, entry: &TokenEntry) -> anyhow::Result<()> {
    let place = file.display();
    // The target of a link is replaced, not the link.
    let file = match fs::canonicalize(file) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error).with_context(|| format!("{place} cannot be read")),
    };
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let _lock = lock(directory);
    let (before, mut text) = if file.exists() {
        let known = read(&file).map_err(|error| Usage::new(error.chain()))?;
        if known.iter().any(|known| known.name == entry.name) {
            return Err(Usage::new(format!("{place} has a token with the name {} already", entry.name)).into());
        }
        let found = fs::metadata(&file).and_then(|found| Ok((Some(found), fs::read_to_string(&file)?)));
        found.with_context(|| format!("{place} cannot be read"))?
    } else {
        (None, String::new())
    };
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push_str(&entry.to_string());
    // In one step: a daemon never finds half an entry.
    let write = || -> anyhow::Result<()> {
        let mut new = tempfile::NamedTempFile::new_in(directory)?;
        new.write_all(text.as_bytes())?;
        if let Some(before) = before {
            hand_over(new.as_file(), &before)?;
        }
        new.as_file().sync_all()?;
        new.persist(&file)?;
        Ok(())
    };
    write().with_context(|| format!("{place} cannot be written"))
}

/// Locks a directory until it is dropped, so that concurrent additions to one of its files are not lost. The file itself
/// cannot carry the lock, because it is replaced.
fn lock(directory: &Path) -> Option<File> {
    let locked = File::open(directory).and_then(|opened| match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => {
            let place = directory.display();
            say(format_args!("waiting for the lock on {place}"));
            opened.lock().map(|()| opened)
        }
        Err(TryLockError::Error(error)) => Err(error),
    });
    let tell = |error: &io::Error| {
        let place = directory.display();
        say(format_args!(
            "{place} cannot be locked ({error}): do not add two tokens at once"
        ));
    };
    // Not every file system has locks.
    locked.inspect_err(tell).ok()
}

/// Gives a new file the owner of the one before, so that the daemon can read it.
fn hand_over(new: &File, before: &Metadata) -> anyhow::Result<()> {
    let now = new.metadata()?;
    let (user, group) = (before.uid(), before.gid());
    if (now.uid(), now.gid()) != (user, group)
        && let Err(error) = fchown(new, Some(user), Some(group))
    {
        bail!(
            "it is of the user {user} and the group {group}, and only they or root can leave it theirs ({error}); nothing has changed"
        );
    }
    new.set_permissions(before.permissions())?;
    Ok(())
}

/// Writes a secret to a new file that only its owner can read.
///
/// # Errors
/// Those of the system, also when there is such a file already. It is as it was then.
pub(super) fn keep(file: &Path, secret: &Secret) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let opened = opened.with_context(|| format!("the token cannot be written to {}", file.display()))?;
    let write = |mut file: File| {
        writeln!(file, "{}", secret.text())?;
        file.sync_all()
    };
    let written = write(opened).inspect_err(|_| forget(file));
    written.with_context(|| format!("the token cannot be written to {}", file.display()))
}

/// Removes the file of an unused secret.
pub(super) fn forget(file: &Path) {
    if let Err(error) = fs::remove_file(file) {
        say(format_args!(
            "{} has a token that counts nowhere, and stays: {error}",
            file.display()
        ));
    }
}
