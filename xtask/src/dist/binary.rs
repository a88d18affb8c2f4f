//! The release binary: optimized as a whole, without symbols, and its symbols in a separate file.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::release::Release;
use crate::run::{FEATURES, cargo, must, output, root};

/// The largest binary that may be published, in bytes.
const LIMIT: u64 = 20_000_000;

/// Builds `target/dist/tenure`. It contains the commit, and no path of this machine.
pub(crate) fn build() -> Result<PathBuf> {
    let args = [
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "tenure-cli",
        "--target-dir",
        "target",
    ];
    let mut build = cargo(&args);
    build.args(FEATURES).env("RUSTFLAGS", flags());
    if env::var_os("TENURE_COMMIT").is_none() {
        let root = root().to_string_lossy();
        let commit = output("git", &["-C", &root, "rev-parse", "--short=12", "HEAD"]);
        build.env("TENURE_COMMIT", commit.unwrap_or_default().trim());
    }
    must(&mut build)?;
    Ok(root().join("target/dist/tenure"))
}

/// The compiler's flags: panics and line tables name files relative to the project and to the folder of dependencies.
fn flags() -> OsString {
    let mut flags = env::var_os("RUSTFLAGS").unwrap_or_default();
    let home = env::var_os("CARGO_HOME")
        .or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo").into_os_string()))
        .unwrap_or_else(|| ".cargo".into());
    for (from, to) in [(home.as_os_str(), "cargo"), (root().as_os_str(), ".")] {
        flags.push(" --remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    flags
}

/// Copies a program without its symbols. They go into a file that the program names: while that file is next to the
/// program, backtraces contain functions and lines.
pub(crate) fn split(built: &Path, release: &Release) -> Result<()> {
    let (binary, symbols) = (release.binary(), release.symbols());
    let objcopy = || Command::new("objcopy");
    must(objcopy().arg("--only-keep-debug").arg(built).arg(&symbols))?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&symbols);
    must(objcopy().arg("--strip-all").arg(link).arg(built).arg(&binary))
}

pub(crate) fn within_limit(binary: &Path) -> Result<()> {
    let size = fs::metadata(binary)
        .with_context(|| format!("read {}", binary.display()))?
        .len();
    ensure!(
        size <= LIMIT,
        "{} has {size} bytes; at most {LIMIT} are allowed: `cargo bloat` shows what grew",
        binary.display()
    );
    Ok(())
}

/// The second number of the oldest C library 2.x that can run the program.
pub(crate) fn glibc(binary: &Path) -> Result<u32> {
    let symbols = output("objdump", &["-T", &binary.to_string_lossy()]).context("run objdump (install binutils)")?;
    newest_glibc(&symbols).with_context(|| format!("{} is not linked to glibc", binary.display()))
}

fn newest_glibc(symbols: &str) -> Option<u32> {
    let versions = symbols.split("GLIBC_2.").skip(1);
    let minor = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    versions.filter_map(minor).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_symbol_decides_about_the_c_library() {
        let symbols = "DF *UND* (GLIBC_2.2.5) read\nDF *UND* (GLIBC_2.34) pthread_create\nDF *UND* (GLIBC_2.4) x\n";
        assert_eq!(newest_glibc(symbols), Some(34));
        assert_eq!(newest_glibc("DF *UND* read"), None);
    }
}
