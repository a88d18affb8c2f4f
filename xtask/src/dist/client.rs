//! The client packages: a Python wheel, an npm package and a Go module, without the tools of their languages' registries.
//! They are in `clients/` of the release's folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contents::text;
use super::release::Release;
use super::stage::{PLAIN, Stage};
use super::{tar, wheel};
use crate::run::{find, is_set, must, root};

/// Runs a command against a daemon of its own.
const WITH_DAEMON: &str = include_str!("with-daemon.sh");
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// A client package: the program that it is made and installed with, how it is made, and how a program that uses it is run
/// in an empty folder.
struct Client {
    name: &'static str,
    program: &'static str,
    make: fn(&Release) -> Result<PathBuf>,
    run: fn(&Path, &Path, &mut Command) -> Result<()>,
}

const CLIENTS: [Client; 3] = [
    Client {
        name: "Python",
        program: "python3",
        make: python,
        run: run_python,
    },
    Client {
        name: "TypeScript",
        program: "npm",
        make: typescript,
        run: run_typescript,
    },
    Client {
        name: "Go",
        program: "go",
        make: go,
        run: run_go,
    },
];

/// Makes the packages, and with `check` installs each and joins a group with it. Returns the files, and whether all were made.
pub(crate) fn packages(release: &Release, check: bool) -> Result<(Vec<PathBuf>, bool)> {
    let (mut files, mut is_whole) = (Vec::new(), true);
    fs::create_dir_all(release.out.join("clients")).context("create a folder for the clients")?;
    for client in &CLIENTS {
        let name = client.name;
        if find(client.program).is_none() {
            eprintln!("NOT MADE: the client for {name}, which needs {}", client.program);
            is_whole = false;
            continue;
        }
        let file = (client.make)(release).with_context(|| format!("make the client for {name}"))?;
        if check {
            joins(release, client, &file).with_context(|| format!("install {}", file.display()))?;
        }
        files.push(file);
    }
    Ok((files, is_whole || !is_set("CI")))
}

fn folder(language: &str) -> PathBuf {
    root().join("clients").join(language)
}

/// The files directly in a folder that have one of these suffixes, by name.
fn files(folder: &Path, suffixes: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

fn licences(stage: &Stage, folder: &str) -> Result<()> {
    for licence in LICENCES {
        stage.copy(&root().join(licence), &format!("{folder}{licence}"), PLAIN)?;
    }
    Ok(())
}

fn python(release: &Release) -> Result<PathBuf> {
    let (version, source) = (release.version, folder("python"));
    let project = text("clients/python/pyproject.toml")?;
    ensure!(
        project.contains(&format!("version = \"{version}\"")),
        "pyproject.toml has another version than {version}"
    );
    let stage = Stage::new(release.out.join("stage/client-python"))?;
    for (name, path) in files(&source.join("src/tenure_client"), &[".py", "py.typed"])? {
        stage.copy(&path, &format!("tenure_client/{name}"), PLAIN)?;
    }
    let info = format!("tenure_client-{version}.dist-info");
    licences(&stage, &format!("{info}/licenses/"))?;
    let summary = project.lines().find_map(|line| line.strip_prefix("description = "));
    let metadata = format!(
        "Metadata-Version: 2.1\nName: tenure-client\nVersion: {version}\nSummary: {}\nLicense: MIT OR Apache-2.0\n\
         License-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\nRequires-Python: >=3.9\nClassifier: Typing :: Typed\n\
         Description-Content-Type: text/markdown\n\n{}",
        summary.context("pyproject.toml has no description")?.trim_matches('"'),
        text("clients/python/README.md")?
    );
    stage.write(&format!("{info}/METADATA"), PLAIN, metadata)?;
    let tag = "py3-none-any";
    let about = format!("Wheel-Version: 1.0\nGenerator: xtask {version}\nRoot-Is-Purelib: true\nTag: {tag}\n");
    stage.write(&format!("{info}/WHEEL"), PLAIN, about)?;
    let file = release.out.join(format!("clients/tenure_client-{version}-{tag}.whl"));
    wheel::write(release, &stage, &file)?;
    Ok(file)
}

fn typescript(release: &Release) -> Result<PathBuf> {
    let source = folder("typescript");
    crate::clients::prepare_typescript(&source)?;
    fs::remove_dir_all(source.join("dist")).ok();
    must(
        Command::new("npm")
            .args(["run", "--silent", "build"])
            .current_dir(&source),
    )?;
    let stage = Stage::new(release.out.join("stage/client-typescript"))?;
    for (name, path) in files(&source.join("dist"), &[".js", ".d.ts"])? {
        stage.copy(&path, &format!("package/dist/{name}"), PLAIN)?;
    }
    let mut manifest: Value = serde_json::from_str(&text("clients/typescript/package.json")?)?;
    ensure!(
        manifest["version"] == release.version,
        "package.json has another version than {}",
        release.version
    );
    for tools in ["scripts", "devDependencies"] {
        manifest
            .as_object_mut()
            .context("package.json is no object")?
            .remove(tools);
    }
    stage.write("package/package.json", PLAIN, format!("{manifest:#}\n"))?;
    stage.copy(&source.join("README.md"), "package/README.md", PLAIN)?;
    licences(&stage, "package/")?;
    let file = release
        .out
        .join(format!("clients/tenure-client-{}.tgz", release.version));
    tar::pack(release, stage.root(), "package", &file)?;
    Ok(file)
}

/// The module as a folder: it has no host of its own, so it is used by a `replace`.
fn go(release: &Release) -> Result<PathBuf> {
    let name = format!("tenure-go-{}", release.version);
    let stage = Stage::new(release.out.join("stage/client-go"))?;
    for (file, path) in files(&folder("go"), &[".go", "go.mod", "README.md"])? {
        if !file.ends_with("_test.go") {
            stage.copy(&path, &format!("{name}/{file}"), PLAIN)?;
        }
    }
    let example = "examples/fleet/main.go";
    stage.copy(&folder("go").join(example), &format!("{name}/{example}"), PLAIN)?;
    licences(&stage, &format!("{name}/"))?;
    let file = release.out.join(format!("clients/{name}.tar.gz"));
    tar::pack(release, stage.root(), &name, &file)?;
    Ok(file)
}

/// Installs a package into an empty folder, and joins a group with it.
fn joins(release: &Release, client: &Client, file: &Path) -> Result<()> {
    let place = release.out.join("installed");
    fs::remove_dir_all(&place).ok();
    fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", WITH_DAEMON, "with-daemon.sh"]);
    command.arg(release.binary()).current_dir(&place);
    (client.run)(file, &place, &mut command)?;
    must(&mut command)?;
    println!("the client for {}: installed, and joined a group", client.name);
    fs::remove_dir_all(&place).with_context(|| format!("remove {}", place.display()))
}

fn run_python(file: &Path, place: &Path, command: &mut Command) -> Result<()> {
    let python = place.join("venv/bin/python");
    must(Command::new("python3").args(["-m", "venv"]).arg(place.join("venv")))?;
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--disable-pip-version-check",
    ];
    must(Command::new(&python).args(install).arg(file))?;
    let program = "from tenure_client import Tenure\nwith Tenure().join('g') as m: assert m.claim('r', 'k') == 'new'";
    command.arg(python).args(["-c", program]);
    Ok(())
}

fn run_typescript(file: &Path, place: &Path, command: &mut Command) -> Result<()> {
    fs::write(place.join("package.json"), "{}\n").context("write package.json")?;
    let install = ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut npm = Command::new("npm");
    must(npm.args(install).arg(file).current_dir(place).stdout(Stdio::null()))?;
    let program = "import { Tenure } from 'tenure-client'; const m = await new Tenure().group('g').join(); \
                   await m.claim('r', 'k'); await m.leave();";
    command.args(["node", "--input-type=module", "-e", program]);
    Ok(())
}

fn run_go(file: &Path, place: &Path, command: &mut Command) -> Result<()> {
    must(
        Command::new("tar")
            .args(["--extract", "--file"])
            .arg(file)
            .current_dir(place),
    )?;
    let module = text("clients/go/go.mod")?;
    let path = module.lines().find_map(|line| line.strip_prefix("module "));
    let path = path.context("go.mod names no module")?;
    let unpacked = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .replace(".tar.gz", "");
    let requires = format!("module start\n\ngo 1.19\n\nrequire {path} v0.0.0\n\nreplace {path} => ./{unpacked}\n");
    fs::write(place.join("go.mod"), requires).context("write go.mod")?;
    let program = format!(
        "package main\n\nimport (\n\t\"context\"\n\ttenure \"{path}\"\n)\n\nfunc main() {{\n\tctx := context.Background()\n\
         \tclient, err := tenure.NewClient(tenure.Options{{}})\n\tif err == nil {{\n\t\tmember, failed := client.Join(ctx, \"g\", \
         \"\", tenure.JoinOptions{{}})\n\t\tif err = failed; err == nil {{\n\t\t\terr = member.Leave(ctx)\n\t\t}}\n\t}}\n\
         \tif err != nil {{\n\t\tpanic(err)\n\t}}\n}}\n"
    );
    fs::write(place.join("main.go"), program).context("write main.go")?;
    command
        .env("GOPROXY", "off")
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local");
    command.args(["go", "run", "."]);
    Ok(())
}
