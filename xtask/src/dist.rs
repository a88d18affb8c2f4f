//! The release binary: optimized as a whole, without symbols, and its symbols in a separate file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// Builds `target/dist/out/tenure` and `tenure.debug`.
pub(crate) fn dist() -> Result<bool> {
    let built = run::root().join("target/dist/tenure");
    let out = run::root().join("target/dist/out");
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
    run::must(&mut run::cargo(&args))?;
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let (binary, symbols) = (out.join("tenure"), out.join("tenure.debug"));
    split(&built, &binary, &symbols)?;
    for file in [&binary, &symbols] {
        let size = fs::metadata(file)
            .with_context(|| format!("read {}", file.display()))?
            .len();
        println!("{} {:.1} MB", file.display(), size as f64 / 1e6);
    }
    Ok(true)
}

/// Copies a program without its symbols. They go into a file that the program names: while that file is next to the
/// program, backtraces contain functions and lines.
fn split(built: &Path, binary: &Path, symbols: &Path) -> Result<()> {
    let objcopy = || std::process::Command::new("objcopy");
    run::must(objcopy().arg("--only-keep-debug").arg(built).arg(symbols))?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(symbols);
    run::must(objcopy().arg("--strip-all").arg(link).arg(built).arg(binary))
}
