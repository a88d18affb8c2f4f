//! The packages of small contents: complete, and the same bytes each time.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents::{Contents, Shell};
use super::release::{Effort, Release};
use super::*;
use crate::run::output;

/// A folder of the system's own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = env::temp_dir().join(format!("tenure-dist-{}-{name}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn release(out: &Path) -> Release {
    Release {
        epoch: 1_700_000_000,
        ..Release::new(out.to_owned(), Effort::Full)
    }
}

/// A program of the system in place of ours, and short texts.
fn contents() -> Contents {
    let text = |text: &str| text.as_bytes().to_vec();
    Contents {
        binary: find("ls").unwrap(),
        manuals: vec![
            ("tenure-serve.1".to_owned(), text("serve")),
            ("tenure.1".to_owned(), text("tenure")),
        ],
        completions: Shell::ALL.map(|shell| (shell, text("complete"))).to_vec(),
        settings: text("#listen = \"127.0.0.1:7717\"\n"),
    }
}

/// Whether the program of a package is here. In CI all of them are.
fn can_make(program: &str) -> bool {
    let found = find(program).is_some();
    assert!(found || !is_set("CI"), "{program} is not installed");
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

#[test]
fn same_contents_give_the_same_bytes() {
    let (one, two) = (Folder::new("one"), Folder::new("two"));
    for (name, pack, program, _) in PACKAGES {
        if !can_make(program) {
            continue;
        }
        let first = pack(&release(&one.0), &contents()).unwrap();
        let second = pack(&release(&two.0), &contents()).unwrap();
        assert_eq!(first.file_name(), second.file_name());
        assert!(
            fs::read(&first).unwrap() == fs::read(&second).unwrap(),
            "{name} differs"
        );
    }
}

/// What the package's own tool lists: one line per file, with its time in UTC.
fn listed(program: &str, args: &[&str], package: &Path) -> String {
    let output = Command::new(program)
        .args(args)
        .arg(package)
        .env("TZ", "UTC")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_file_has_the_time_of_the_release() {
    let folder = Folder::new("dated");
    for (name, pack, program, _) in PACKAGES {
        if !can_make(program) {
            continue;
        }
        let package = pack(&release(&folder.0), &contents()).unwrap();
        let listed = match *program {
            "dpkg-deb" => listed("dpkg-deb", &["--contents"], &package),
            "python3" => listed("python3", &["-m", "zipfile", "--list"], &package),
            _ => listed("tar", &["--list", "--verbose", "--file"], &package),
        };
        let files = listed.lines().filter(|line| !line.starts_with("File Name"));
        for line in files {
            assert!(line.contains(" 2023-11-14 22:13"), "{name}: {line}");
        }
    }
}

#[test]
fn archive_belongs_to_root_and_is_complete() {
    if !can_make("tar") {
        return;
    }
    let folder = Folder::new("listed");
    let archive = tar::archive(&release(&folder.0), &contents()).unwrap();
    let listed = listed("tar", &["--list", "--verbose", "--numeric-owner", "--file"], &archive);
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "{listed}");
    for file in [
        "/share/man/man1/tenure-serve.1",
        "/share/zsh/site-functions/_tenure",
        "/share/doc/tenure/tenure.example.toml",
        "/lib/systemd/system/tenure.service",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "no {file} in {listed}");
    }
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("/bin/tenure"))
    );
}

#[test]
fn debian_package_has_unit_scripts_and_configuration() {
    if !can_make("dpkg-deb") {
        return;
    }
    let folder = Folder::new("deb");
    let package = deb::package(&release(&folder.0), &contents()).unwrap();
    let package = package.to_string_lossy();
    let control = output("dpkg-deb", &["--field", &package]).unwrap();
    assert!(control.contains("\nVersion: 0.") && !control.contains('@'), "{control}");
    let listed = output("dpkg-deb", &["--contents", &package]).unwrap();
    for file in [
        "./etc/tenure/tenure.toml",
        "./usr/bin/tenure",
        "./usr/lib/systemd/system/tenure.service",
        "./usr/share/man/man1/tenure.1.gz",
        "./usr/share/bash-completion/completions/tenure",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "no {file} in {listed}");
    }
    let control = folder.0.join("control");
    let unpacked = Command::new("dpkg-deb")
        .arg("--control")
        .arg(&*package)
        .arg(&control)
        .status();
    assert!(unpacked.unwrap().success());
    for script in ["postinst", "prerm", "postrm"] {
        let valid = Command::new("sh").arg("-n").arg(control.join(script)).status();
        assert!(valid.unwrap().success(), "{script}");
    }
}

#[test]
fn bill_of_materials_is_complete_and_consistent() {
    let bill = sbom::bill(&release(Path::new("unused"))).unwrap();
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&"CycloneDX".into(), &"1.5".into())
    );
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let components = bill["components"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut known: Vec<String> = components.iter().map(|component| text(&component["bom-ref"])).collect();
    for component in components {
        assert!(component["licenses"][0].is_object(), "{component}");
        let is_own = text(&component["name"]).starts_with("tenure");
        let is_bundled = component["name"] == "sqlite";
        let sum = text(&component["hashes"][0]["content"]);
        assert!(is_own || is_bundled || sum.len() == 64, "{component}");
    }
    assert!(
        known.iter().any(|name| name.starts_with("pkg:generic/sqlite@3.")),
        "{known:?}"
    );
    let scope = |name: &str| {
        let mut found = components.iter().filter(|component| component["name"] == name);
        found.next().map(|component| text(&component["scope"]))
    };
    assert_eq!(scope("tokio").as_deref(), Some("required"));
    assert_eq!(scope("serde_derive").as_deref(), Some("excluded"));
    assert_eq!(
        scope("proptest"),
        None,
        "a tool of the tests is not part of the program"
    );

    known.push(text(&bill["metadata"]["component"]["bom-ref"]));
    known.sort();
    let unique = known.len();
    known.dedup();
    assert_eq!(known.len(), unique);
    let dependencies = bill["dependencies"].as_array().unwrap();
    assert_eq!(dependencies.len(), unique);
    for dependency in dependencies {
        let needs = dependency["dependsOn"].as_array().unwrap();
        for name in needs.iter().chain([&dependency["ref"]]) {
            assert!(known.binary_search(&text(name)).is_ok(), "unknown {name}");
        }
    }
}

#[test]
fn unknown_options_are_named() {
    let parse = |args: &[&str]| Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
    let options = parse(&["--binary", "a/tenure", "--check"]).unwrap();
    assert!(options.check && options.binary.as_deref() == Some(Path::new("a/tenure")));
    assert!(
        parse(&["--binary"])
            .unwrap_err()
            .to_string()
            .contains("--binary needs a path")
    );
    assert!(parse(&["--fast"]).unwrap_err().to_string().contains("\"--fast\""));
}
