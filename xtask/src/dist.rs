//! The packages: a stripped binary as an archive, a Debian package, a Python wheel and an npm package, and those of the client
//! libraries, with checksums and a bill of materials. The same input gives the same bytes: names are sorted, and times come from `SOURCE_DATE_EPOCH` or the
//! last commit.

mod binary;
mod check;
mod client;
mod contents;
mod deb;
mod npm;
mod release;
mod sbom;
mod stage;
mod sums;
mod tar;
#[cfg(test)]
mod tests;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::contents::Contents;
use self::release::{Effort, Release};
use crate::run::{find, is_set, root};

/// Builds one package into the release's folder, and returns its path.
type Pack = fn(&Release, &Contents) -> Result<PathBuf>;

/// The packages, with the program that builds each and its Debian package.
const PACKAGES: &[(&str, Pack, &str, &str)] = &[
    ("archive", tar::archive, "tar", "tar"),
    ("Debian package", deb::package, "dpkg-deb", "dpkg"),
    ("Python wheel", wheel::package, "python3", "python3"),
    ("npm package", npm::package, "tar", "tar"),
];

/// The options of `cargo xtask dist`.
#[derive(Debug, Default)]
struct Options {
    /// A built program to pack instead of building one.
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    check: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut path = || {
                args.next()
                    .map(PathBuf::from)
                    .with_context(|| format!("{arg} needs a path"))
            };
            match arg.as_str() {
                "--binary" => options.binary = Some(path()?),
                "--out" => options.out = Some(path()?),
                "--check" => options.check = true,
                other => bail!("unknown argument {other:?} of dist; known: --binary PATH, --out DIR, --check"),
            }
        }
        Ok(options)
    }
}

/// Builds all packages into `target/dist/out`. With `--check` it also installs each and runs it.
pub(crate) fn dist(args: &[String]) -> Result<bool> {
    let options = Options::parse(args)?;
    let out = options.out.unwrap_or_else(|| root().join("target/dist/out"));
    let built = match &options.binary {
        Some(given) => given.clone(),
        None => binary::build()?,
    };
    let release = Release::new(out, Effort::Full);
    let mut done = make(&release, &built, options.check)?;
    if options.binary.is_none() {
        binary::within_limit(&release.binary())?;
    }
    if options.check {
        done &= check::installs(&release)?;
    }
    Ok(done)
}

/// Packs the program that the tests were built with, installs each package and runs it.
pub(crate) fn check(built: &Path) -> Result<bool> {
    let out = built.with_file_name("packages");
    let release = Release::new(out, Effort::Quick);
    Ok(make(&release, built, true)? & check::installs(&release)?)
}

/// Makes everything that goes into the folder. Returns whether all of it could be made.
fn make(release: &Release, built: &Path, check: bool) -> Result<bool> {
    fs::remove_dir_all(&release.out).ok();
    fs::create_dir_all(&release.out).with_context(|| format!("create {}", release.out.display()))?;
    binary::split(built, release)?;
    let contents = Contents::of(&release.binary(), &release.out.join("stage"))?;
    let mut files = vec![release.binary(), release.symbols()];
    let mut is_whole = true;
    for (name, pack, program, package) in PACKAGES {
        if find(program).is_some() {
            files.push(pack(release, &contents).with_context(|| format!("make the {name}"))?);
        } else {
            eprintln!("NOT MADE: the {name}, which needs {program} (install {package})");
            is_whole = false;
        }
    }
    let (clients, are_whole) = client::packages(release, check)?;
    files.extend(clients);
    is_whole &= are_whole;
    files.push(sbom::write(release)?);
    files.push(sums::write(release, &files)?);
    fs::remove_dir_all(release.out.join("stage")).ok();
    for file in &files {
        let size = fs::metadata(file)
            .with_context(|| format!("read {}", file.display()))?
            .len();
        println!("{:>9.3} MB  {}", size as f64 / 1e6, file.display());
    }
    Ok(is_whole || !is_set("CI"))
}
