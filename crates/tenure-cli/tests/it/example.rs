//! The examples of the library, as programs to be run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A built example of the library. It belongs to another package, whose tests build it; these do it themselves, into the
/// same place.
#[track_caller]
pub(crate) fn example(name: &str) -> PathBuf {
    let profile_dir = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().expect("a directory");
    let target_dir = profile_dir.parent().expect("a directory");
    let mut build = Command::new(env!("CARGO"));
    // What cargo says to a test about its package would be news to the build scripts that ask for it: nearly everything
    // would be built again, here and after the tests.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"]
            .iter()
            .any(|of_package| text.starts_with(of_package))
        {
            build.env_remove(&name);
        }
    }
    // For the whole workspace, as the tests are: other features would rebuild all dependencies.
    build.args(["build", "--quiet", "--workspace", "--example", name]);
    build.arg("--target-dir").arg(target_dir);
    if profile_dir.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status().expect("cargo can be started");
    assert!(built.success(), "the example cannot be built");
    profile_dir.join("examples").join(name)
}
