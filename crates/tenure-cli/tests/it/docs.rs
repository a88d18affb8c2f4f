//! What the documents say, tried: their commands are run, their examples are started, their tables are compared with the
//! code, and the files that deploy the daemon are read as it would read them.

mod api;
mod deployment;
mod fleets;
mod offered;
mod panels;
mod restore;
mod walk;

use std::path::{Path, PathBuf};

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A file of the project, as text.
#[track_caller]
pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
