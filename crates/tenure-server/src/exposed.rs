//! Files and directories that other users of the machine can read or change. The daemon uses them all the same: how they
//! are mounted may not be up to it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tenure_core::store::{Finding, Severity};

use crate::settings::Settings;

const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
/// In such a directory others cannot replace files.
const STICKY: u32 = 0o1000;

/// A finding for each of them: the token file, the key of the certificate, the directory of an embedded store. Blocks: they
/// may be on a network disk.
pub(crate) fn findings(settings: &Settings, store: &str) -> Vec<Finding> {
    let tokens = settings.tokens.as_ref().map(|tokens| ("tokens", &*tokens.file));
    let key = settings.tls.as_ref().map(|tls| ("tls", &*tls.files.key));
    let directory = store.strip_prefix("sqlite:").and_then(|file| Path::new(file).parent());
    let files = tokens.into_iter().chain(key);
    files
        .chain(directory.map(|directory| ("data directory", directory)))
        .filter_map(|(check, path)| finding(check, path))
        .collect()
}

fn finding(check: &str, path: &Path) -> Option<Finding> {
    let meta = path.metadata().ok()?;
    let mode = meta.permissions().mode();
    let can = if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        "change"
    } else if mode & OTHERS_READ != 0 && !meta.is_dir() {
        // The files of an embedded store are private themselves.
        "read"
    } else {
        return None;
    };
    let shown = path.display();
    let detail = format!("every user of this machine can {can} {shown}; run `chmod o= {shown}`");
    Some(Finding::new(check, Severity::Warning, detail))
}
